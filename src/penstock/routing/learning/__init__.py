"""Learned routing: features, models of quality, and the service that trains them."""
