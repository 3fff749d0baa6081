"""The corridor: the walk through every room, its record, its status, and the gate before the post."""
