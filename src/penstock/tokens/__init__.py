"""Token counts without a tokenizer and without a network, for where a provider offers none.

`estimate_request` and `estimate_text` give the likeliest number, `reserve_tokens` one that is
hardly ever too low, and `upper_tokens` one for worst cases.
"""

from penstock.tokens.estimate import (
    FAMILIES,
    Contents,
    Estimates,
    Family,
    estimate_request,
    estimate_sound,
    estimate_text,
    family_of,
    measure_request,
    reserve_text,
    reserve_tokens,
    thinking_apart,
    upper_sound,
    upper_text,
    upper_tokens,
)

__all__ = [
    "FAMILIES",
    "Contents",
    "Estimates",
    "Family",
    "estimate_request",
    "estimate_sound",
    "estimate_text",
    "family_of",
    "measure_request",
    "reserve_text",
    "reserve_tokens",
    "thinking_apart",
    "upper_sound",
    "upper_text",
    "upper_tokens",
]
