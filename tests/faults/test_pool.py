"""Targets over time: those that recover, those that are left alone, and callers that leave."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import penstock
from penstock import Config, ProviderTimeout, ProviderUnavailable, RateLimited
from penstock.contract.options import ReasoningLevel
from tests.faults.answer import WHOLE
from tests.faults.asking import BOTH, DIALECTS, Ask, engine_on, whole
from tests.faults.manifest import proves
from tests.faults.server import FaultServer
from tests.support.wire.seen import Seen

COOLDOWN_S = 0.3


@proves("recovery")
@BOTH
async def test_a_primary_that_was_down_is_back_within_one_cooldown(ask: Ask) -> None:
    pool = {
        "retries": 0,
        "breaker_failures": 3,
        "breaker_cooldown_s": COOLDOWN_S,
        "breaker_half_open_successes": 2,
    }
    async with FaultServer() as server, FaultServer() as spare:
        config = Config.model_validate(
            {
                "providers": {
                    "primary": {"kind": "openai-chat", "url": server.url, "auth_token": "k"},
                    "spare": {"kind": "openai-chat", "url": spare.url, "auth_token": "k"},
                },
                "models": {"m": {"targets": ["primary/healthy.a", "spare/healthy.b"]}},
                "pool": pool,
            }
        )
        async with penstock.open(config) as engine:
            server.down = True
            failed_by = 0.0
            for _ in range(10):
                failures = len(server.requests)
                got = await ask(engine)
                assert got.text == WHOLE
                assert got.result is not None
                assert got.result.metadata.provider == "spare"
                failed_by = time.monotonic() if len(server.requests) > failures else failed_by
            # It was left alone after the third failure, for as long as it was to be.
            assert len(server.requests) >= 3
            assert all(gap >= COOLDOWN_S for gap in server.gaps("healthy.a")[2:])
            server.down = False
            while True:
                began = time.monotonic()
                got = await ask(engine)
                assert got.text == WHOLE
                assert got.result is not None
                if got.result.metadata.provider == "primary":
                    break
                assert began < failed_by + COOLDOWN_S, "its time was over, and it was not asked"
                await asyncio.sleep(0.01)


@proves("caller-gone")
async def test_a_caller_who_leaves_is_no_failure_of_the_target() -> None:
    pool = {"breaker_failures": 1}
    async with FaultServer() as server, engine_on(server, "stall.3", pool=pool) as engine:
        stream = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
        await stream.aclose()
        async with asyncio.timeout(30):
            await server.gone.wait()
        again = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
        await again.aclose()
        assert len(server.requests) == 2


@proves("429-traffic")
async def test_retries_stay_a_fraction_of_the_traffic() -> None:
    pool = {"breaker_failures": 10_000, "retries": 5}
    async with FaultServer() as server, engine_on(server, "429.forever", pool=pool) as engine:
        requests = 60
        await asyncio.gather(*(whole(engine) for _ in range(requests)))
        assert len(server.requests) <= requests + 10 + requests // 5


@proves("breaker-refusal")
@BOTH
async def test_the_error_is_what_the_target_said_though_it_is_then_left_alone(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who has no other target would soon be let through.
    monkeypatch.setattr("penstock.pool.targets.breaker.LAST_RESORT_S", 60.0)
    pool = {"retries": 2, "breaker_failures": 2}
    async with FaultServer() as server, engine_on(server, "429.forever", pool=pool) as engine:
        assert isinstance((await ask(engine)).error, RateLimited)
        refused = (await ask(engine)).error
        assert isinstance(refused, ProviderUnavailable)
        assert refused.retry_after
        assert refused.retry_after > 0
        assert len(server.requests) == 2


@proves("slow-first")
@pytest.mark.parametrize(("level", "limit"), [(None, "0.2"), ("med", "0.4"), ("high", "0.8")])
@pytest.mark.parametrize("fault", ["silence", "stall.0"])
async def test_a_model_that_thinks_first_may_be_silent_for_longer(
    level: ReasoningLevel | None, limit: str, fault: str
) -> None:
    pool = {"first_token_timeout_s": 0.2, "request_timeout_s": 0.2, "retries": 0}
    async with (
        FaultServer() as server,
        engine_on(server, fault, pool=pool) as engine,
        asyncio.timeout(60),
    ):
        with pytest.raises(ProviderTimeout) as caught:
            await engine.create_message_stream(
                "Say it.", max_tokens=99, model="m", reasoning_level=level
            )
        assert f" {limit} s" in str(caught.value)


LONG: dict[str, Any] = {"slowest_tokens_per_s": 0.1, "request_timeout_s": 300.0}
"""By this every answer is a long one, for which a silent target could take minutes."""


@proves("silence-long")
@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_silent_target_is_left_on_every_wire(kind: str) -> None:
    pool = {**LONG, "first_token_timeout_s": 0.5}
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "silence", "healthy.b", kind=kind, pool=pool) as engine,
        asyncio.timeout(60),
    ):
        got = await whole(engine)
        assert got.text == WHOLE
        assert got.result is not None
        assert (got.result.metadata.provider, got.result.metadata.attempts) == ("second", 2)
        (silent,) = server.of("silence")
        assert isinstance(silent.seen, Seen)
        assert silent.seen.stream


@proves("silence-long")
@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_long_answer_is_the_same_when_it_is_fetched_as_a_stream(kind: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "healthy.a", kind=kind, pool=LONG) as alone,
        engine_on(server, "healthy.a", "healthy.b", kind=kind, pool=LONG) as with_another,
    ):
        results = [(await whole(engine)).result for engine in (alone, with_another)]
        streamed = [each.seen.stream for each in server.requests if isinstance(each.seen, Seen)]
        assert streamed == [False, True]
        one, other = results
        assert one is not None
        assert other is not None
        assert (other.content, other.stop_reason, other.model) == (
            one.content,
            one.stop_reason,
            one.model,
        )
        assert other.usage == one.usage
        assert other.metadata.response_status == one.metadata.response_status
        assert other.metadata.attempts == 1


@proves("cut-whole")
@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_long_answer_that_is_cut_is_made_again_elsewhere(kind: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "cut.40", "healthy.b", kind=kind, pool={**LONG, "retries": 0}) as engine,
    ):
        got = await whole(engine)
        assert got.text == WHOLE
        assert got.result is not None
        assert got.result.metadata.provider == "second"
        assert got.result.metadata.continued_by is None
        # What the first one has written is paid for as well.
        assert got.result.usage.estimated
        (again,) = server.of("healthy.b")
        assert again.begun == ""


@proves("429-pause")
@BOTH
@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_long_pause_is_heeded_on_every_wire(kind: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "429.long", "healthy.b", kind=kind) as engine,
    ):
        for _ in range(3):
            assert (await ask(engine)).text == WHOLE
        assert len(server.of("429.long")) == 1
