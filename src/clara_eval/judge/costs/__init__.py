"""Who pays for an evaluation, how much may be spent, and what was spent."""
