"""Room 9: the contract is told once, and we know how it ended."""
