"""Typed facts of each submission: measured by tools, claimed by a model, or found by running it."""
