"""The prompts, as text files, named by their hash."""
