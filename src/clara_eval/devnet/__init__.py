"""Beside: a local chain for development, the demo and tests; the evaluating product imports nothing of it."""
