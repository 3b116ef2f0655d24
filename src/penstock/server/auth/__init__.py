"""Who may call: keys, limits, local web pages, and CORS."""
