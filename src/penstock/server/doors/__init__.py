"""One package for each API that callers speak."""
