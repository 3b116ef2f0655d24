"""Clients that nobody here wrote, pointed at a gateway that runs."""
