"""Extract facts from text into a type of yours: what comes back is a value, or an error.

    python examples/extract.py            on the embedded model, without a key
    python examples/extract.py gemini     on a provider of yours, with its key in the environment

The provider is given the type's JSON Schema; the answer is validated here all the same. A model
that answers with something else is told why and asked once more.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Literal

from pydantic import BaseModel, Field

import penstock

LETTERS = [
    "My name is Ida Lund. The lamp that I bought last week does not switch on. Send me another!",
    "Hello, this is Omar Aziz. Where is my order of two chairs? It should have come on Monday.",
]

Short = Annotated[str, Field(max_length=40)]


class Ticket(BaseModel):
    """What the help desk wants to know about a letter."""

    customer: Short
    product: Short
    kind: Literal["broken", "late", "other"]
    urgency: Annotated[int, Field(ge=1, le=5, description="1 can wait, 5 cannot")]


async def read(letter: str, provider: str) -> tuple[Ticket, penstock.Metadata]:
    generator = penstock.structured_generator(
        Ticket,
        f"Fill in the ticket for this letter:\n\n{letter}",
        provider=provider,
        temperature=0,
        ignore_invalid_options=True,  # some models know no temperature: then it is left out
    )
    return await generator.generate()


async def main(provider: str) -> None:
    answers = await asyncio.gather(*(read(letter, provider) for letter in LETTERS))
    for letter, (ticket, metadata) in zip(LETTERS, answers, strict=True):
        print(letter)
        print(f"   {ticket!r}")
        print(f"   {metadata.api_calls} call(s), {metadata.latency_ms} ms")

        assert isinstance(ticket, Ticket)
        assert ticket.kind in ("broken", "late", "other")
        assert 1 <= ticket.urgency <= 5
        assert metadata.api_calls in (1, 2), "asked once, and once more at most"


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "embedded"))
