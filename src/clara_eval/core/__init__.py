"""Errors, hashing, JSON, HTTP bodies and async helpers that every package may use."""
