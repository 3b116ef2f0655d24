"""Event ids and what was sent under them, so that a client gets the rest of a lost stream."""
