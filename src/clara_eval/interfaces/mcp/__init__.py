"""MCP tools for challenges, over stdio or inside the service."""
