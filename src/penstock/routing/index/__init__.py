"""Nearest neighbours: exact, sketched, as a graph, and in PostgreSQL."""
