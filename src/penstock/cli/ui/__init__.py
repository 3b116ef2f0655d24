"""Input and output at the terminal."""
