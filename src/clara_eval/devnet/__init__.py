"""A local chain for development, the demo and tests; the evaluation code does not import it."""
