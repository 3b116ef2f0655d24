"""Tools that answer in chunks: an extension for servers, and an async iterator for clients."""
