"""Streams: cutting bytes into frames, collecting deltas, and handing events to callers."""
