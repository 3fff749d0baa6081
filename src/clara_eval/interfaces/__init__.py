"""Interfaces of the product: command line, REST API and pages, MCP tools, Python functions."""
