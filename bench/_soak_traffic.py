"""The traffic of `soak.py`: what callers do, the rude ones among them, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import penstock
from penstock import Cancelled, Chunk, Complete, Config, Engine, Error, PenstockError, StreamHandle

WHOLE = "".join(f"word{number} " for number in range(1, 61))
"""The one right answer."""
MODELS = ("listed", "listed", "alone", "paced")
PRICE = {"input": 1.0, "output": 2.0}
LIMIT_S = 0.3
"""How long a silent provider is waited for here."""


def soak_engine(url: str, ledger: Path) -> Engine:
    """An engine with little patience, so that everything happens often, and with books."""
    kinds = {"first": "openai-chat", "second": "llamacpp", "third": "openai-chat"}
    providers: dict[str, dict[str, Any]] = {
        name: {"kind": kind, "url": url, "auth_token": "k"} for name, kind in kinds.items()
    }
    # Few places, so that callers wait in line and some of them leave it.
    providers["third"]["max_concurrent"] = 4
    models = {
        "listed": ["first/mixed", "second/mixed", "third/healthy"],
        "alone": ["first/mixed-alone"],
        "paced": ["third/paced"],
        "tools": ["first/mixed-tools"],
        "vectors": ["first/mixed-vectors"],
    }
    limits = (
        "request_timeout_s",
        "body_timeout_s",
        "first_token_timeout_s",
        "stream_idle_timeout_s",
        "keep_alive_timeout_s",
    )
    return penstock.open(
        Config.model_validate(
            {
                "providers": providers,
                "models": {
                    name: {"targets": targets, "prices": dict.fromkeys(targets, PRICE)}
                    for name, targets in models.items()
                },
                "storage": {"url": f"sqlite:///{ledger}"},
                "budgets": {"total": {"limit_usd": 1_000_000, "period": "forever"}},
                "pool": {
                    **dict.fromkeys(limits, LIMIT_S),
                    "slowest_tokens_per_s": 1e6,
                    "hedge_quantile": 0.9,
                    "longest_retry_wait_s": LIMIT_S,
                    "breaker_cooldown_s": LIMIT_S,
                },
            }
        )
    )


class Traffic:
    """Callers of an engine; each does one thing after the other until it is time to end.

    Tool loops have an engine of their own, for they make as many requests as they need, and those
    of the other are counted.
    """

    def __init__(self, engine: Engine, tool_engine: Engine, seed: str) -> None:
        self.engine = engine
        self.tool_engine = tool_engine
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How often each kind of caller has ended in which way."""
        self.asked = 0
        """Requests, apart from those of tool loops."""
        self._seed = seed
        self._numbers = itertools.count()
        self._kinds: tuple[tuple[str, Callable[[random.Random], Awaitable[str]]], ...] = (
            ("whole", self._whole),
            ("streamed", self._streamed),
            ("streamed, read slowly", self._read_slowly),
            ("cancelled by id", self._cancelled_by_id),
            ("cancelled as a task", self._cancelled_task),
            ("left in mid-stream", self._left),
            ("abandoned handle", self._abandoned),
            ("limit of its own", self._limited),
            ("tools", self._tools),
            ("tools, streamed and left", self._tools_left),
            ("embeddings", self._embedded),
        )

    @property
    def callers(self) -> int:
        """How many things have been done."""
        return sum(self.outcomes.values())

    async def caller(self, until: float) -> None:
        """Go on until the loop's clock says so."""
        chance = random.Random(f"{self._seed}/{next(self._numbers)}")
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            kind, do = chance.choice(self._kinds)
            try:
                outcome = await do(chance)
            except PenstockError as error:
                outcome = type(error).__name__
            self.outcomes[kind, outcome] += 1

    async def _whole(self, chance: random.Random) -> str:
        self.asked += 1
        model = chance.choice(MODELS)
        result = await self.engine.create_message("Say it.", max_tokens=99, model=model)
        return _judged(result.text)

    async def _stream(self, chance: random.Random, request_id: str | None = None) -> StreamHandle:
        self.asked += 1
        model = chance.choice(MODELS)
        return await self.engine.create_message_stream(
            "Say it.", max_tokens=99, model=model, request_id=request_id
        )

    async def _streamed(self, chance: random.Random) -> str:
        return await _read(await self._stream(chance))

    async def _read_slowly(self, chance: random.Random) -> str:
        return await _read(await self._stream(chance), lambda: chance.random() * 0.01)

    async def _cancelled_by_id(self, chance: random.Random) -> str:
        name = f"soak-{next(self._numbers)}"
        reading = asyncio.create_task(self._read_named(chance, name))
        await asyncio.sleep(chance.random() * 0.1)
        await self.engine.cancel_request(name)
        return await reading

    async def _read_named(self, chance: random.Random, name: str) -> str:
        return await _read(await self._stream(chance, name))

    async def _cancelled_task(self, chance: random.Random) -> str:
        do = chance.choice((self._whole, self._streamed, self._tools, self._embedded))
        # A luck of its own, for it is drawn from whenever the task gets to it.
        task = asyncio.create_task(_awaited(do(random.Random(chance.random()))))
        await asyncio.sleep(chance.random() * 0.1)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return "cancelled"

    async def _left(self, chance: random.Random) -> str:
        async with await self._stream(chance) as stream:
            await _some(stream, chance)
        return "left"

    async def _abandoned(self, chance: random.Random) -> str:
        stream = await self._stream(chance)
        await _some(stream, chance)
        del stream
        return "left"

    async def _limited(self, chance: random.Random) -> str:
        self.asked += 1
        limit, model = chance.uniform(0.001, 0.2), chance.choice(MODELS)
        if chance.random() < 0.5:
            result = await self.engine.create_message(
                "Say it.", max_tokens=99, model=model, timeout=limit
            )
            return _judged(result.text)
        return await _read(
            await self.engine.create_message_stream(
                "Say it.", max_tokens=99, model=model, timeout=limit
            )
        )

    async def _tools(self, chance: random.Random) -> str:
        tools = [chance.choice((look, look_in_a_thread))]
        generator = self.tool_engine.string_generator("Look.", tools=tools, model="tools")
        text, _ = await generator.generate()
        return _judged(text)

    async def _tools_left(self, chance: random.Random) -> str:
        generator = self.tool_engine.string_generator("Look.", tools=[look], model="tools")
        async with generator.stream() as stream:
            async for _ in stream:
                if chance.random() < 0.05:
                    break
        return "left"

    async def _embedded(self, chance: random.Random) -> str:
        self.asked += 1
        texts = ["a text"] * chance.randint(1, 5)
        result = await self.engine.embed(texts, model="vectors")
        return "answered" if len(result.vectors) == len(texts) else WRONG


WRONG = "WRONG ANSWER"


async def look() -> str:
    """See what there is."""
    await asyncio.sleep(0.001)
    return "nothing"


def look_in_a_thread() -> str:
    """See what there is."""
    return "nothing"


def _judged(text: str) -> str:
    return "answered" if text == WHOLE else WRONG


async def _awaited(work: Awaitable[str]) -> str:
    return await work


async def _read(stream: StreamHandle, pause: Callable[[], float] | None = None) -> str:
    """Read to the end, of which there is to be one."""
    pieces: list[str] = []
    ends: list[str] = []
    async for event in stream:
        if isinstance(event, Chunk):
            pieces.append(event.text)
        elif isinstance(event, Complete):
            ends.append(_judged("".join(pieces)))
        elif isinstance(event, Error):
            ends.append(type(event.error).__name__)
        elif isinstance(event, Cancelled):
            ends.append("cancelled")
        if pause is not None:
            await asyncio.sleep(pause())
    return ends[0] if len(ends) == 1 else f"{len(ends)} ENDS"


async def _some(stream: StreamHandle, chance: random.Random) -> None:
    """Read none, some or all of it."""
    with contextlib.suppress(StopAsyncIteration):
        for _ in range(chance.randint(0, 80)):
            await anext(stream)
