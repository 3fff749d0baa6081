"""Challenges as tools of the Model Context Protocol, over stdio or inside the service."""
