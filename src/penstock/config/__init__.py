"""`penstock.toml`: what may stand in it, and reading it with errors that name the line."""
