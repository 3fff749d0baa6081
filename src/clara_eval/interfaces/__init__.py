"""The ways in: the command line, the REST API and pages, the MCP tools, Python."""
