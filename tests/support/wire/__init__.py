"""Wire-faithful model servers on loopback: one neutral scenario, one renderer a dialect."""
