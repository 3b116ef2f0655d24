"""The conformance suite against servers that somebody else wrote; start at `servers.py`."""
