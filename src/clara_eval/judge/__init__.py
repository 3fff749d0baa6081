"""Prompts, strict reading of answers, the judges of two typed vectors, and the providers of models."""
