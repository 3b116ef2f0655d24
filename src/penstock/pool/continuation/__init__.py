"""Streams that continue on the next target after a failure."""
