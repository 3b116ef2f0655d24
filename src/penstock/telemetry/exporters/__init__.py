"""Where records go: logs, Prometheus, OpenTelemetry."""
