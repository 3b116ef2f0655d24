"""What a call is billed for that ends without an answer, or whose answer counts only in part.

The providers are servers on loopback, and the entries are read from a ledger in a file.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import (
    AllTargetsFailed,
    Engine,
    PenstockError,
    ProviderTimeout,
    Result,
    StreamInterrupted,
    Usage,
    user,
)
from penstock.budget.entries import Entry
from penstock.budget.pricing.price_book import PriceBook
from penstock.budget.pricing.worst_case import worst_case
from penstock.config.settings import Config
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.engine.build.budget import price_book
from penstock.testing import FakeProvider, FakeReply
from penstock.tokens import estimate_request, estimate_text, family_of
from tests.budget.test_engine_books import INPUT, OUTPUT, PRICE, bookkeeper
from tests.faults.answer import PROMPT_TOKENS, first_words
from tests.faults.server import FaultServer
from tests.support.raw import Handler, Peer, RawServer, settle, whole
from tests.unit.providers.anthropic.message_wire import USAGE, body, text

AMPLE_S, LIMIT_S = 20.0, 1.0
"""The shorter one is met, though not before a busy machine has sent the request."""
JSON = "content-type: application/json\r\n"
PROMPT = "Say it."


@asynccontextmanager
async def books_at(
    folder: Path,
    url: str,
    model: str,
    *,
    kind: str = "openai-chat",
    own_price: bool = True,
    **pool: Any,
) -> AsyncGenerator[Engine]:
    target = f"p/{model}"
    prices = {target: PRICE} if own_price else {}
    config = {
        "providers": {"p": {"kind": kind, "url": url, "auth_token": "k"}},
        "models": {"m": {"targets": [target], "prices": prices}},
        "pool": {"retries": 0, "slowest_tokens_per_s": 1e6, **pool},
        "storage": {"url": f"sqlite:///{folder / 'books.db'}"},
    }
    async with Engine(Config.model_validate(config)) as engine:
        yield engine


async def whole_answer(engine: Engine, timeout: float | None = None, model: str = "m") -> Result:
    return await engine.create_message(PROMPT, max_tokens=99, model=model, timeout=timeout)


async def stream(engine: Engine, timeout: float | None = None, model: str = "m") -> Result:
    asked = engine.create_message_stream(PROMPT, max_tokens=99, model=model, timeout=timeout)
    async with await asked as handle:
        return await handle.result()


Ask = Callable[..., Awaitable[Result]]
BOTH = pytest.mark.parametrize("ask", [whole_answer, stream])


async def entries(engine: Engine) -> list[Entry]:
    """What closes the holds; nothing may be held any more."""
    ledger = await engine.ledger()
    assert not await ledger.verify()
    every = [each async for each in ledger.entries()]
    found = [each for each in every if each.kind != "hold"]
    assert {each.kind for each in found} <= {"settle", "release"}
    assert {each.hold for each in found} == {each.id for each in every if each.kind == "hold"}
    return found


def prompt_tokens(model: str) -> int:
    request = SamplingRequest(messages=(user(PROMPT),), max_tokens=99)
    return estimate_request(request, model)


def is_the_prompt(entry: Entry) -> bool:
    """Whether it is for what was sent, and for no word of an answer."""
    assert entry.model is not None
    read = prompt_tokens(entry.model)
    assert (entry.kind, entry.estimated) == ("settle", True)
    assert (entry.input_tokens, entry.output_tokens) == (read, 0)
    return entry.amount_nanos == read * INPUT


# ---- nobody has said anything


@BOTH
async def test_an_answer_that_is_waited_for_in_vain_costs_its_prompt(
    tmp_path: Path, ask: Ask
) -> None:
    async with (
        FaultServer() as server,
        books_at(tmp_path, server.url, "silence", request_timeout_s=LIMIT_S) as engine,
    ):
        with pytest.raises(ProviderTimeout):
            await ask(engine)
        (entry,) = await entries(engine)
        assert is_the_prompt(entry)
        stats = await engine.usage_stats()
        assert stats.total.cost_nanos == entry.amount_nanos


@BOTH
async def test_so_does_one_whose_own_limit_runs_out(tmp_path: Path, ask: Ask) -> None:
    async with (
        FaultServer() as server,
        books_at(tmp_path, server.url, "silence", request_timeout_s=AMPLE_S) as engine,
    ):
        with pytest.raises(ProviderTimeout, match="own limit"):
            await ask(engine, timeout=3 * LIMIT_S)
        (entry,) = await entries(engine)
        assert is_the_prompt(entry)


@BOTH
async def test_so_does_one_that_is_cancelled_once_it_was_sent(tmp_path: Path, ask: Ask) -> None:
    async with (
        FaultServer() as server,
        books_at(tmp_path, server.url, "silence", request_timeout_s=AMPLE_S) as engine,
    ):
        asking = asyncio.ensure_future(ask(engine))
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (entry,) = await entries(engine)
        assert is_the_prompt(entry)


@BOTH
@pytest.mark.parametrize("way", ["cut.0", "reset.0"])
async def test_so_does_one_whose_connection_breaks(tmp_path: Path, ask: Ask, way: str) -> None:
    async with FaultServer() as server, books_at(tmp_path, server.url, way) as engine:
        with pytest.raises(PenstockError):
            await ask(engine)
        (entry,) = await entries(engine)
        assert is_the_prompt(entry)


def silent_first(folder: Path, url: str, **more: Any) -> Config:
    """Two targets, of which the first never says anything."""
    targets = ["p/silence", "q/healthy"]
    return Config.model_validate(
        {
            "providers": {
                name: {"kind": "openai-chat", "url": url, "auth_token": "k"} for name in "pq"
            },
            "models": {"m": {"targets": targets, "prices": dict.fromkeys(targets, PRICE)}},
            "pool": {"retries": 0, "slowest_tokens_per_s": 1e6, "request_timeout_s": LIMIT_S},
            "storage": {"url": f"sqlite:///{folder / 'books.db'}"},
            **more,
        }
    )


async def test_each_target_that_was_silent_has_its_prompt_on_the_bill(tmp_path: Path) -> None:
    async with FaultServer() as server, Engine(silent_first(tmp_path, server.url)) as engine:
        result = await engine.create_message(PROMPT, max_tokens=99, model="m")
        silent, answered, further = await entries(engine)
        assert is_the_prompt(silent)
        assert (answered.provider, answered.estimated) == ("q", False)
        assert further.kind == "release"
        assert result.metadata.cost_nanos == silent.amount_nanos + answered.amount_nanos


@pytest.mark.parametrize(("room", "answered"), [(0, True), (-1, False)])
async def test_after_a_silent_target_only_what_it_took_is_held_anew(
    tmp_path: Path, room: int, answered: bool
) -> None:
    """There is money for one call, and to the nano-dollar for the prompt that was sent in vain."""
    async with FaultServer() as server:
        book = price_book(silent_first(tmp_path, server.url))
        request = SamplingRequest(messages=(user(PROMPT),), max_tokens=99)
        most = worst_case(request, Target("q", "healthy"), Capabilities(), book)
        assert most is not None
        limit = most + prompt_tokens("silence") * INPUT + room
        budgets = {"total": {"limit_usd": limit / 1e9, "period": "forever"}}
        async with Engine(silent_first(tmp_path, server.url, budgets=budgets)) as engine:
            if answered:
                await whole_answer(engine)
            else:
                with pytest.raises(AllTargetsFailed, match="budget 'total'"):
                    await whole_answer(engine)
            assert [each.seen.model for each in server.requests] == [
                "silence",
                *(["healthy"] if answered else []),
            ]
            (balance,) = await engine.budgets()
            assert (balance.held_nanos, balance.overdrawn) == (0, False)
            assert is_the_prompt((await entries(engine))[0])


# ---- the provider has said no, or was never asked


@BOTH
@pytest.mark.parametrize(
    "way",
    ["500.forever", "429.forever", "refused.bad", "refused.authentication", "error-in-200"],
)
async def test_what_the_provider_refuses_costs_nothing(tmp_path: Path, ask: Ask, way: str) -> None:
    async with FaultServer() as server, books_at(tmp_path, server.url, way) as engine:
        with pytest.raises(PenstockError):
            await ask(engine)
        assert server.requests
        (entry,) = await entries(engine)
        assert (entry.kind, entry.amount_nanos) == ("release", 0)


@BOTH
async def test_what_nobody_could_be_sent_costs_nothing(tmp_path: Path, ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with books_at(tmp_path, f"http://127.0.0.1:{port}/v1", "x") as engine:
        with pytest.raises(PenstockError, match="cannot connect"):
            await ask(engine)
        (entry,) = await entries(engine)
        assert entry.kind == "release"


@BOTH
async def test_what_is_cancelled_on_the_way_costs_nothing(tmp_path: Path, ask: Ask) -> None:
    """The server takes the connection and never says that it is there: TLS does not begin."""
    connected = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.reader.readexactly(1)
        connected.set()
        await peer.gone()

    async with RawServer(silent) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        async with books_at(tmp_path, url, "x", connect_timeout_s=AMPLE_S) as engine:
            asking = asyncio.ensure_future(ask(engine))
            await connected.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            (entry,) = await entries(engine)
            assert entry.kind == "release"


# ---- several calls


def anthropic_says(*bodies: bytes | None) -> Handler:
    """Answers one request after the other, on any connection; None: never."""
    left = list(bodies)

    async def handle(peer: Peer) -> None:
        while await peer.request() is not None:
            answer = left.pop(0)
            if answer is None:
                await peer.gone()
                return
            await peer.send(whole(answer, headers=JSON))

    return handle


def paused(read: int, written: int) -> bytes:
    used = {**USAGE, "input_tokens": read, "output_tokens": written}
    used |= {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return body(text("Hello "), stop="pause_turn", usage=used)


HAIKU = Target("p", "claude-haiku-5-5")
"""It costs more above 100,000 tokens."""


async def test_each_round_has_the_price_of_its_own_length(tmp_path: Path) -> None:
    book = PriceBook({"p": "anthropic"})
    alone = book.cost(HAIKU, Usage(60_000, 10))
    together = book.cost(HAIKU, Usage(120_000, 20))
    assert alone is not None
    assert together is not None
    assert 2 * alone.nanos < together.nanos
    last = paused(60_000, 10).replace(b"pause_turn", b"end_turn")
    async with (
        RawServer(anthropic_says(paused(60_000, 10), last)) as server,
        books_at(tmp_path, server.url, HAIKU.model, kind="anthropic", own_price=False) as engine,
    ):
        result = await engine.create_message(PROMPT, max_tokens=99, model="m")
        assert result.usage.input_tokens == 120_000
        assert result.metadata.cost_nanos == 2 * alone.nanos
        found = await entries(engine)
        assert [entry.amount_nanos for entry in found] == [alone.nanos] * 2
        assert not any(entry.estimated for entry in found)
        (row,) = await (await engine.ledger()).usage("model")
        assert (row.requests, row.amount_nanos) == (1, 2 * alone.nanos)


async def test_rounds_that_were_answered_are_paid_though_a_later_one_is_not(tmp_path: Path) -> None:
    async with (
        RawServer(anthropic_says(paused(50, 10), paused(70, 20), None)) as server,
        books_at(
            tmp_path, server.url, "claude-x", kind="anthropic", request_timeout_s=LIMIT_S
        ) as engine,
    ):
        with pytest.raises(ProviderTimeout):
            await whole_answer(engine)
        first, second, third = await entries(engine)
        assert (first.amount_nanos, first.estimated) == (50 * INPUT + 10 * OUTPUT, False)
        assert (second.amount_nanos, second.estimated) == (70 * INPUT + 20 * OUTPUT, False)
        assert (third.output_tokens, third.estimated) == (0, True)
        assert third.input_tokens is not None
        # What was said in the rounds before is read again.
        assert third.input_tokens > prompt_tokens("claude-x")


async def test_batches_that_were_answered_are_paid_though_others_are_not(tmp_path: Path) -> None:
    """Of three batches one is answered, one is refused, and one hangs."""
    texts = [f"text {number}" for number in range(2 * 2048 + 1)]
    answered, hanging = asyncio.Event(), asyncio.Event()

    async def handle(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            asked = msgspec.json.decode(request.body)["input"]
            if "text 0" in asked:
                vectors = [{"index": at, "embedding": [1.0]} for at in range(len(asked))]
                said = {"data": vectors, "model": "e", "usage": {"prompt_tokens": 4096}}
                await peer.send(whole(msgspec.json.encode(said), headers=JSON))
                answered.set()
            elif "text 2048" in asked:
                # One that was never sent would cost nothing, and one half read is not answered.
                await answered.wait()
                await hanging.wait()
                await settle()
                await peer.send(whole(b"{}", status="400 Bad Request", headers=JSON))
            else:
                hanging.set()
                await peer.gone()

    async with RawServer(handle) as server, books_at(tmp_path, server.url, "e") as engine:
        with pytest.raises(PenstockError):
            await engine.embed(texts, model="m")
        exact, guess = sorted(await entries(engine), key=lambda entry: entry.estimated)
        assert (exact.input_tokens, exact.amount_nanos) == (4096, 4096 * INPUT)
        assert not exact.estimated
        tail = estimate_text(texts[-1], family_of("e"))
        assert (guess.input_tokens, guess.amount_nanos) == (tail, tail * INPUT)
        assert guess.estimated


# ---- half a count


@BOTH
async def test_what_the_provider_does_not_count_of_an_answer_is_estimated(
    tmp_path: Path, ask: Ask
) -> None:
    said = "one two three four five six"
    reply = FakeReply(text=said, usage=Usage(7, None))
    async with bookkeeper(tmp_path, FakeProvider([reply])) as engine:
        result = await ask(engine, model="default")
        written = estimate_text(said, family_of("echo"))
        (entry,) = await entries(engine)
        assert (entry.input_tokens, entry.output_tokens) == (7, written)
        assert (entry.amount_nanos, entry.estimated) == (7 * INPUT + written * OUTPUT, True)
        assert result.metadata.cost_nanos == entry.amount_nanos


async def test_a_prompt_that_is_not_counted_is_estimated(tmp_path: Path) -> None:
    reply = FakeReply(text="Hello", usage=Usage(None, 3))
    async with bookkeeper(tmp_path, FakeProvider([reply])) as engine:
        await engine.create_message(PROMPT, max_tokens=99)
        (entry,) = await entries(engine)
        assert (entry.input_tokens, entry.output_tokens) == (prompt_tokens("echo"), 3)
        assert entry.estimated


# ---- what is said about it


async def test_the_holds_of_all_attempts_count_when_one_asks_whether_they_were_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = FakeReply(text=first_words(60), error=StreamInterrupted("cut"))
    count = FakeReply(text=first_words(60), usage=Usage(PROMPT_TOKENS, 60))

    class Anew(FakeProvider):
        """Begins from the beginning, so that each target says, and bills, all of it."""

        def capabilities(self, model: str) -> Capabilities:
            return msgspec.structs.replace(super().capabilities(model), prefill=False)

    first, second = Anew([cut], name="first"), Anew([count], name="second")
    async with bookkeeper(tmp_path, first, second) as engine:
        with caplog.at_level(logging.WARNING, "penstock"):
            async with await engine.create_message_stream("Hi", max_tokens=70) as handle:
                await handle.result()
        paid = [entry for entry in await entries(engine) if entry.kind == "settle"]
        holds = [e async for e in (await engine.ledger()).entries() if e.kind == "hold"]
        assert len(holds) == 2
        assert sum(entry.amount_nanos for entry in paid) > holds[0].amount_nanos
        assert "were held for it" not in caplog.text
