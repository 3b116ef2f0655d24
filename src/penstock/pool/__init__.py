"""Getting one answer out of several targets that may each fail."""
