"""An agent with two tools: plain functions that the model calls until it can answer.

    python examples/agent.py                       on a scripted model, without a key
    python examples/agent.py openai/gpt-6-luna     on a model of yours

The script misspells an article at first. The function raises, the model is told so, and tries
again: an error of a tool is an answer like any other.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import penstock
from penstock import ToolResult, ToolUse
from penstock.testing import FakeProvider, FakeReply, engine_with

STOCK = {"lamp": 42, "chair": 7}
DAYS = {"Oslo": 3, "Rome": 2}
called: list[str] = []


@dataclass
class Stock:
    article: str
    pieces: int


def stock(article: str) -> Stock:
    """How many pieces of an article are in stock.

    Args:
        article: one word, in the singular
    """
    called.append("stock")
    if article not in STOCK:
        raise LookupError(f"there is no {article!r}; there are: {', '.join(STOCK)}")
    return Stock(article, STOCK[article])


async def days_to(city: str) -> int:
    """How many days a parcel takes to a city."""
    called.append("days_to")
    return DAYS[city]


def answer(request: penstock.SamplingRequest) -> str:
    """What the scripted model says in the end, with what it was told last."""
    (told,) = (part for part in request.messages[-1].content if isinstance(part, ToolResult))
    pieces = (told.structured_content or {})["pieces"]
    return f"Yes: there are {pieces} lamps in stock, and Oslo is 3 days away."


SCRIPT = [
    FakeReply(
        tool_uses=(
            ToolUse("1", "stock", {"article": "lmap"}),
            ToolUse("2", "days_to", {"city": "Oslo"}),
        )
    ),
    FakeReply(tool_uses=(ToolUse("3", "stock", {"article": "lamp"}),)),
    answer,
]


async def main(model: str | None) -> None:
    async with penstock.open() if model else engine_with(FakeProvider(SCRIPT)) as engine:
        generator = engine.string_generator(
            "Can 30 lamps be in Oslo within a week?", model=model, tools=[stock, days_to]
        )
        text, metadata = await generator.generate()
    print(text)
    print(f"tools: {', '.join(called)}; {metadata.tool_rounds} rounds, {metadata.api_calls} calls")

    assert text
    assert {"stock", "days_to"} <= set(called)
    assert metadata.tool_rounds >= 1
    assert metadata.api_calls == metadata.tool_rounds + 1, "each round is followed by an answer"


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
