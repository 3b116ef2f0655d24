"""Answers on the wire: whole, framed right, and never with a header that a value made up."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from penstock.server.http.protocol import HttpProtocol
from penstock.server.process.serve import listen

Send = Callable[[dict[str, Any]], Awaitable[None]]
Ask = Callable[[bytes], Awaitable[bytes]]
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def serving(
    answer: Callable[[Send], Awaitable[None]],
) -> contextlib.AbstractAsyncContextManager[Ask]:
    """A server whose application does this for every request."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await answer(send)

    return serving_all(application)


def serving_scopes(
    answer: Callable[[Any, Send], Awaitable[None]],
) -> contextlib.AbstractAsyncContextManager[Ask]:
    """The same, for applications that look at the request."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await answer(scope, send)

    return serving_all(application)


@contextlib.asynccontextmanager
async def serving_all(
    application: Callable[[Any, Any, Any], Awaitable[None]],
) -> AsyncGenerator[Ask, None]:
    """A server with this application."""
    config = uvicorn.Config(
        application, http=HttpProtocol, lifespan="off", log_config=None, server_header=False
    )
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(server.serve([listener]))

        async def ask(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            try:
                return await reader.read()
            finally:
                writer.close()

        try:
            yield ask
        finally:
            server.should_exit = True
            await task


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def whole(send: Send) -> None:
    await send(start((b"content-length", b"5")))
    await send(body(b"hello"))


async def streamed(send: Send) -> None:
    await send(start())
    await send(body(b"one", more=True))
    await send(body(b"", more=True))
    await send(body(b"y" * 100_000, more=True))
    await send(body(b"end"))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"key", b"key"),
        (b"  key", b"key"),
        (b"key ", b"key"),
        (b" \t key \t \t", b"key"),
        (b"two words  ", b"two words"),
        (b" \t ", b""),
        (b"", b""),
        (b"k" * 4_000 + b" " * 4_000, b"k" * 4_000),
        (b"key\xa0", b"key\xa0"),
    ],
)
async def test_blanks_around_a_header_value_are_trimmed(written: bytes, read: bytes) -> None:
    async def headers_of(scope: Any, send: Send) -> None:
        found = [value for name, value in scope["headers"] if name in (b"x-key", b"x-api-key")]
        await send(start())
        await send(body(b"|".join(found)))

    async with serving_scopes(headers_of) as ask:
        lines = b"x-key:" + written + b"\r\nX-Api-Key:" + written + b"\r\n"
        answer = await ask(LAST.replace(b"host: x\r\n", b"host: x\r\n" + lines))
    value = read + b"|" + read
    assert answer.endswith(b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(value), value))


async def test_a_client_that_expects_100_with_a_blank_gets_it() -> None:
    async def echo(scope: Any, receive: Any, send: Send) -> None:
        message = await receive()
        await send(start())
        await send(body(message["body"]))

    post = LAST.replace(b"GET", b"POST").replace(
        b"host: x\r\n", b"host: x\r\nexpect: 100-continue \r\ncontent-length: 2\r\n"
    )
    async with serving_all(echo) as ask:
        assert (await ask(post + b"ok")).startswith(b"HTTP/1.1 100 Continue\r\n")


async def test_one_answer_follows_the_other_on_a_connection() -> None:
    async with serving(whole) as ask:
        answer = await ask(GET + GET + LAST)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answer.count(b"\r\n\r\nhello") == 3
    assert answer.count(b"connection: close\r\n") == 1
    assert b"\r\ndate: " in answer


async def test_an_answer_without_a_length_is_sent_in_chunks() -> None:
    async with serving(streamed) as ask:
        head, _, sent = (await ask(LAST)).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert sent == b"3\r\none\r\n186a0\r\n" + b"y" * 100_000 + b"\r\n3\r\nend\r\n0\r\n\r\n"


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_none(status: int) -> None:
    async def nothing(send: Send) -> None:
        await send(start(status=status))
        await send(body(b""))

    async with serving(nothing) as ask:
        head, _, sent = (await ask(LAST)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert sent == b""


async def test_who_asks_for_the_head_gets_the_head() -> None:
    async with serving(whole) as ask:
        head, _, sent = (await ask(LAST.replace(b"GET", b"HEAD"))).partition(b"\r\n\r\n")
    assert b"content-length: 5" in head
    assert sent == b""


async def test_an_answer_may_close_the_connection() -> None:
    async def parting(send: Send) -> None:
        await send(start((b"content-length", b"2"), (b"connection", b"Close")))
        await send(body(b"by"))

    async with serving(parting) as ask:
        answer = await ask(GET)
    assert answer.endswith(b"\r\n\r\nby")
    assert answer.lower().count(b"connection: close") == 1


@pytest.mark.parametrize(
    "value", [b"a\r\nset-cookie: b", b"a\nset-cookie: b", b"a\rb", b"a\0b", b"\r\n"]
)
async def test_a_value_that_would_make_a_header_of_its_own_is_never_sent(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def smuggling(send: Send) -> None:
        await send(start((b"content-length", b"2"), (b"x-model", value)))
        await send(body(b"by"))

    with caplog.at_level(logging.CRITICAL, "uvicorn.error"):
        async with serving(smuggling) as ask:
            assert await ask(LAST) == b""


@pytest.mark.parametrize("told", [b"4", b"6"])
async def test_a_body_of_another_length_than_announced_ends_the_connection(
    told: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def lying(send: Send) -> None:
        await send(start((b"content-length", told)))
        await send(body(b"hello"))

    with caplog.at_level(logging.CRITICAL, "uvicorn.error"):
        async with serving(lying) as ask:
            assert await ask(GET) == b""


async def test_messages_that_make_no_answer_are_refused() -> None:
    refused: list[str] = []

    async def muddled(send: Send) -> None:
        for message in (body(b"x"), start((b"content-length", b"1")), start(), body(b"x"), body()):
            try:
                await send(message)
            except RuntimeError as error:
                refused.append(str(error))

    def body(data: bytes = b"") -> dict[str, Any]:
        return {"type": "http.response.body", "body": data}

    async with serving(muddled) as ask:
        assert (await ask(LAST)).endswith(b"\r\n\r\nx")
    assert refused == [
        "'http.response.body' has no place here in an answer",
        "'http.response.start' has no place here in an answer",
        "'http.response.body' has no place here in an answer",
    ]
