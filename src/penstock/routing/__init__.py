"""Choosing the targets that may serve a request, and their order."""
