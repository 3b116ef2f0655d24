"""What `engine.py` measures: engines on a ready provider or a wire, and work done either way."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import penstock
from penstock import Chunk, Config, Engine, PenstockError, SamplingRequest, Text, Usage, user
from penstock.contract.events import Finished
from penstock.contract.exchange import Reply
from penstock.contract.ports import Provider, ProviderStream
from penstock.testing import FakeProvider

Work: TypeAlias = Callable[[], Awaitable[object]]
REQUEST = SamplingRequest(messages=(user("Hello"),), max_tokens=99, model="m")
_PIECE = Chunk("word ")
_REPLY = Reply((Text("word"),), "m", "endTurn", Usage(9, 100))


class Ready(FakeProvider):
    """Has its answer ready, keeps nothing and does no I/O: all that is left to measure is ours.

    A stream brings one chunk at a time, which costs more than the many of a real network read.
    """

    def __init__(self, name: str, chunks: int = 0, *, taking_turns: bool = False) -> None:
        super().__init__(name=name)
        self.chunks = chunks
        self._taking_turns = taking_turns
        self.held: asyncio.Event | None = None
        """What a stream waits for after its first chunk, if anything."""

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        return _REPLY

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        for _ in range(self.chunks):
            if self._taking_turns:
                await asyncio.sleep(0)
            yield [_PIECE]
            if self.held is not None:
                await self.held.wait()
        yield [Finished(_REPLY)]


class Stamped(FakeProvider):
    """Another provider that tells when it last failed."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(name=inner.name)
        self._inner = inner
        self.capabilities = inner.capabilities
        self.failed_at = 0.0

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        try:
            async with contextlib.aclosing(self._inner.stream(model, request)) as batches:
                async for batch in batches:
                    yield batch
        except PenstockError:
            self.failed_at = time.perf_counter()
            raise


def ready_engine(targets: int = 1, chunks: int = 0, *, taking_turns: bool = False) -> Engine:
    """An engine whose model `m` has so many targets, all of them ready."""
    names = [f"p{number}" for number in range(targets)]
    engine = penstock.open(
        Config.model_validate(
            {
                "providers": {name: {"kind": "fake"} for name in names},
                "models": {"m": {"targets": [f"{name}/m" for name in names]}},
            }
        )
    )
    for name in names:
        engine.use(Ready(name, chunks, taking_turns=taking_turns))
    return engine


def wire_engine(url: str, *models: str) -> Engine:
    """An engine whose model `m` tries these models of the server, each once."""
    providers: dict[str, Any] = {
        f"p{number}": {"kind": "openai-chat", "url": url, "auth_token": "k"}
        for number in range(len(models))
    }
    targets = [f"{name}/{model}" for name, model in zip(providers, models, strict=True)]
    return penstock.open(
        Config.model_validate(
            {
                "providers": providers,
                "models": {"m": {"targets": targets}},
                # A target that is always down is to be asked all the same.
                "pool": {"retries": 0, "breaker_failures": 1_000_000},
            }
        )
    )


async def call(engine: Engine) -> None:
    result = await engine.create_message("Hello", max_tokens=99, model="m")
    assert result.text


async def call_for_long(engine: Engine) -> None:
    """Ask for an answer that may be long; with another target left, it is fetched as a stream."""
    result = await engine.create_message("Hello", max_tokens=4096, model="m")
    assert result.text


async def call_directly(engine: Engine) -> None:
    reply = await engine.provider("p0").generate("m", REQUEST)
    assert reply.text


async def stream(engine: Engine) -> None:
    asked = engine.create_message_stream("Hello", max_tokens=99, model="m")
    async with await asked as handle:
        chunks = 0
        async for event in handle:
            chunks += isinstance(event, Chunk)
    assert chunks


async def stream_directly(engine: Engine) -> None:
    chunks = 0
    async for batch in engine.provider("p0").stream("m", REQUEST):
        for event in batch:
            chunks += isinstance(event, Chunk)
    assert chunks


async def repeat(work: Work, times: int, at_once: int = 1) -> None:
    """Do the work so often, by so many tasks."""

    async def share(number: int) -> None:
        for _ in range(number, times, at_once):
            await work()

    await asyncio.gather(*(share(number) for number in range(at_once)))


async def failover_seconds(url: str, failing: int, times: int) -> tuple[list[float], list[float]]:
    """From the last error of the targets before it to the first event of the one that answers.

    Beside it, by turns: from a direct call of that one to its first event.
    """
    taken: list[float] = []
    direct: list[float] = []
    async with wire_engine(url, *["down"] * failing, "m") as engine:
        last = Stamped(engine.provider(f"p{failing - 1}"))
        good = engine.provider(f"p{failing}")
        engine.use(last)
        for turn in range(-10, times):
            # Both are read to their ends, so that the next ones find a connection.
            handle = await engine.create_message_stream("Hello", max_tokens=99, model="m")
            elapsed = time.perf_counter() - last.failed_at
            await handle.result()
            batches = good.stream("m", REQUEST)
            started = time.perf_counter()
            await anext(batches)
            alone = time.perf_counter() - started
            async for _ in batches:
                pass
            if turn >= 0:
                taken.append(elapsed)
                direct.append(alone)
    return taken, direct


def held_bytes(url: str | None, count: int, *, directly: bool, traced: bool) -> float:
    """Bytes for each of so many streams that are open at once; for a process of its own.

    Those that Python has allocated when `traced`, or else those that the process has got.
    """
    return asyncio.run(_held_bytes(url, count, directly=directly, traced=traced))


async def _held_bytes(url: str | None, count: int, *, directly: bool, traced: bool) -> float:
    async with wire_engine(url, "hold") if url else ready_engine(chunks=1) as engine:
        provider = engine.provider("p0")
        if isinstance(provider, Ready):
            provider.held = asyncio.Event()

        async def begin() -> object:
            if directly:
                batches = provider.stream("hold", REQUEST)
                await anext(batches)
                return batches
            return await engine.create_message_stream("Hello", max_tokens=99, model="m")

        # The first ones pay for what all share: imports, caches, the client.
        first = [await begin() for _ in range(20)]
        if traced:
            tracemalloc.start()
        gc.collect()
        before = _allocated(traced=traced)
        held = await asyncio.gather(*(begin() for _ in range(count)))
        gc.collect()
        grown = _allocated(traced=traced) - before
        tracemalloc.stop()
        await _close([*first, *held])
    return grown / count


async def _close(held: Sequence[Any]) -> None:
    for each in held:
        await each.aclose()


def _allocated(*, traced: bool) -> int:
    if traced:
        return tracemalloc.get_traced_memory()[0]
    return rss_bytes()


def rss_bytes() -> int:
    """The memory that this process has got from the system."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextlib.asynccontextmanager
async def with_history(past: int) -> AsyncGenerator[Engine]:
    """An engine that has answered so many requests already."""
    async with ready_engine() as engine:
        await repeat(lambda: call(engine), past)
        yield engine
