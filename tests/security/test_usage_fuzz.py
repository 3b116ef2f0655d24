"""Impossible token counts of every dialect, whole and streamed, on a real ledger.

No count may lose an answer, make a counter fall, free a key's window, leave a hold behind, or spend
more of a budget than the last answer that fits.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import struct
from binascii import crc32
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.budget.ledger import Ledger
from penstock.config.settings import Config
from penstock.contract.errors import BudgetExceeded
from penstock.contract.exchange import Usage
from penstock.contract.messages import Audio
from penstock.engine.engine import Engine
from penstock.keys.policy import KeyTerms
from penstock.keys.rate_limit import Window
from penstock.keys.records import Key
from penstock.telemetry.exporters.prometheus import PrometheusMetrics
from tests.support.sound import wav
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.bedrock import Bedrock
from tests.support.wire.dialect import Frame, WireDialect
from tests.support.wire.gemini import Gemini
from tests.support.wire.ollama import Ollama
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.scenario import Scenario, Tokens
from tests.support.wire.seen import Seen, SeenEmbedding
from tests.support.wire.server import WireServer

DIALECTS: Mapping[str, WireDialect] = {
    "openai-chat": OpenAIChat(),
    "openai": OpenAIResponses(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
    "ollama": Ollama(),
    "bedrock": Bedrock(),
}
TRANSCRIBING = ("openai-chat", "openai")
PRICE = {"input": 1.0, "output": 10.0, "cached_input": 0.5}
MOST_TOKENS = 20_000_000
_COUNT = re.compile(rb'("[a-zA-Z_]*(?:[tT]oken|[cC]ount)[a-zA-Z_]*": ?)\d+')
_PRELUDE = struct.Struct(">II")
HOSTILE = (
    "-1", "0", "1", "7", "2000", "65557", "131073", "1000000", "1000000000", "2147483648",
    "9223372036854775808", "-9223372036854775809", "1e400", "1" + "0" * 400, "9" * 5000,
    "1.5", "-0.0", "null", "true", '"7"', "[]", "{}",
)  # fmt: skip


class Miscounting:
    """A dialect whose every count is the next of these; JSON texts, which stand as they are."""

    def __init__(self, dialect: WireDialect) -> None:
        self.wire = dialect
        self.counts: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)

    def answer(self, scenario: Scenario, seen: Seen) -> bytes:
        return self._miscounted(self.wire.answer(scenario, seen), self._next())

    def stream(self, scenario: Scenario, seen: Seen) -> Sequence[Frame]:
        counts = self._next()
        return [
            Frame(self._framed(frame.data, counts), frame.piece, frame.terminal)
            for frame in self.wire.stream(scenario, seen)
        ]

    def vectors(self, seen: SeenEmbedding) -> bytes:
        return self._miscounted(self.wire.vectors(seen), self._next())

    def transcript(self, scenario: Scenario) -> bytes:
        assert isinstance(self.wire, OpenAIChat | OpenAIResponses)
        return self._miscounted(self.wire.transcript(scenario), self._next())

    def _next(self) -> Iterator[str]:
        while True:
            yield from self.counts

    def _miscounted(self, body: bytes, counts: Iterator[str]) -> bytes:
        return _COUNT.sub(lambda found: found[1] + next(counts).encode(), body)

    def _framed(self, data: bytes, counts: Iterator[str]) -> bytes:
        if not isinstance(self.wire, Bedrock):
            return self._miscounted(data, counts)
        # A message has its length and checksums around the payload.
        _, size = _PRELUDE.unpack_from(data)
        headers, payload = data[12 : 12 + size], data[12 + size : -4]
        payload = self._miscounted(payload, counts)
        lengths = _PRELUDE.pack(12 + size + len(payload) + 4, size)
        message = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
        return message + struct.pack(">I", crc32(message))


class Gateway:
    """An engine on one miscounting server, and what its books and counters have said so far."""

    def __init__(self, engine: Engine, server: WireServer, dialect: Miscounting) -> None:
        self.engine = engine
        self.server = server
        self.dialect = dialect
        self.bedrock = isinstance(dialect.wire, Bedrock)
        self.metrics = PrometheusMetrics()
        key = Key(name="k", hashes=(), tokens_per_minute=10**12)
        # A clock that stands still: nothing leaves the window.
        self.terms = KeyTerms(key, {}, windows=lambda _, limit, before: Window(limit, lambda: 0.0))
        self._counters: dict[str, float] = {}
        self._window = 0
        self._used = 0
        engine.hooks.subscribe(self.metrics)
        server.improvise = lambda _: Scenario(
            text=("Hello",), reasoning=("Hm",), tokens=Tokens(9, 7, 2, 1)
        )

    async def check(self, counts: Sequence[str]) -> None:
        self.dialect.counts = counts
        try:
            await self._ask()
        finally:
            await self.audit()

    async def _ask(self) -> None:
        engine, caller = self.engine, self.terms.caller
        result = await engine.create_message("Hi", model="p/m", max_tokens=20, caller=caller)
        assert result.text == "Hello"
        possible(result.usage)
        async with await engine.create_message_stream(
            "Hi", model="p/m", max_tokens=20, caller=caller
        ) as stream:
            result = await stream.result()
        assert result.text == "Hello"
        possible(result.usage)
        if self.server.dialect.batch_limit is not None:
            name = "amazon.titan-embed-text-v2:0" if self.bedrock else "test-embedding"
            vectors = await engine.embed(["one", "two"], model=f"p/{name}", caller=caller)
            assert len(vectors.vectors) == 2
            possible(vectors.metadata.usage)

    async def hear(self, counts: Sequence[str]) -> None:
        """The same for a transcription; the budget must have room for it."""
        self.dialect.counts = counts
        self.server.play(Scenario(text=("Hello",), tokens=Tokens(9, 7)))
        sound = Audio(base64.b64encode(wav()).decode(), "audio/wav")
        result = await self.engine.transcribe(sound, model="p/whisper", caller=self.terms.caller)
        assert result.text == "Hello"
        possible(result.usage)
        await self.audit()

    async def audit(self) -> None:
        ledger = await self.engine.ledger()
        await ledger.tend()
        await settled(ledger)
        assert not await ledger.verify()
        (balance,) = await ledger.balances()
        entries = [entry async for entry in ledger.entries()]
        assert not balance.held_nanos
        bills = [entry.amount_nanos for entry in entries if entry.kind == "settle"]
        assert all(nanos >= 0 for nanos in bills)
        assert balance.used_nanos >= self._used
        assert balance.used_nanos <= balance.budget.limit_nanos + max(bills, default=0)
        self._used = balance.used_nanos
        for name, value in self._totals().items():
            assert value >= self._counters.get(name, 0.0), name
            self._counters[name] = value
        assert isinstance(self.terms.tokens, Window)
        assert self.terms.tokens.used >= self._window
        self._window = self.terms.tokens.used
        stats = await self.engine.usage_stats()
        possible(stats.total.usage, most=10**12)

    def _totals(self) -> dict[str, float]:
        return {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name.endswith("_total")
        }


async def settled(ledger: Ledger) -> None:
    """What is settled is written with what is written next."""
    for _ in range(100):
        if not sum(balance.held_nanos for balance in await ledger.balances()):
            return
        await asyncio.sleep(0.01)


def possible(usage: Usage, most: int = MOST_TOKENS) -> None:
    """No count is one that cannot be."""
    whole_input, whole_output = usage.input_tokens, usage.output_tokens
    parts = [usage.cached_input_tokens, usage.cache_write_tokens, usage.input_audio_tokens]
    for part in (whole_input, *parts):
        assert part is None or (type(part) is int and 0 <= part <= (whole_input or 0) <= most)
    for part in (whole_output, usage.reasoning_tokens, usage.output_image_tokens):
        assert part is None or (type(part) is int and 0 <= part <= (whole_output or 0) <= most)


@contextlib.asynccontextmanager
async def gateway_of(kind: str, folder: Path, limit_usd: float) -> AsyncGenerator[Gateway]:
    dialect = Miscounting(DIALECTS[kind])
    async with WireServer(cast(WireDialect, dialect)) as server:
        config = Config.model_validate(
            {
                "providers": {"p": {"kind": kind, "url": server.url, "auth_token": "key"}},
                # Written for the target, as some kinds are local and free otherwise.
                "models": {"m": {"targets": ["p/m"], "prices": {"p/m": PRICE}}},
                "prices": {"default": PRICE},
                "storage": {"url": f"sqlite:///{folder}/penstock.db"},
                "budgets": {"all": {"limit_usd": limit_usd}},
            }
        )
        async with Engine(config) as engine:
            yield Gateway(engine, server, dialect)


@pytest.mark.parametrize("kind", DIALECTS)
def test_no_count_breaks_an_answer_or_the_books(kind: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        gateway = runner.run(stack.enter_async_context(gateway_of(kind, tmp_path, 10_000.0)))

        @settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(st.sampled_from(HOSTILE) | st.integers().map(str), min_size=1, max_size=9))
        @example(["-1"])
        @example(["1" + "0" * 400])
        @example(["1e400"])
        @example(["20", "9", "40", "50"])
        def check(counts: list[str]) -> None:
            runner.run(gateway.check(counts))

        try:
            check()
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_budget_is_passed_by_one_answer_at_most(kind: str, tmp_path: Path) -> None:
    """Counts that are possible, and the highest of their kind; `audit` looks at the budget."""
    async with gateway_of(kind, tmp_path, 0.5) as gateway:
        refused = 0
        for _ in range(4):
            try:
                await gateway.check(["30000"])
            except BudgetExceeded:
                refused += 1
        assert refused >= 3


@pytest.mark.parametrize("kind", TRANSCRIBING)
async def test_no_count_breaks_a_transcript(kind: str, tmp_path: Path) -> None:
    async with gateway_of(kind, tmp_path, 10_000.0) as gateway:
        for count in HOSTILE:
            await gateway.hear([count])
            await gateway.hear(["3", count])
