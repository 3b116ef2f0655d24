"""The HTTP doors: each turns its own dialect into the engine's requests, and results back into it.

Start at `dispatch.py`, which takes a request from the server to its door and its failures back out;
`exchange.py` is what a door sees of one request, and `serve.py` runs all of it.
"""
