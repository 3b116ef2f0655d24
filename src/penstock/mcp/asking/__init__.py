"""A server's side of sampling: asking the client's model, or our own engine where there is none."""
