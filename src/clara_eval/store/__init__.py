"""Outside: SQLite and Postgres behind one store."""
