"""Random bytes and random JSON: a whole answer or a closed connection, and never a 5xx."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.security.attack import Target, statuses, under_attack
from tests.security.doors import DOORS, FIELDS
from tests.support.keyed import bearer

pytestmark = pytest.mark.timeout(180)
quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@contextlib.contextmanager
def attacked(
    caplog: pytest.LogCaptureFixture,
) -> Generator[tuple[Target, Callable[[Awaitable[Any]], Any]]]:
    """A gateway for many examples, and what runs a coroutine beside it."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()

        def run(work: Awaitable[Any]) -> Any:
            async def wait() -> Any:
                return await work

            return runner.run(wait())

        target = run(stack.enter_async_context(under_attack(caplog)))
        try:
            yield target, run
        finally:
            run(stack.aclose())


async def shout(target: Target, pieces: list[bytes]) -> None:
    """Say this and no more; then somebody else is answered."""
    reader, writer = await asyncio.open_connection(target.gateway.host, target.gateway.port)
    answer = b""
    with contextlib.suppress(OSError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
    with contextlib.suppress(ConnectionError):
        while data := await asyncio.wait_for(reader.read(65_536), 30):
            answer += data
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    assert all(text.encode() not in answer for text in target.texts.values())
    if b" 101 " not in answer:
        statuses(answer, heads=b"HEAD" in b"".join(pieces))
    health = await target.gateway.client.get("/health")
    assert health.status_code == 200


METHODS = [b"GET", b"POST", b"HEAD", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"PRI", b"G"]
TARGETS = [
    *(b"/", b"*", b"/health", b"/v1/models", b"/v1/chat/completions", b"/admin/v1/keys"),
    *(b"/v1/sampling/ws", b"http://x/health", b"x:1", b"/%2e%2e/%zz", b"/\xff", b""),
]
LINES = [
    *(b"host: x", b"content-length: 2", b"content-length: 0", b"content-length: 99"),
    *(b"transfer-encoding: chunked", b"transfer-encoding: gzip", b"connection: close"),
    *(b"connection: keep-alive, upgrade", b"upgrade: websocket", b"upgrade: h2c"),
    *(b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", b"sec-websocket-version: 13"),
    *(b"expect: 100-continue", b"origin: https://evil.example", b" folded", b"no colon", b": b"),
    *(b"authorization: Bearer x", b"authorization: Basic x", b"x-api-key: \xff", b"te: trailers"),
]
BITS = [
    b"{}",
    b"0\r\n\r\n",
    b"2\r\n{}\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"zz\r\n",
    b"ffffffff\r\n",
]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Something that is nearly a request."""
    version = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b""]))
    first = b" ".join([draw(st.sampled_from(METHODS)), draw(st.sampled_from(TARGETS)), version])
    lines = draw(st.lists(st.sampled_from(LINES) | st.binary(max_size=20), max_size=5))
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"]))
    return end.join([first, *lines, b"", b""])


noise = st.binary(max_size=200) | st.sampled_from(BITS) | requests() | requests()


def test_any_bytes_are_answered_or_not_heard(caplog: pytest.LogCaptureFixture) -> None:
    with attacked(caplog) as (target, run):

        @quick
        @given(st.lists(noise, max_size=6))
        def check(pieces: list[bytes]) -> None:
            run(shout(target, pieces))

        check()


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["type", "text", "role", "content", "name", "id"]) | st.text(max_size=6)
    return st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4)


WORDS = [
    *("user", "assistant", "system", "tool", "text", "image_url", "tool_use", "tool_result"),
    *("function", "mcp", "json_schema", "input_text", "function_call", "reasoning", "thinking"),
    *("default", "fake/echo", "assistant", "secret-project", "auto", "required", "base64", "url"),
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(WORDS)
)
anything: st.SearchStrategy[Any] = st.recursive(scalars, nested, max_leaves=12)


@pytest.mark.parametrize("door", DOORS)
def test_any_json_is_a_request_or_a_mistake(door: str, caplog: pytest.LogCaptureFixture) -> None:
    body = st.dictionaries(st.sampled_from(FIELDS), anything, max_size=4).map(
        lambda changed: DOORS[door] | changed
    )
    with attacked(caplog) as (target, run):
        headers = bearer(target.texts["one"])

        @quick
        @given(body | anything)
        def check(value: Any) -> None:
            # Halves of characters and numbers that are none are written as Python writes them.
            data = json.dumps(value).encode()
            answer = run(target.gateway.client.post(door, content=data, headers=headers))
            assert answer.status_code in (200, 400, 404), answer.text
            assert b"internal_error" not in answer.content

        check()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_any_path_leads_somewhere_or_nowhere(method: str, caplog: pytest.LogCaptureFixture) -> None:
    parts = st.sampled_from(
        [*"/.%;\\?#*", "v1", "models", "admin", "health", "%2e", "%2f", "%00", "..", "requests"]
    ) | st.text(max_size=3)
    with attacked(caplog) as (target, run):

        async def ask(path: str, key: str | None) -> int:
            line = f"{method} /{path} HTTP/1.1\r\nhost: x\r\n".encode()
            shown = target.key if key else b""
            answer = await target.raw(line + shown + b"connection: close\r\n\r\n")
            return statuses(answer)[0]

        @quick
        @given(st.lists(parts, max_size=8).map("".join))
        def check(path: str) -> None:
            known, unknown = run(ask(path, "one")), run(ask(path, None))
            if unknown not in (400, 401):
                assert path.partition("?")[0].partition("#")[0] in ("", "health", "ready")
            # Nothing of the admin's is anybody else's.
            assert known in (200, 400, 403, 404, 405)

        check()
