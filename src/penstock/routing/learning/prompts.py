"""The text by which a request is judged: what its user wants, in the user's own words."""

from __future__ import annotations

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Text

ENOUGH = 200
"""A shorter last word of the user, such as "go on", is read together with the ones before it."""


def asked_text(request: SamplingRequest) -> str:
    """The last words of the user, after the earlier ones that it takes to understand them.

    Answers and the system prompt are left out: they say more about the program and the models
    than about how hard the question is.
    """
    turns: list[str] = []
    size = 0
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        text = "\n".join(part.text for part in message.content if isinstance(part, Text)).strip()
        if text:
            turns.append(text)
            size += len(text)
        if size >= ENOUGH:
            break
    return "\n".join(reversed(turns))
