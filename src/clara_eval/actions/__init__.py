"""Actions behind every interface: a function per verb checks, plans or acts, and returns values."""
