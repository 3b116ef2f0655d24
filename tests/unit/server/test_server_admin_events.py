"""`GET /admin/v1/events`: what happens, as it does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from penstock.contract.errors import ProviderUnavailable
from penstock.server.admin import events as admin_events
from penstock.server.admin.events import DATA, NAMES, frame
from penstock.telemetry.feed import Told
from penstock.telemetry.records import ConfigReloaded, RequestStarted
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_listening import Event, listening
from tests.unit.server.admin_support import BASE, administered


async def named(events: AsyncIterator[Event], *names: str) -> list[dict[str, Any]]:
    """The data of the next events, which must have these names."""
    found = [await anext(events) for _ in names]
    assert [name for name, _, _ in found] == list(names)
    return [data for _, data, _ in found]


async def test_a_request_is_followed_from_its_beginning_to_its_end() -> None:
    async with administered() as admin, listening(admin) as events:
        answer = await admin.chat()
        started, trying, tried, ended = await named(
            events, "request.started", "attempt.started", "attempt.finished", "request.finished"
        )
        request_id = answer.headers["x-request-id"]
        assert started["request_id"] == trying["request_id"] == tried["request_id"] == request_id
        assert (started["state"], ended["state"], ended["outcome"]) == ("running", "ended", "ok")
        assert (trying["attempt"]["outcome"], tried["attempt"]["outcome"]) == ("running", "ok")
        assert ended == await admin.get(f"requests/{request_id}")


async def test_breakers_refusals_and_budgets_are_told() -> None:
    async with administered() as admin, listening(admin) as events:
        await admin.send("POST", "targets/down", {"target": "fake/echo", "reason": "test"})
        await admin.send("POST", "targets/up", {"target": "fake/echo"})
        down, up = await named(events, "target.changed", "target.changed")
        assert (down["target"], down["before"], down["state"]) == ("fake/echo", "closed", "open")
        assert down["reason"] == "marked down: test"
        assert (up["before"], up["state"], up["reason"]) == ("open", "closed", "")

        await admin.gateway.client.get("/v1/models", headers=bearer("psk_wrong-one"))
        await admin.gateway.client.get(f"{BASE}/keys", headers=bearer(admin.texts["ci"]))
        unknown, user = await named(events, "call.refused", "call.refused")
        assert (unknown["status"], unknown["key"], unknown["reason"]) == (401, None, "wrong key")
        assert (user["status"], user["key"], user["path"]) == (403, "ci", f"'{BASE}/keys'")

        await admin.send("PUT", "budgets/soft", {"limit_usd": 0.001, "hard": False})
        await admin.chat()
        names = [(await anext(events))[0] for _ in range(6)]
        assert names.count("budget.warning") == 2
        # What a request costs is written when it has been answered.
        assert names.count("request.finished") == 1


async def test_a_breaker_that_opens_by_itself_is_told() -> None:
    down = ProviderUnavailable("down", provider="fake", model="echo", status=500)
    async with administered(FakeProvider([down] * 9)) as admin, listening(admin) as events:
        for _ in range(5):
            await admin.chat()
        async for name, data, _ in events:
            if name == "target.changed":
                assert (data["state"], data["reason"]) == ("open", "ProviderUnavailable: down")
                break


async def test_a_configuration_that_is_read_anew_is_told() -> None:
    async with administered() as admin, listening(admin) as events:
        told = ConfigReloaded(source="penstock.toml", problem=None, at=1.0)
        admin.engine.hooks.happened(told)
        (heard,) = await named(events, "config.reloaded")
        assert heard == {"source": "penstock.toml", "problem": None, "at": 1.0}


async def test_a_connection_that_broke_goes_on_after_its_last_event() -> None:
    async with administered() as admin:
        async with listening(admin) as events:
            await admin.chat()
            numbers = [(await anext(events))[2] for _ in range(4)]
        assert numbers == [1, 2, 3, 4]
        await admin.chat()
        async with listening(admin, last=3) as events:
            found = [(await anext(events)) for _ in range(5)]
        assert [number for _, _, number in found] == [4, 5, 6, 7, 8]
        assert found[0][0] == "request.finished"


async def test_a_reader_that_is_too_slow_hears_how_much_it_missed() -> None:
    async with administered(FakeProvider()) as admin:
        reader, writer = await asyncio.open_connection(admin.gateway.host, admin.gateway.port)
        writer.write(
            f"GET {BASE}/events HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ADMIN}\r\n\r\n".encode()
        )
        await reader.readuntil(b": listening")
        # Larger than all buffers between here and there, and far more than the ring holds.
        problem = "x" * 20_000
        for number in range(3_000):
            told = ConfigReloaded(source=str(number), problem=problem, at=0.0)
            admin.engine.hooks.happened(told)
            if number % 500 == 0:
                # Requests are served as if nobody listened.
                assert (await admin.chat()).status_code == 200
        found = b""
        async with asyncio.timeout(30):
            while b"events.dropped" not in found:
                found = found[-100:] + await reader.read(1_000_000)
            while b'"dropped":' not in found or b"}" not in found.split(b'"dropped":', 1)[1]:
                found += await reader.read(1000)
        dropped = int(found.split(b'"dropped":', 1)[1].split(b"}")[0])
        assert dropped > 1_000
        writer.close()
        await writer.wait_closed()


async def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_events, "HEARTBEAT_S", 0.02)
    async with administered() as admin:
        async with admin.gateway.client.stream(
            "GET", f"{BASE}/events", headers=bearer(ADMIN)
        ) as response:
            lines = [line async for line in _some(response, 5)]
        assert lines == [": listening", "", ": nothing happened", "", ": nothing happened"]


async def _some(response: httpx.Response, number: int) -> AsyncIterator[str]:
    lines = response.aiter_lines()
    for _ in range(number):
        yield await anext(lines)


async def test_a_gateway_that_stops_ends_the_stream_at_once() -> None:
    async with administered() as admin, listening(admin) as events:
        admin.gateway.server.stop()
        assert [event async for event in events] == []


async def test_a_head_has_no_stream() -> None:
    async with administered() as admin:
        answer = await admin.call("HEAD", "events")
        assert (answer.status_code, answer.content) == (200, b"")


async def test_listeners_do_not_change_what_is_told_to_others() -> None:
    fake = FakeProvider([FakeReply(text="one"), FakeReply(text="two")])
    async with administered(fake) as admin, listening(admin) as first, listening(admin) as second:
        await admin.chat()
        one = [await anext(first) for _ in range(4)]
        two = [await anext(second) for _ in range(4)]
        assert one[1:] == two[1:]


def test_every_event_has_a_name_and_a_type() -> None:
    assert {*NAMES.values(), admin_events.DROPPED} == set(DATA)


def test_no_text_can_break_a_frame() -> None:
    record = RequestStarted(
        request_id="r", operation="chat", started=0.0, requested_model="a\n\nevent: b\rdata: c"
    )
    written = frame(Told(7, record))
    assert written.startswith(b"id: 7\nevent: request.started\ndata: {")
    assert written.count(b"\n") == 4
    assert b"\r" not in written
