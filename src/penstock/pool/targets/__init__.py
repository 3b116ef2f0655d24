"""The state of each target: breaker, health, marks, latency."""
