"""Shipped parts for trying things out: a local chain and scripted models that say what they are."""
