"""The engine: one object that composes all stages; start reading at `engine.py`."""
