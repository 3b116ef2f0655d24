"""A provider that answers from a script, or echoes; see `penstock.testing`."""
