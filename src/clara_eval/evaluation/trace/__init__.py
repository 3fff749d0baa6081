"""The record: what is kept while walking, and the document a stranger can check."""
