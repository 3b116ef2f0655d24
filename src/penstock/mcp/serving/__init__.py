"""Penstock as an MCP server: its models as tools, and what it knows of them as resources."""
