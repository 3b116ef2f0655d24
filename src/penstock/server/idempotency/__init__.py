"""`Idempotency-Key`: stored answers for repeated requests."""
