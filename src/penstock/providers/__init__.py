"""Providers: who authenticates, what the wire says, and which quirks a model has, kept apart."""
