"""The file of events: its bounds, its owners, and what two processes see of it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.mcp.resumption.log import STALE_S, EventLimits, EventLog
from tests.support.clock import ManualClock

LIMITS = EventLimits(
    ttl_s=100.0,
    max_stream_bytes=100,
    max_streams=3,
    max_account_bytes=150,
    max_total_bytes=250,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def log(tmp_path: Path, clock: ManualClock) -> AsyncGenerator[EventLog]:
    found = EventLog(tmp_path / "folder" / "events.db", LIMITS, clock)
    yield found
    await found.aclose()


async def numbers(log: EventLog, stream: str, seq: int = 0) -> list[int]:
    return [number for number, _ in (await log.after(stream, seq)).events]


async def test_events_come_back_in_their_order(log: EventLog) -> None:
    await log.open("a", "me")
    assert await log.append("a", [(1, b"one"), (2, b"two")])
    assert await log.append("a", [(3, b"three")])
    assert (await log.after("a", 1)).events == [(2, b"two"), (3, b"three")]
    assert (await log.after("a", 3)) == ([], "running")
    await log.end("a")
    assert (await log.after("a", 3)) == ([], "ended")
    assert not await log.append("a", [(4, b"late")])


async def test_another_process_reads_what_this_one_writes(
    log: EventLog, clock: ManualClock
) -> None:
    other = EventLog(log.path, LIMITS, clock)
    try:
        await log.open("a", "me")
        await log.append("a", [(1, b"one")])
        assert await other.want("a", "me")
        assert await numbers(other, "a") == [1]
        clock.now += STALE_S - 1
        await log.renew(["a"])
        clock.now += STALE_S - 1
        assert (await other.after("a", 1)).state == "running"
        # The process that wrote it was killed.
        clock.now += 1
        assert (await other.after("a", 1)).state == "ended"
    finally:
        await other.aclose()


async def test_only_its_owner_finds_a_stream(log: EventLog) -> None:
    await log.open("a", "me")
    assert await log.want("a", "me")
    assert not await log.want("a", "you")
    assert not await log.want("b", "me")


async def test_a_stream_is_kept_for_a_time(log: EventLog, clock: ManualClock) -> None:
    await log.open("a", "me")
    await log.append("a", [(1, b"one")])
    await log.end("a")
    clock.now += LIMITS.ttl_s + 1
    assert not await log.want("a", "me")
    await log.open("b", "me")
    assert await numbers(log, "a") == []


async def test_it_knows_when_a_client_asked_last(log: EventLog, clock: ManualClock) -> None:
    await log.open("a", "me")
    first = await log.renew(["a", "nonesuch"])
    clock.now += 5
    await log.want("a", "me")
    assert (await log.renew(["a"]))["a"] == first["a"] + 5
    assert first.keys() == {"a"}


async def test_a_stream_that_is_too_large_is_not_kept(log: EventLog) -> None:
    await log.open("a", "me")
    assert await log.append("a", [(1, b"x" * 60)])
    assert not await log.append("a", [(2, b"x" * 60)])
    assert (await log.after("a", 0)) == ([], "too_large")
    assert not await log.want("a", "me")
    assert not await log.append("a", [(3, b"x")])


async def test_the_sessions_of_a_key_share_its_limits(log: EventLog, clock: ManualClock) -> None:
    await log.open("a", "other/1", "other")
    await log.append("a", [(1, b"x" * 20)])
    for number in range(5):
        clock.now += 1
        await log.open(f"s{number}", f"key/{number}", "key")
        await log.append(f"s{number}", [(1, b"x" * 90)])
    kept = [number for number in range(5) if await numbers(log, f"s{number}")]
    assert kept == [3, 4]
    assert await numbers(log, "a") == [1]


async def test_an_owner_has_so_many_streams_and_all_together_so_many_bytes(
    log: EventLog, clock: ManualClock
) -> None:
    for name in "abcd":
        clock.now += 1
        await log.open(name, "me")
        await log.append(name, [(1, b"x" * 20)])
    assert [name for name in "abcd" if await log.want(name, "me")] == ["b", "c", "d"]
    await log.open("other", "you")
    for name in "efgh":
        clock.now += 1
        await log.open(name, name)
        await log.append(name, [(1, b"x" * 90)])
    clock.now += 1
    await log.open("last", "z")
    kept = [name for name in "bcdefgh" if await numbers(log, name)]
    assert kept == ["g", "h"]


async def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"no database" * 1000)
    log = EventLog(tmp_path / "events.db")
    with pytest.raises(PenstockError, match=r"the file of MCP events .*events\.db"):
        await log.open("a", "me")
    await log.aclose()
    (tmp_path / "file").touch()
    log = EventLog(tmp_path / "file" / "events.db")
    with pytest.raises((ConfigurationError, sqlite3.Error), match="cannot be opened"):
        await log.open("a", "me")
    await log.aclose()
