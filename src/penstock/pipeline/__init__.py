"""The flow of a request; start reading at `pipeline.py`."""
