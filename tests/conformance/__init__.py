"""One table of behaviours that every provider runs; start at `behaviours.py`."""
