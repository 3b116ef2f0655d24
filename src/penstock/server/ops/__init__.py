"""For operators: readiness, metrics, the page at `/`, export to a collector."""
