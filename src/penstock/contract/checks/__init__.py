"""Checks of names, texts and addresses."""
