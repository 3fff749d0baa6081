"""Room 2: what the contract says, at one pinned block."""
