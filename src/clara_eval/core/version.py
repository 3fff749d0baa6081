"""The version of this package, and of the rules by which it evaluates."""

__version__ = "0.2.0"
RULES = 8
"""Raised by every change after which the same evidence gives other entries: a trace is checked by its own rules."""
