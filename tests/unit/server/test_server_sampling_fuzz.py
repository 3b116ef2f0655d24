"""Random conversations over the WebSocket: nothing falls over, every request has one end."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.testing import FakeProvider, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import ENDS, params, socket_of
from tests.unit.server.test_server_sampling_ws_limits import raw_socket

Sent: TypeAlias = dict[str, Any] | str | bytes

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)


anything: st.SearchStrategy[Any] = st.recursive(scalars, nested, max_leaves=6)
NAMES = (
    *("messages", "maxTokens", "systemPrompt", "temperature", "stopSequences", "modelPreferences"),
    *("includeContext", "metadata", "tools", "toolChoice", "_meta", "model", "timeout", "stream"),
)
changes = st.dictionaries(st.sampled_from(NAMES), anything, max_size=3)
broken = st.builds(params, st.text(max_size=20)).flatmap(
    lambda whole: changes.map(lambda changed: whole | changed)
)
identifiers: st.SearchStrategy[Any] = st.integers(0, 4) | st.sampled_from(["a", "b", "é", "\x00"])
requests = st.fixed_dictionaries(
    {
        "type": st.just("createMessage"),
        "id": identifiers | anything,
        "params": st.builds(params, st.text(max_size=30)) | broken | anything,
    },
    optional={"stream": st.booleans() | anything, "requestId": st.text(max_size=5) | anything},
)
cancels = st.fixed_dictionaries({"type": st.just("cancel"), "id": identifiers | anything})
pings = st.fixed_dictionaries({"type": st.just("ping")}, optional={"id": identifiers | anything})
objects = st.dictionaries(st.sampled_from(["type", "id", "params"]), anything, max_size=3)
messages = st.one_of(requests, requests, requests, cancels, pings, objects, st.text(), st.binary())


def is_id(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= 128
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53


def ends_of(message: Sent) -> int:
    """How many messages that end something must come for this one."""
    if isinstance(message, str):
        with contextlib.suppress(ValueError):
            message = json.loads(message)
    if not isinstance(message, dict):
        return 1
    if message.get("type") == "cancel":
        return 0 if is_id(message.get("id")) else 1
    if message.get("type") == "ping":
        return 0 if message.get("id") is None or is_id(message["id"]) else 1
    return 1


async def converse(gateway: Gateway, story: Sequence[Sent]) -> None:
    expected = sum(map(ends_of, story))
    asked = Counter[Any](
        each["id"] for each in story if isinstance(each, dict) and is_id(each.get("id"))
    )
    ended: Counter[Any] = Counter()
    async with socket_of(gateway, max_queue=None) as socket, asyncio.timeout(20):
        for number, message in enumerate(story):
            if number % 5 == 4:  # so that mistakes are forgiven
                await socket.send(type="ping", id="-")
            plain = json.dumps(message) if isinstance(message, dict) else message
            await socket.connection.send(plain)
        while ended.total() < expected:
            told = await socket.next()
            if told["type"] in ENDS:
                ended[told["id"]] += 1
        await socket.send(type="ping", id="last")
        while (told := await socket.next()) != {"type": "pong", "id": "last"}:
            assert told["type"] == "pong", f"one end too many: {told}"
    for identifier, number in ended.items():
        assert identifier is None or number <= asked[identifier]
    for identifier, got in socket.received.items():
        if identifier is not None:
            check_order([each for each in got if each["type"] != "pong"])


def check_order(got: Sequence[dict[str, Any]]) -> None:
    """Chunks of one request come in order and before its end."""
    expected = 0
    for each in got:
        if each["type"] == "chunk":
            assert each["seq"] == expected
            expected += 1
        else:
            expected = 0
    assert expected == 0, "chunks without an end"


@pytest.mark.timeout(180)
def test_random_conversations(caplog: pytest.LogCaptureFixture) -> None:
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        gateway = runner.run(
            stack.enter_async_context(running_gateway(engine_with(FakeProvider())))
        )

        @settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(messages, max_size=25))
        def check(story: list[Any]) -> None:
            runner.run(converse(gateway, cast(list[Sent], story)))

        try:
            check()
            runner.run(converse(gateway, [{"type": "createMessage", "id": 1, "params": params()}]))
            assert gateway.server.running_requests == 0
        finally:
            runner.run(stack.aclose())
    assert not [record for record in caplog.records if record.exc_info]


async def speak(gateway: Gateway, data: bytes) -> None:
    async with raw_socket(gateway) as client:
        client.writer.write(data)
        client.writer.write_eof()
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                await client.reader.read()


@pytest.mark.timeout(180)
def test_random_bytes(caplog: pytest.LogCaptureFixture) -> None:
    heads = st.sampled_from(
        [b"\x81", b"\x01", b"\x80", b"\x00", b"\x82", b"\x88", b"\x89", b"\xf1"]
    )
    sizes = st.sampled_from([b"\x80", b"\x85", b"\xfd", b"\xfe\x00\x10", b"\xff" + b"\x00" * 8])
    frames = st.tuples(heads, sizes, st.binary()).map(b"".join)
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        gateway = runner.run(
            stack.enter_async_context(running_gateway(engine_with(FakeProvider())))
        )

        @settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(frames | st.binary(), max_size=6))
        def check(story: list[bytes]) -> None:
            runner.run(speak(gateway, b"".join(story)))

        try:
            check()
            runner.run(converse(gateway, [{"type": "createMessage", "id": 1, "params": params()}]))
        finally:
            runner.run(stack.aclose())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
