"""Faults that take several requests or a clock, on each wire and at all doors at the same time.

Each door asks for a model of its own with providers of its own, so that nothing is shared.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.answer import WHOLE
from tests.faults.asking import DIALECTS
from tests.faults.doors import DOORS, Told
from tests.faults.gateways import SHORT_S, Site, gateway_on
from tests.faults.manifest import ANSWERS, WITHOUT_HEADERS, proves
from tests.faults.test_endings import ENDS, UNKNOWN
from tests.support.wire.seen import Seen

pytestmark = pytest.mark.timeout(90)
KINDS = pytest.mark.parametrize("kind", DIALECTS)
PLACES = [
    (door, stream)
    for door in (*ANSWERS, *WITHOUT_HEADERS)
    for stream in (False, True)
    if stream or door != "mcp"
]
NAMED = ("openai-chat", "anthropic", "gemini", "ollama")
"""The wires whose reason for the end the provider of these tests can name freely."""


def caller_of(door: str, stream: bool) -> str:
    return f"{door}-{'streamed' if stream else 'whole'}"


def models_of(*targets: str) -> dict[str, tuple[str, ...]]:
    return {caller_of(*place): targets for place in PLACES}


async def ask_all(site: Site) -> list[Told]:
    """One request of each door in each form, all at once; each must get the whole text."""
    told = await asyncio.gather(
        *(site.ask(door, caller_of(door, stream), stream) for door, stream in PLACES)
    )
    for place, each in zip(PLACES, told, strict=True):
        assert (each.text, each.whole, list(each.errors)) == (WHOLE, True, []), place
    return told


@proves("429-pause")
@KINDS
async def test_a_long_pause_is_heeded_at_all_doors(kind: str, tmp_path: Path) -> None:
    async with gateway_on(tmp_path, models_of("429.long", "healthy.b"), kind=kind) as site:
        for _ in range(4):
            await ask_all(site)
        for place in PLACES:
            assert len(site.server.of("429.long", caller_of(*place))) == 1, place
        await site.check_afterwards(ANSWERS)


@proves("silence-long")
@KINDS
async def test_a_silent_target_is_left_at_all_doors(kind: str, tmp_path: Path) -> None:
    pool = {
        "request_timeout_s": 300.0,
        "slowest_tokens_per_s": 0.1,
        "first_token_timeout_s": SHORT_S,
    }
    models = models_of("silence", "healthy.b")
    async with gateway_on(tmp_path, models, kind=kind, pool=pool) as site:
        async with asyncio.timeout(60):
            await ask_all(site)
        for place in PLACES:
            (silent,) = site.server.of("silence", caller_of(*place))
            assert isinstance(silent.seen, Seen)
            assert silent.seen.stream, place
        await site.check_afterwards(ANSWERS)


@proves("recovery-checked")
@KINDS
async def test_checks_of_the_model_list_do_not_prolong_an_outage(kind: str, tmp_path: Path) -> None:
    cooldown_s, outage_s = 0.6, 2.0
    pool: dict[str, Any] = {
        "retries": 0,
        "breaker_failures": 3,
        "breaker_cooldown_s": cooldown_s,
        "breaker_half_open_successes": 1,
        "health_check_interval_s": 0.2,
    }
    models = models_of("healthy.a", "healthy.b")
    async with gateway_on(tmp_path, models, kind=kind, pool=pool) as site:
        server = site.server
        server.down_for = "healthy.a"
        well_at = time.monotonic() + outage_s
        while time.monotonic() < well_at:
            await ask_all(site)
        server.down_for = None
        well_at = time.monotonic()
        missing = set(map(str, PLACES))
        while missing:
            began = time.monotonic()
            for place, told in zip(PLACES, await ask_all(site), strict=True):
                if told.headers["x-penstock-provider"].startswith("primary-"):
                    missing.discard(str(place))
            # The cooldown of a probe that failed just before the end of the outage.
            late = began - well_at > cooldown_s
            assert not (missing and late), f"{missing} did not notice the recovery"
        assert server.lists
        await site.check_afterwards(ANSWERS)


@proves("unknown-reason")
@pytest.mark.parametrize("kind", NAMED)
async def test_an_unknown_reason_is_no_normal_end_at_any_door(kind: str, tmp_path: Path) -> None:
    models = models_of(UNKNOWN, "healthy.b")
    async with gateway_on(tmp_path, models, kind=kind) as site:
        for door, stream in PLACES:
            caller = caller_of(door, stream)
            if door in WITHOUT_HEADERS:
                told = await site.ask(door, caller, stream)
                assert (told.text, told.whole) == (WHOLE, False), door
            else:
                body = DOORS[door].body(caller, stream)
                async with site.client.post(DOORS[door].path, json=body) as response:
                    said = await response.text()
                    header = response.headers.get("x-penstock-stop-detail")
                read, expected = ENDS[door]
                assert read(said, stream) == expected, door
                if stream and door != "sampling":
                    assert ": x-penstock-stop-detail: of_tomorrow\n\n" in said, door
                elif not stream:
                    assert header == "of_tomorrow", door
            assert len(site.server.of(UNKNOWN, caller)) == 1
        await site.check_afterwards(ANSWERS)
