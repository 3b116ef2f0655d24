"""Events that are kept for clients that lost their connection."""
