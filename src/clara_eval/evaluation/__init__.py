"""Evaluate one round: from config, submissions and answers to a ranking and its trace."""
