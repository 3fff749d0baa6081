"""A realistic round on a local chain: posted, submitted, judged, paid and verified, with nothing faked but the money."""
