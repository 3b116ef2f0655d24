"""The audit trail: what administrators have changed."""
