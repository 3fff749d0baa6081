"""The trace: its document, its evidence, and the journal of a run."""
