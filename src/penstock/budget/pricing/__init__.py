"""What calls cost: price lists, own prices, and bounds before a call."""
