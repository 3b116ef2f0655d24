"""Money: what calls cost, what may be spent, and the ledger that knows both."""
