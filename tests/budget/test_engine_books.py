"""An engine that keeps books: held before, settled after, whatever becomes of the request."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sqlite3
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import BudgetExceeded, Caller, Chunk, Complete, ConfigurationError, Engine
from penstock.budget.reports import HistoryFilter
from penstock.config.settings import Config
from penstock.contract.errors import RateLimited, StreamInterrupted
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Usage,
    Vectors,
)
from penstock.contract.options import Capabilities
from penstock.testing import FakeProvider, FakeReply
from tests.support.background import until

PRICE = {"input": 1.0, "output": 10.0}
"""So a token of an answer costs ten thousand nano-dollars."""
INPUT, OUTPUT = 1_000, 10_000


@asynccontextmanager
async def bookkeeper(
    folder: Path, *providers: FakeProvider, **sections: Any
) -> AsyncGenerator[Engine]:
    names = [provider.name for provider in providers]
    targets = [f"{name}/echo" for name in names]
    config = {
        "providers": {name: {"kind": "fake"} for name in names},
        "models": {"default": {"targets": targets, "prices": dict.fromkeys(targets, PRICE)}},
        "pool": {"retries": 0},
        "storage": {"url": f"sqlite:///{folder / 'books.db'}"},
    }
    engine = Engine(Config.model_validate({**config, **sections}))
    for provider in providers:
        engine.use(provider)
    async with engine:
        yield engine


async def settled(engine: Engine) -> list[tuple[str | None, int, bool]]:
    """Who was paid how much, and whether that is an estimate."""
    ledger = await engine.ledger()
    assert not await ledger.verify()
    assert all(balance.held_nanos == 0 for balance in await ledger.balances())
    return await paid(engine)


async def test_an_answer_costs_what_its_provider_counts(tmp_path: Path) -> None:
    reply = FakeReply(text="Hello", usage=Usage(7, 3))
    async with bookkeeper(tmp_path, FakeProvider([reply])) as engine:
        result = await engine.create_message("Hi", max_tokens=9)
        assert result.metadata.cost_nanos == 7 * INPUT + 3 * OUTPUT
        assert result.metadata.as_dict()["cost_usd"] == "0.000037"
        assert await settled(engine) == [("fake", 37_000, False)]


async def test_a_stream_is_settled_to_the_providers_final_usage(tmp_path: Path) -> None:
    reply = FakeReply(text="one two three", usage=Usage(7, 3, cached_input_tokens=2))
    async with bookkeeper(tmp_path, FakeProvider([reply])) as engine:
        async with await engine.create_message_stream("Hi", max_tokens=9) as stream:
            end = [event async for event in stream][-1]
        assert isinstance(end, Complete)
        assert end.result.metadata.cost_nanos == 37_000
        assert await settled(engine) == [("fake", 37_000, False)]
        entry = (await (await engine.ledger()).history(HistoryFilter(kind="settle"))).entries[0]
        assert (entry.input_tokens, entry.output_tokens, entry.cached_tokens) == (7, 3, 2)
        assert (entry.request_id, entry.price_source) == (stream.request_id, "configuration")


@pytest.mark.parametrize("tokens", [-1, 10**15, 10**30])
async def test_an_impossible_count_is_charged_as_an_estimate(tmp_path: Path, tokens: int) -> None:
    broken = FakeReply(text="Hello", usage=Usage(tokens, 3))
    async with bookkeeper(tmp_path, FakeProvider([broken])) as engine:
        result = await engine.create_message("Hi", max_tokens=9)
        assert (result.text, result.usage.implausible) == ("Hello", True)
        (hold,) = (await (await engine.ledger()).history(HistoryFilter(kind="hold"))).entries
        ((provider, nanos, estimated),) = await settled(engine)
        assert (provider, estimated) == ("fake", True)
        assert 0 < nanos <= hold.amount_nanos


async def test_what_failed_without_a_word_costs_nothing(tmp_path: Path) -> None:
    busy = FakeProvider([RateLimited("slow")], name="busy")
    async with bookkeeper(tmp_path, busy, FakeProvider(["Hello"])) as engine:
        await engine.create_message("Hi", max_tokens=9)
        assert [provider for provider, _, _ in await settled(engine)] == ["fake"]


async def test_a_request_that_nobody_answers_is_released(tmp_path: Path) -> None:
    async with bookkeeper(tmp_path, FakeProvider([RateLimited("slow")])) as engine:
        with pytest.raises(RateLimited):
            await engine.create_message("Hi", max_tokens=9)
        assert await settled(engine) == []
        ledger = await engine.ledger()
        kinds = [entry.kind for entry in (await ledger.history()).entries]
        assert kinds == ["release", "hold"]


async def test_a_broken_stream_is_paid_for_at_both_targets(tmp_path: Path) -> None:
    broken = FakeReply(text="one two three ", error=StreamInterrupted("cut"))
    first, second = FakeProvider([broken], name="first"), FakeProvider(["four"], name="second")
    async with bookkeeper(tmp_path, first, second) as engine:
        async with await engine.create_message_stream("Count", max_tokens=99) as stream:
            result = await stream.result()
        cut, rest = await settled(engine)
        assert (cut[0], cut[2], rest[0], rest[2]) == ("first", True, "second", False)
        assert result.metadata.cost_nanos == cut[1] + rest[1]


async def test_an_answer_that_breaks_off_costs_no_more_than_was_held(tmp_path: Path) -> None:
    """An estimate of ours may be above the truth, and above what the answer could have."""
    broken = FakeReply(text="word " * 90, error=StreamInterrupted("cut"))
    budgets = {"total": {"limit_usd": 0.0011, "period": "forever"}}
    async with bookkeeper(tmp_path, FakeProvider([broken]), budgets=budgets) as engine:
        async with await engine.create_message_stream("Hi", max_tokens=100) as stream:
            with pytest.raises(StreamInterrupted):
                await stream.result()
        ((_, nanos, estimated),) = await settled(engine)
        (hold,) = (await (await engine.ledger()).history(HistoryFilter(kind="hold"))).entries
        assert estimated
        assert nanos <= hold.amount_nanos
        (balance,) = await engine.budgets()
        assert not balance.overdrawn


async def test_vectors_whose_provider_counts_nothing_are_billed_as_an_estimate(
    tmp_path: Path,
) -> None:
    class Uncounted(FakeProvider):
        async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
            return msgspec.structs.replace(await super().embed(model, request), usage=Usage())

    async with bookkeeper(tmp_path, Uncounted()) as engine:
        result = await engine.embed(["one two three"] * 10, model="fake/echo")
        ((_, nanos, estimated),) = await settled(engine)
        assert estimated
        assert nanos == result.metadata.cost_nanos
        assert nanos >= 10 * INPUT
        (hold,) = (await (await engine.ledger()).history(HistoryFilter(kind="hold"))).entries
        assert nanos <= hold.amount_nanos


@pytest.mark.parametrize("how", ["cancelled", "closed", "dropped"])
async def test_a_stream_that_is_left_is_paid_for_as_far_as_it_came(
    tmp_path: Path, how: str
) -> None:
    async with bookkeeper(tmp_path, FakeProvider(["one two three four five six"])) as engine:
        stream = await engine.create_message_stream("Count", max_tokens=99)
        assert await anext(stream) == Chunk("one ")
        if how == "cancelled":
            await engine.cancel_request(stream.request_id)
        elif how == "closed":
            await stream.aclose()
        else:
            del stream
            gc.collect()
        async with asyncio.timeout(30):
            # The ledger tells nobody; each look at it takes a moment.
            while not (found := await paid(engine)):
                pass
        ((_, nanos, estimated),) = found
        assert estimated
        assert 0 < nanos < 10 * OUTPUT


async def paid(engine: Engine) -> list[tuple[str | None, int, bool]]:
    ledger = await engine.ledger()
    page = await ledger.history(HistoryFilter(kind="settle"), oldest_first=True)
    return [(entry.provider, entry.amount_nanos, entry.estimated) for entry in page.entries]


async def test_exactly_as_many_are_admitted_as_there_is_money_for(tmp_path: Path) -> None:
    """Each may cost its one word of prompt by its bytes, and ten tokens of answer."""
    async with bookkeeper(tmp_path, FakeProvider(), storage={"url": "sqlite:///x.db"}) as engine:
        ledger = await engine.ledger()
        await engine.create_message("Hi", max_tokens=10)
        (hold,) = (await ledger.history(HistoryFilter(kind="hold"))).entries
    silent = asyncio.Event()

    class Slow(FakeProvider):
        async def generate(self, model: str, request: SamplingRequest) -> Reply:
            await silent.wait()
            return await super().generate(model, request)

    usd = 137 * hold.amount_nanos / 1e9
    budgets = {"total": {"limit_usd": round(usd, 9), "period": "forever"}}
    async with bookkeeper(tmp_path, Slow(), budgets=budgets) as engine:
        asking = [
            asyncio.create_task(engine.create_message("Hi", max_tokens=10)) for _ in range(1000)
        ]
        refused: list[asyncio.Task[Any]] = []
        async with asyncio.timeout(30):
            running = set(asking)
            while len(refused) < 1000 - 137:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                refused += done
        assert {type(task.exception()) for task in refused} == {BudgetExceeded}
        silent.set()
        await asyncio.wait(asking)
        assert sum(task.exception() is None for task in asking) == 137
        (balance,) = await engine.budgets()
        assert (balance.held_nanos, balance.overdrawn) == (0, False)


async def test_a_refusal_says_what_is_left_what_was_asked_and_until_when(tmp_path: Path) -> None:
    budgets = {"tiny": {"limit_usd": 0.000001, "period": "day"}}
    async with bookkeeper(tmp_path, provider := FakeProvider(), budgets=budgets) as engine:
        with pytest.raises(BudgetExceeded) as caught:
            await engine.create_message("Hi", max_tokens=99)
        assert provider.requests == []
        error = caught.value
        assert (error.budget, error.limit_nanos, error.remaining_nanos) == ("tiny", 1000, 1000)
        assert error.asked_nanos is not None
        assert error.asked_nanos >= 99 * OUTPUT
        assert error.request_id is not None
        assert "ask for fewer tokens, or raise it" in str(error)


async def test_a_target_whose_own_budget_is_spent_is_passed_over(tmp_path: Path) -> None:
    first, second = FakeProvider(name="first"), FakeProvider(name="second")
    budgets = {"first": {"limit_usd": 0.0, "provider": "first"}}
    async with bookkeeper(tmp_path, first, second, budgets=budgets) as engine:
        result = await engine.create_message("Hi", max_tokens=9)
        assert result.metadata.provider == "second"
        assert first.requests == []


async def test_hard_budgets_refuse_what_nobody_knows_the_price_of(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "providers": {"cloud": {"kind": "openai", "auth_token": "k", "url": "http://127.0.0.1:9"}},
        "models": {"default": {"targets": ["cloud/no-such-model"]}},
    }
    budgets = {"total": {"limit_usd": 5}}
    async with bookkeeper(tmp_path, **sections, budgets=budgets) as engine:
        with pytest.raises(BudgetExceeded, match="no price for cloud/no-such-model"):
            await engine.create_message("Hi", max_tokens=9)
    prices = {"default": {"input": 1.0, "output": 1.0}}
    async with bookkeeper(tmp_path, **sections, budgets=budgets, prices=prices) as engine:
        with pytest.raises(penstock.ProviderUnavailable):
            await engine.create_message("Hi", max_tokens=9)


async def test_keys_and_tags_have_budgets_of_their_own(tmp_path: Path) -> None:
    budgets = {
        "ci": {"limit_usd": 0.0, "key": "ci"},
        "guests": {"limit_usd": 0.0, "tags": {"team": "guests"}},
    }
    async with bookkeeper(tmp_path, FakeProvider(), budgets=budgets) as engine:
        await engine.create_message("Hi", max_tokens=9)
        await engine.create_message("Hi", max_tokens=9, caller=Caller(key="other"))
        with pytest.raises(BudgetExceeded, match="'ci'"):
            await engine.create_message("Hi", max_tokens=9, caller=Caller(key="ci"))
        with pytest.raises(BudgetExceeded, match="'guests'"):
            await engine.create_message("Hi", max_tokens=9, metadata={"team": "guests"})
        with pytest.raises(BudgetExceeded, match="'guests'"):
            # What the key says goes before what the request says of itself.
            await engine.create_message(
                "Hi", max_tokens=9, metadata={"team": "us"}, caller=Caller(tags={"team": "guests"})
            )


async def test_a_budget_by_hand_outlives_the_engine_and_may_be_taken_back(tmp_path: Path) -> None:
    async with bookkeeper(tmp_path, FakeProvider()) as engine:
        await engine.set_budget(0.0)
    async with bookkeeper(tmp_path, FakeProvider()) as engine:
        with pytest.raises(BudgetExceeded, match="'total'"):
            await engine.create_message("Hi", max_tokens=9)
        await engine.set_budget(None)
        await engine.create_message("Hi", max_tokens=9)
        with pytest.raises(ConfigurationError, match="limit_nanos=-1000000000"):
            await engine.set_budget(-1.0)
        with pytest.raises(ConfigurationError, match="period 'fortnight' is not known"):
            await engine.set_budget(1.0, period="fortnight")  # type: ignore[arg-type]


async def test_every_round_of_a_tool_loop_is_held_and_settled(tmp_path: Path) -> None:
    def now() -> str:
        """Tell the time."""
        return "noon"

    call = FakeReply(tool_uses=(penstock.ToolUse("c1", "now", {}),), usage=Usage(5, 5))
    script = [call, FakeReply(text="It is noon.", usage=Usage(9, 4))]
    async with bookkeeper(tmp_path, FakeProvider(script)) as engine:
        generator = engine.string_generator("What time is it?", tools=[now], max_tokens=50)
        _, metadata = await generator.generate()
        paid = [nanos for _, nanos, _ in await settled(engine)]
        assert paid == [5 * INPUT + 5 * OUTPUT, 9 * INPUT + 4 * OUTPUT]
        assert metadata.cost_nanos == sum(paid)


async def test_embeddings_and_transcripts_are_paid_for(tmp_path: Path) -> None:
    async with bookkeeper(tmp_path, FakeProvider(transcripts=["words"])) as engine:
        result = await engine.embed(["one two", "three"], model="fake/echo")
        assert result.metadata.cost_nanos == 3 * INPUT
        await engine.transcribe(b"RIFF\x00\x00\x00\x00WAVE", model="fake/echo")
        ledger = await engine.ledger()
        assert len((await ledger.history(HistoryFilter(kind="hold"))).entries) == 2
        assert all(balance.held_nanos == 0 for balance in await ledger.balances())


async def test_an_engine_without_books_still_knows_what_things_cost() -> None:
    targets = ("fake/echo",)
    config = Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {"default": {"targets": targets, "prices": {"fake/echo": PRICE}}},
        }
    )
    async with Engine(config) as engine:
        engine.use(FakeProvider([FakeReply(text="x", usage=Usage(1, 1))]))
        result = await engine.create_message("Hi", max_tokens=9)
        assert result.metadata.cost_nanos == INPUT + OUTPUT
        with pytest.raises(ConfigurationError, match=r"keeps no ledger: write \[storage\]"):
            await engine.budgets()


async def test_an_engine_that_is_closed_in_mid_stream_settles_first(tmp_path: Path) -> None:
    async with bookkeeper(tmp_path, FakeProvider(["one two three four"])) as engine:
        stream = await engine.create_message_stream("Count", max_tokens=99)
        await anext(stream)
    async with bookkeeper(tmp_path, FakeProvider()) as engine:
        ((_, nanos, estimated),) = await settled(engine)
        assert nanos > 0
        assert estimated


def test_a_limit_below_a_nano_dollar_is_named() -> None:
    config = Config.model_validate({"budgets": {"tiny": {"limit_usd": 1e-10}}})
    with pytest.raises(ConfigurationError, match=r"budgets\.tiny\.limit_usd: .* nine decimals"):
        Engine(config)


def writers() -> int:
    return sum(thread.name == "penstock-ledger" for thread in threading.enumerate())


async def test_a_request_that_leaves_while_the_ledger_is_opened_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    """Cancelled at each of the awaits on the way, one after the other."""
    before = writers()
    reached = 0
    answered = False
    while not answered:
        async with bookkeeper(tmp_path / str(reached), FakeProvider()) as engine:
            asking = engine.create_message("Hi", max_tokens=9)
            answered = await cancelled_after(asking.__await__(), reached)
        # One whose opening was cut short ends by itself.
        await until(lambda: writers() == before)
        reached += 1
    assert reached > 3


async def cancelled_after(asking: Generator[Any, None, Any], steps: int) -> bool:
    """Run a call up to its wait of this number, and cancel it there; whether it had ended."""
    task = asyncio.ensure_future(_Steps(asking, steps))
    await asyncio.wait({task})
    return not task.cancelled()


class _Steps:
    def __init__(self, asking: Generator[Any, None, Any], steps: int) -> None:
        self._asking = asking
        self._steps = steps

    def __await__(self) -> Generator[Any, None, None]:
        thrown: BaseException | None = None
        for step in itertools.count():
            try:
                waited = next(self._asking) if thrown is None else self._asking.throw(thrown)
            except StopIteration:
                return
            if step == self._steps and (task := asyncio.current_task()) is not None:
                # It is heard when this wait begins.
                task.cancel()
            try:
                yield waited
                thrown = None
            except BaseException as error:  # noqa: BLE001 - it is for the call to hear
                thrown = error


async def test_a_closed_engine_opens_no_ledger_again(tmp_path: Path) -> None:
    before = writers()
    async with bookkeeper(tmp_path, FakeProvider()) as engine:
        pass
    with pytest.raises(penstock.PenstockError, match="this engine and its ledger are closed"):
        await engine.create_message("Hi", max_tokens=9)
    assert writers() == before


async def test_an_engine_without_budgets_leaves_those_of_others_alone(tmp_path: Path) -> None:
    budgets = {"total": {"limit_usd": 0.0}}
    async with bookkeeper(tmp_path, FakeProvider(), budgets=budgets) as strict:
        with pytest.raises(BudgetExceeded):
            await strict.create_message("Hi", max_tokens=9)
        async with bookkeeper(tmp_path, FakeProvider()) as other:
            assert [each.budget.name for each in await other.budgets()] == ["total"]
        with pytest.raises(BudgetExceeded):
            await strict.create_message("Hi", max_tokens=9)


async def test_an_answer_in_hand_is_given_although_the_ledger_is_locked(tmp_path: Path) -> None:
    locked = sqlite3.connect(tmp_path / "books.db", isolation_level=None)
    try:

        def lock(_request: SamplingRequest) -> FakeReply:
            locked.execute("BEGIN IMMEDIATE")
            return FakeReply(text="Hello", usage=Usage(7, 3))

        async with bookkeeper(tmp_path, FakeProvider([lock])) as engine:
            result = await engine.create_message("Hi", max_tokens=9, timeout=3.0)
            assert result.text == "Hello"
            locked.execute("COMMIT")
            async with asyncio.timeout(20):
                while not (found := await paid(engine)):
                    pass
            assert found == [("fake", 37_000, False)]
    finally:
        locked.close()


async def test_going_on_with_a_broken_stream_passes_no_hard_budget(tmp_path: Path) -> None:
    """Each request may be billed three times, and there is money for some of that."""

    class Anew(FakeProvider):
        """Begins from the beginning, so that each target says, and bills, all of it."""

        def capabilities(self, model: str) -> Capabilities:
            return msgspec.structs.replace(super().capabilities(model), prefill=False)

    cut = FakeReply(text="one two three " * 30, error=StreamInterrupted("cut"))
    requests = 20
    providers = [Anew([cut] * requests, name=name) for name in ("a", "b", "c")]
    limit_nanos = 10 * 110 * OUTPUT
    budgets = {"total": {"limit_usd": limit_nanos / 1e9, "period": "forever"}}
    async with bookkeeper(tmp_path, *providers, budgets=budgets) as engine:

        async def ask() -> penstock.PenstockError | None:
            try:
                async with await engine.create_message_stream("Count", max_tokens=100) as stream:
                    await stream.result()
            except penstock.PenstockError as error:
                return error
            return None

        errors = await asyncio.gather(*(ask() for _ in range(requests)))
        assert None not in errors
        (balance,) = await engine.budgets()
        assert (balance.held_nanos, balance.overdrawn) == (0, False)
        assert 0 < balance.used_nanos <= limit_nanos
        assert not await (await engine.ledger()).verify()


async def test_who_cannot_pay_twice_gets_what_was_said_and_the_reason(tmp_path: Path) -> None:
    cut = FakeReply(text="one two three ", error=StreamInterrupted("cut"))
    first, second = FakeProvider([cut], name="first"), FakeProvider(["four"], name="second")
    # For one call, and not for a second beside what the first has taken.
    budgets = {"total": {"limit_usd": 0.00109, "period": "forever"}}
    async with bookkeeper(tmp_path, first, second, budgets=budgets) as engine:
        async with await engine.create_message_stream("Count", max_tokens=100) as stream:
            with pytest.raises(StreamInterrupted) as caught:
                await stream.result()
        assert second.requests == []
        assert caught.value.partial == "one two three "
        assert "budget 'total'" in str(caught.value)
