"""Beside: the documents every door reads."""
