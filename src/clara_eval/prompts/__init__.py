"""The prompts, as text files: what a model is told is read in one place and named by its hash in every trace."""
