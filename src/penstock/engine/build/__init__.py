"""From the configuration to the parts of an engine."""
