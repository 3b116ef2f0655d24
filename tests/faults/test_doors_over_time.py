"""Faults through the gateway that take more than one request, a clock, or a caller who leaves."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, ProviderTimeout, ProviderUnavailable, RateLimited
from tests.faults.answer import PROMPT_TOKENS, WHOLE, WORDS, first_words
from tests.faults.asking import AMPLE_S
from tests.faults.doors import DOORS, Told, words_of
from tests.faults.gateways import SHORT_S, Site, gateway_on
from tests.faults.manifest import ANSWERS, shows
from tests.faults.manifest import DOORS as ALL
from tests.faults.server import FaultServer
from tests.faults.test_accounting import estimated, rows
from tests.support.wire.seen import Seen
from tests.unit.server.gateway_support import until

COOLDOWN_S = 0.3
FORMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
AT_ANSWERS = pytest.mark.parametrize("door", ANSWERS)
AT_ALL = pytest.mark.parametrize("door", ALL)


def refused(door: str, told: Told, error: type[PenstockError]) -> Any:
    """The document of a request that failed before it was answered."""
    words = words_of(error)
    (document,) = told.errors
    assert told.status == words.status, repr(told)
    DOORS[door].check_error(document, words, None)
    return document


# ---- over time


@shows(["recovery"], ANSWERS)
@AT_ANSWERS
async def test_a_primary_that_was_down_is_back_within_one_cooldown(
    door: str, tmp_path: Path
) -> None:
    pool = {
        "retries": 0,
        "breaker_failures": 3,
        "breaker_cooldown_s": COOLDOWN_S,
        "breaker_half_open_successes": 2,
    }
    server = FaultServer()
    models = {"m": ("healthy.a", "healthy.b")}
    async with gateway_on(tmp_path, models, pool=pool, server=server) as site:
        server.down_for = "healthy.a"
        failed_by = 0.0
        for turn in range(6):
            failures = len(server.of("healthy.a"))
            told = await site.ask(door, stream=bool(turn % 2))
            assert (told.text, told.whole) == (WHOLE, True)
            assert told.headers["x-penstock-provider"] == "second-m"
            failed_by = time.monotonic() if len(server.of("healthy.a")) > failures else failed_by
        assert len(server.of("healthy.a")) >= 3
        gaps = server.gaps("healthy.a")[2:]
        assert all(gap >= COOLDOWN_S for gap in gaps), "it was not left alone after three failures"
        server.down_for = None
        while True:
            began = time.monotonic()
            told = await site.ask(door)
            assert (told.text, told.whole) == (WHOLE, True)
            if told.headers["x-penstock-provider"] == "primary-m":
                break
            assert began < failed_by + COOLDOWN_S, "its time was over, and it was not asked"
            await asyncio.sleep(0.01)
        await site.check_afterwards([door])


@shows(["recovery-checked"], ANSWERS)
@AT_ANSWERS
async def test_checks_of_the_model_list_do_not_prolong_an_outage(door: str, tmp_path: Path) -> None:
    cooldown_s, outage_s = 0.6, 2.0
    pool = {
        "retries": 0,
        "breaker_failures": 3,
        "breaker_cooldown_s": cooldown_s,
        "breaker_half_open_successes": 1,
        "health_check_interval_s": 0.2,
    }
    models = {"m": ("healthy.a", "healthy.b")}
    async with gateway_on(tmp_path, models, pool=pool) as site:
        server = site.server
        server.down_for = "healthy.a"
        asked = server.of
        while len(asked("healthy.a")) < 3:
            await site.ask(door)
        opened, well_at = asked("healthy.a")[-1].at, time.monotonic() + outage_s
        # The cooldown ends between these two; only probes after it begin another.
        ends = (opened + cooldown_s, time.monotonic() + cooldown_s)
        early = 0
        while True:
            began, probes = time.monotonic(), len(asked("healthy.a"))
            if began > well_at:
                server.down_for = None
            told = await site.ask(door)
            assert (told.text, told.whole) == (WHOLE, True)
            if told.headers["x-penstock-provider"] == "primary-m":
                break
            if len(asked("healthy.a")) == probes:
                assert began < ends[1], "the cooldown was over, and it was not asked"
            elif (at := asked("healthy.a")[-1].at) >= ends[0]:
                ends = (at + cooldown_s, time.monotonic() + cooldown_s)
            else:
                early += 1
            await asyncio.sleep(0.01)
        assert early, "no check has allowed an early probe"
        assert server.lists
        await site.check_afterwards([door])


@shows(["429-pause"], ANSWERS)
@FORMS
@AT_ANSWERS
async def test_a_long_pause_is_heeded_by_all_requests(
    door: str, stream: bool, tmp_path: Path
) -> None:
    async with gateway_on(tmp_path, {"m": ("429.long", "healthy.b")}) as site:
        for _ in range(5):
            told = await site.ask(door, stream=stream)
            assert (told.text, told.whole) == (WHOLE, True)
        assert len(site.server.of("429.long")) == 1
        (paused,) = (each for each in site.engine.target_health() if "429" in each.target)
        assert paused.status == "degraded"
        assert 3000 < paused.retry_in_s <= 3600
        await site.check_afterwards([door])


@shows(["silence-long"], ANSWERS)
@FORMS
@AT_ANSWERS
async def test_a_silent_target_is_left_for_a_long_answer_too(
    door: str, stream: bool, tmp_path: Path
) -> None:
    # By these a whole answer may take minutes, as could a silent stream without headers.
    pool = {
        "request_timeout_s": 300.0,
        "slowest_tokens_per_s": 0.1,
        "first_token_timeout_s": SHORT_S,
    }
    async with gateway_on(tmp_path, {"m": ("silence", "healthy.b")}, pool=pool) as site:
        async with asyncio.timeout(60):
            told = await site.ask(door, stream=stream)
        assert (told.text, told.whole) == (WHOLE, True)
        assert told.headers["x-penstock-attempts"] == "2"
        (silent,) = site.server.of("silence")
        assert isinstance(silent.seen, Seen)
        assert silent.seen.stream, "a silent target looks like a slow one in a whole answer"
        await site.server.gone.wait()
        await site.check_afterwards([door])


@shows(["breaker-refusal"], ALL)
@AT_ALL
async def test_a_target_that_is_left_alone_says_for_how_long(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who has no other target would soon be let through.
    monkeypatch.setattr("penstock.pool.targets.breaker.LAST_RESORT_S", 60.0)
    pool = {"retries": 1, "breaker_failures": 2, "breaker_cooldown_s": 60.0}
    async with gateway_on(tmp_path, {"m": ("429.forever",)}, pool=pool) as site:
        refused(door, await site.ask(door), RateLimited)
        for stream in (False,) if door == "embeddings" else (False, True):
            told = await site.ask(door, stream=stream)
            refused(door, told, ProviderUnavailable)
            assert 0 < int(told.headers["retry-after"]) <= 60
            assert told.headers["x-request-id"].startswith("req_")
        assert len(site.server.of("429.forever")) == 2
        await site.check_afterwards([door])


@shows(["429-traffic"], ALL)
@AT_ALL
async def test_retries_stay_a_fraction_of_the_traffic(door: str, tmp_path: Path) -> None:
    pool = {"breaker_failures": 10_000, "retries": 5}
    async with gateway_on(tmp_path, {"m": ("429.forever",)}, pool=pool) as site:
        requests = 20
        for told in await asyncio.gather(*(site.ask(door) for _ in range(requests))):
            refused(door, told, RateLimited)
        assert len(site.server.requests) <= requests + 10 + requests // 5
        await site.check_afterwards([door])


async def leave(site: Site, door: str, stream: bool, *, after: bytes = b"") -> None:
    """Ask by hand, read until this has come, and hang up."""
    reader, writer = await asyncio.open_connection(site.gateway.host, site.gateway.port)
    body = json.dumps(DOORS[door].body("m", stream)).encode()
    head = f"POST {DOORS[door].path} HTTP/1.1\r\nhost: localhost\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await site.server.asked.wait()
    if after:
        await reader.readuntil(after)
    writer.transport.abort()


@shows(["caller-gone"], ALL)
@AT_ALL
async def test_a_caller_who_leaves_is_no_failure_of_the_target(door: str, tmp_path: Path) -> None:
    pool = {"breaker_failures": 1, "request_timeout_s": AMPLE_S}
    async with gateway_on(tmp_path, {"m": ("silence",)}, pool=pool) as site:
        for number in (1, 2):
            await leave(site, door, stream=False)
            async with asyncio.timeout(30):
                await site.server.gone.wait()
            # An open breaker would have kept the second one away.
            assert len(site.server.of("silence")) == number
            site.server.gone.clear()
            site.server.asked.clear()
            await until(lambda: site.gateway.server.running_requests == 0)
        await site.check_afterwards([door])


@shows(["cancelled-usage"], ANSWERS)
@AT_ANSWERS
async def test_a_stream_that_is_left_is_paid_for_as_far_as_it_came(
    door: str, tmp_path: Path
) -> None:
    pool = {"stream_idle_timeout_s": AMPLE_S}
    async with gateway_on(tmp_path, {"m": ("stall.3",)}, pool=pool) as site:
        await leave(site, door, stream=True, after=b"word3 ")
        async with asyncio.timeout(30):
            await site.server.gone.wait()
        await until(lambda: site.gateway.server.running_requests == 0)
        assert await rows(site.engine) == {("primary-m", "stall.3"): (1, {"RequestCancelled": 1})}
        usage = (await site.engine.usage_stats()).total.usage
        assert usage.estimated
        assert usage.output_tokens == estimated(first_words(3), "stall.3")
        assert len(site.server.requests) == 1
        await site.check_afterwards([door])


# ---- the caller's own limit


@shows(["429-deadline"], ["sampling"])
@FORMS
async def test_a_pause_beyond_the_deadline_is_not_waited_for(stream: bool, tmp_path: Path) -> None:
    models = {"m": ("429.later", "healthy.b"), "alone": ("429.later",)}
    async with gateway_on(tmp_path, models) as site:
        told = await site.ask("sampling", stream=stream, timeout=8)
        assert (told.text, told.whole) == (WHOLE, True)
        told = await site.ask("sampling", "alone", stream, timeout=8)
        document = refused("sampling", told, RateLimited)
        assert document["error"]["data"]["retryAfter"] == 9
        assert told.headers["retry-after"] == "9"
        assert [len(site.server.of("429.later", each)) for each in models] == [1, 1]
        await site.check_afterwards(["sampling"])


@shows(["deadline"], ["sampling"])
@FORMS
async def test_one_deadline_is_shared_by_all_attempts(stream: bool, tmp_path: Path) -> None:
    models = {"m": ("silence.a", "silence.b", "silence.c")}
    async with gateway_on(tmp_path, models, pool={"request_timeout_s": 2.0}) as site:
        told = await site.ask("sampling", stream=stream, timeout=3.5)
        document = refused("sampling", told, ProviderTimeout)
        assert "own limit" in document["error"]["message"]
        assert [len(site.server.of(f"silence.{each}")) for each in "abc"] == [1, 1, 0]
        await site.check_afterwards(["sampling"])


# ---- accounting

OUTPUT: Mapping[str, str] = {
    "chat": "completion_tokens",
    "responses": "output_tokens",
    "messages": "output_tokens",
    "sampling": "completionTokens",
}
INPUT: Mapping[str, str] = {
    "chat": "prompt_tokens",
    "responses": "input_tokens",
    "messages": "input_tokens",
    "sampling": "promptTokens",
}


def tokens(door: str, told: Told) -> tuple[int, int]:
    assert told.usage is not None
    return told.usage[INPUT[door]], told.usage[OUTPUT[door]]


def wanted(door: str) -> dict[str, Any]:
    """What has to be said for a stream to tell its tokens."""
    return {"stream_options": {"include_usage": True}} if door == "chat" else {}


@shows(["failed-attempts"], ANSWERS)
@FORMS
@AT_ANSWERS
async def test_attempts_that_bring_nothing_take_no_tokens(
    door: str, stream: bool, tmp_path: Path
) -> None:
    models = {"m": ("500.forever", "500.once")}
    async with gateway_on(tmp_path, models, pool={"retries": 1}) as site:
        told = await site.ask(door, stream=stream, **(wanted(door) if stream else {}))
        assert told.headers["x-penstock-attempts"] == "4" == str(len(site.server.requests))
        assert tokens(door, told) == (PROMPT_TOKENS, len(WORDS))
        if not stream:
            # Ten dollars a million of these, and one of those.
            cost = (PROMPT_TOKENS + 10 * len(WORDS)) / 1e6
            assert math.isclose(float(told.headers["x-penstock-cost-usd"]), cost)
        assert await rows(site.engine) == {("second-m", "500.once"): (1, {})}
        await site.check_afterwards([door])


@shows(["failed-request"], ALL)
@AT_ALL
async def test_a_request_that_fails_counts_once_and_costs_nothing(
    door: str, tmp_path: Path
) -> None:
    async with gateway_on(tmp_path, {"m": ("429.forever",)}, pool={"retries": 1}) as site:
        told = await site.ask(door)
        refused(door, told, RateLimited)
        assert told.headers["x-penstock-attempts"] == "2"
        assert told.headers["x-penstock-cost-usd"] == "0"
        assert await rows(site.engine) == {("primary-m", "429.forever"): (1, {"RateLimited": 1})}
        (balance,) = await (await site.engine.ledger()).balances()
        assert balance.used_nanos == 0
        await site.check_afterwards([door])


@shows(["cut-usage"], ANSWERS)
@AT_ANSWERS
async def test_the_part_of_a_broken_stream_is_counted(door: str, tmp_path: Path) -> None:
    async with gateway_on(tmp_path, {"m": ("cut.40", "healthy.b")}) as site:
        told = await site.ask(door, stream=True, **wanted(door))
        assert (told.text, told.whole) == (WHOLE, True)
        given, taken = tokens(door, told)
        assert given > PROMPT_TOKENS
        assert taken == len(WORDS) + estimated(first_words(40), "cut.40")
        await site.check_afterwards([door])
