"""The REST API and the pages."""
