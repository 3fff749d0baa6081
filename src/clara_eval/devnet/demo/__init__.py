"""A realistic round on a local chain: posted, submitted, judged, paid and verified; only the money is not real."""
