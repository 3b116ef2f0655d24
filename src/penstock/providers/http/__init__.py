"""The HTTP client for providers."""
