"""MCP at `/mcp` and on standard input and output."""
