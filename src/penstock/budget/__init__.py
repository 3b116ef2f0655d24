"""What models cost, and what may be spent on them."""
