"""MCP sampling over HTTP and WebSocket."""
