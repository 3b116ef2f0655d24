"""What a key sees and says about its own requests: usage, estimates, feedback."""
