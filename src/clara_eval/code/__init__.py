"""Source code as data: languages, syntax trees, tokens and metrics."""
