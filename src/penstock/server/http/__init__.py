"""HTTP and WebSocket on uvicorn, with limits on slow and large clients."""
