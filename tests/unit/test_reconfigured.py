"""An engine that takes another's place while requests run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.contract.errors import (
    BudgetExceeded,
    ConfigurationError,
    ModelNotFound,
    ProviderUnavailable,
)
from penstock.contract.events import Chunk, Complete
from penstock.engine.engine import Engine
from penstock.providers.fake.provider import FakeProvider, FakeReply
from penstock.testing import Recorder
from tests.unit.server.gateway_support import until


def config(tmp_path: Path, **parts: Any) -> Config:
    return Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {
                "default": {
                    "targets": ["fake/echo"],
                    "prices": {"fake/echo": {"input": 1e6, "output": 1e6}},
                }
            },
            "storage": {"url": f"sqlite:///{tmp_path}/ledger.db"},
            "pool": {"retries": 0, "breaker_failures": 2},
            **parts,
        }
    )


class Closing(FakeProvider):
    """Tells when it is closed."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


async def test_a_model_comes_and_another_goes(tmp_path: Path) -> None:
    before = Engine(config(tmp_path))
    now = await before.reconfigured(
        config(tmp_path, models={"other": {"targets": ["fake/words-2"]}})
    )
    async with now as engine:
        assert (await engine.create_message("Hi", max_tokens=9, model="other")).text
        with pytest.raises(ModelNotFound):
            await engine.create_message("Hi", max_tokens=9, model="default")


async def test_a_stream_ends_on_the_engine_that_began_it(tmp_path: Path) -> None:
    fake = Closing([FakeReply(text="one two three", delay_s=0.02)])
    before = Engine(config(tmp_path))
    before.use(fake)
    await before.__aenter__()
    stream = await before.create_message_stream("Hi", max_tokens=9)
    now = await before.reconfigured(config(tmp_path, pool={"retries": 0, "connect_timeout_s": 3.0}))
    assert not fake.closed
    events = [event async for event in stream]
    assert "".join(event.text for event in events if isinstance(event, Chunk)) == "one two three"
    assert isinstance(events[-1], Complete)
    await until(lambda: fake.closed)
    # Connections are made in another way, and so the new engine has a provider of its own.
    assert now.provider("fake") is not fake
    await now.aclose()


async def test_requests_are_answered_until_another_has_taken_the_place(tmp_path: Path) -> None:
    before = Engine(config(tmp_path))
    await before.__aenter__()
    await before.create_message("Hi", max_tokens=9)
    for number in range(5):
        changed = config(tmp_path, limits={"max_temperature": 1.0 + number})
        changing = asyncio.create_task(before.reconfigured(changed))
        while not changing.done():
            assert (await before.create_message("Hi", max_tokens=9)).text == "Hi"
        before = changing.result()
    await before.aclose()


async def test_an_engine_in_use_stays_open_when_another_takes_its_place(tmp_path: Path) -> None:
    fake = Closing()
    before = Engine(config(tmp_path))
    before.use(fake)
    async with before:
        with before.in_use():
            now = await before.reconfigured(
                config(tmp_path, pool={"retries": 0, "connect_timeout_s": 3.0})
            )
            await asyncio.sleep(0)
            assert (await before.create_message("Hi", max_tokens=9)).text == "Hi"
            await asyncio.sleep(0)
            assert (await before.create_message("Hi", max_tokens=9)).text == "Hi"
            assert not fake.closed
        await until(lambda: fake.closed)
        await now.aclose()


async def test_what_has_not_changed_goes_on(tmp_path: Path) -> None:
    fake = Closing([ProviderUnavailable("down"), ProviderUnavailable("down")])
    before = Engine(config(tmp_path))
    before.use(fake)
    recorder = Recorder()
    before.hooks.subscribe(recorder)
    async with before:
        for _ in range(2):
            with pytest.raises(ProviderUnavailable):
                await before.create_message("Hi", max_tokens=9)
        assert before.target_health()[0].state == "open"
        ledger = await before.ledger()
        now = await before.reconfigured(config(tmp_path, limits={"max_temperature": 1.0}))
        assert now.provider("fake") is fake
        assert now.target_health()[0].state == "open"
        assert await now.ledger() is ledger
        assert sum((await now.usage_stats()).total.failures.values()) == 2
        now.mark_up("fake/echo")
        assert (await now.create_message("Hi", max_tokens=9)).text == "Hi"
        assert len(recorder.requests) == 3
        assert now.background()
        assert not before.background()
        assert not fake.closed
        await now.aclose()
    assert fake.closed


async def test_the_settings_of_breakers_and_places_change(tmp_path: Path) -> None:
    slow = FakeProvider([FakeReply(text="a", delay_s=0.05)] * 8)
    before = Engine(config(tmp_path, providers={"fake": {"max_concurrent": 1}}))
    before.use(slow)
    await before.create_message("warm", max_tokens=9)
    (one,) = before.target_health()
    assert one.limit == 1
    # The limit is the provider's: a change of it alone must not lose what is known of the target.
    now = await before.reconfigured(
        config(
            tmp_path,
            providers={"fake": {"max_concurrent": 5}},
            pool={"retries": 0, "breaker_failures": 1},
        )
    )
    assert now.provider("fake") is slow
    assert now.target_health()[0].limit == 5
    now.use(FakeProvider([ProviderUnavailable("down")]))
    with pytest.raises(ProviderUnavailable):
        await now.create_message("x", max_tokens=9)
    assert now.target_health()[0].state == "open"
    await now.aclose()


async def test_budgets_change_at_once_and_what_was_spent_counts(tmp_path: Path) -> None:
    before = Engine(config(tmp_path, budgets={"total": {"limit_usd": 1000.0}}))
    async with before:
        await before.create_message("one two three four", max_tokens=9)
        now = await before.reconfigured(config(tmp_path, budgets={"total": {"limit_usd": 9.0}}))
        with pytest.raises(BudgetExceeded):
            await now.create_message("one two three four", max_tokens=9)
        (balance,) = await now.budgets()
        assert balance.used_nanos > 0
        await now.aclose()


async def test_another_ledger(tmp_path: Path) -> None:
    before = Engine(config(tmp_path))
    async with before:
        await before.create_message("Hi", max_tokens=9)
        old = await before.ledger()
        now = await before.reconfigured(
            config(tmp_path, storage={"url": f"sqlite:///{tmp_path}/other.db"})
        )
        assert await now.ledger() is not old
        await now.create_message("Hi", max_tokens=9)
        assert (tmp_path / "other.db").exists()
        await now.aclose()


async def test_a_configuration_that_cannot_begin_changes_nothing(tmp_path: Path) -> None:
    fake = Closing()
    before = Engine(config(tmp_path))
    before.use(fake)
    async with before:
        with pytest.raises(ConfigurationError, match=r"storage\.url"):
            await before.reconfigured(
                config(tmp_path, storage={"url": "sqlite:////proc/none/x.db"})
            )
        assert (await before.create_message("Hi", max_tokens=9)).text == "Hi"
        assert not fake.closed
        assert before.background()
    assert fake.closed


async def test_a_request_of_the_old_engine_can_be_stopped_at_the_new_one(tmp_path: Path) -> None:
    before = Engine(config(tmp_path))
    before.use(FakeProvider([FakeReply(text="a b", delay_s=60)]))
    call = asyncio.create_task(
        before.create_message("Hi", max_tokens=9, request_id="req_of_the_old")
    )
    await until(before.target_health)
    now = await before.reconfigured(config(tmp_path, limits={"max_temperature": 1.0}))
    assert await now.cancel_request("req_of_the_old")
    with pytest.raises(Exception, match="cancelled"):
        await call
    await now.aclose()


async def test_closing_ends_what_still_runs_on_all_of_them(tmp_path: Path) -> None:
    engine = Engine(config(tmp_path))
    engine.use(FakeProvider([FakeReply(text="a b", delay_s=60)] * 3))
    calls: list[asyncio.Task[Any]] = []
    for number in range(3):
        calls.append(asyncio.create_task(engine.create_message("Hi", max_tokens=9)))
        await until(lambda: sum(each.in_flight for each in engine.target_health()) > number)  # noqa: B023
        limits = {"max_stop_sequences": number}
        engine = await engine.reconfigured(config(tmp_path, limits=limits))
    await engine.aclose()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each).__name__ for each in ended] == ["RequestCancelled"] * 3
