"""One store over SQLite or Postgres, and the publication of its documents."""
