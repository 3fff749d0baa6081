"""Judges: prompts, strict parsing of answers, comparison of typed vectors, and model providers."""
