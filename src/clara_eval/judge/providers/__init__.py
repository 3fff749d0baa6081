"""Language models: one file per provider, each with a `PROVIDER` that `judge.provider` finds by name."""
