"""The JSON of MCP messages."""
