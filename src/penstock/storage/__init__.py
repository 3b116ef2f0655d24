"""What every store shares."""
