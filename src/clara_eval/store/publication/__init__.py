"""Where anybody reads an evaluation's public documents: the port, the SQL store behind it, and how they get there."""
