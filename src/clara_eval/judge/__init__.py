"""Between the rooms: prompts, answers and the port to a language model."""
