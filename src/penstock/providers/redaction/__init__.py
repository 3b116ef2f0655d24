"""Keys are masked in every text from a provider."""
