"""Prompts of usual sizes, and the way of a request to its ranking, for `route_latency.py`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from _support import ROOT

from penstock import Config
from penstock.contract.exchange import SamplingRequest, Usage
from penstock.contract.messages import Message, Text
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.engine.build.budget import price_book
from penstock.engine.build.routing import table_of, ways_of
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.prompt_features import Reader
from penstock.routing.learning.router import LearnedRouter
from penstock.routing.learning.service import Learning
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from penstock.routing.ranking import AllAvailable
from penstock.routing.router import TargetTable, parse_target

MODEL = "assistant"
_NAMES = (
    *("gpt-6-astra", "gpt-6-luna", "gpt-6.1-sol", "claude-haiku-5-5", "claude-sonnet-5"),
    *("gemini-2.5-pro", "gemini-2.5-flash", "mistral-large", "qwen-3-32b", "llama-4-70b"),
)
_SIZES = (5.95, 0.75)
"""Mean and deviation of the logarithm of a prompt's characters, as in two public sets of prompts:
half have less than 380, one in ten has more than 1,000, one in a hundred more than 2,200."""
_NANOS = 1e9


def config() -> Config:
    """A model that learns, with ten targets at ten providers, each with a price."""
    targets = [f"p{number}/{name}" for number, name in enumerate(_NAMES)]
    prices = {
        target: {"input": 0.1 * number, "output": 0.5 * number}
        for number, target in enumerate(targets, 1)
    }
    model = {"targets": targets, "routing": "learned", "prices": prices}
    return Config.model_validate(
        {
            "providers": {f"p{number}": {"kind": "fake"} for number in range(len(targets))},
            "models": {MODEL: model},
        }
    )


TARGETS = [parse_target(target) for target in config().models[MODEL].targets]


def prompts(seed: int) -> Iterator[str]:
    """Pieces of our own documentation, of the sizes of prompts, no two the same."""
    dice = random.Random(seed)
    pages = [page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))]
    words = re.findall(r"\S+\s*", "\n".join(pages))
    while True:
        size = min(20_000, round(dice.lognormvariate(*_SIZES)))
        start = dice.randrange(len(words) - size)
        yield f"{''.join(words[start : start + size // 3])[:size]} {dice.randrange(10**9)}"


def learning_with(router: LearnedRouter, maker: FeatureMaker, folder: Path) -> Learning:
    """What an engine learns with, and this router in it."""
    store = SqliteOutcomes(folder / "outcomes.db")
    return Learning([MODEL], lambda model: router, Reader(maker), store)


def table_with(learning: Learning, window: int | None = None) -> TargetTable:
    """What an engine asks for the order of the targets, each of which takes so many tokens."""
    settings = config()
    book = price_book(settings)

    def price(target: Target, read: int, written: int) -> float | None:
        cost = book.cost(target, Usage(input_tokens=read, output_tokens=written))
        return None if cost is None else cost.nanos / _NANOS

    able = Capabilities(context_window=window)
    ways = ways_of(settings, lambda target: able, price, learning=learning)
    return table_of(settings, AllAvailable(), ways, model_files=False)


def request(prompt: str) -> SamplingRequest:
    """A request with this prompt."""
    messages = (Message("user", (Text(prompt),)),)
    return SamplingRequest(messages=messages, max_tokens=500, model=MODEL)
