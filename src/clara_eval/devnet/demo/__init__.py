"""A realistic round on a local chain, from escrow to verified trace; only the money is not real."""
