"""The call to llama.cpp's own port, against servers whose every byte is known."""

from __future__ import annotations

import asyncio

import pytest

from penstock.providers.embedded.count import PATH, count_tokens
from tests.support.raw import RawServer, answering, unused_port, whole


async def count_at(*responses: bytes) -> tuple[RawServer, int]:
    async with RawServer(answering(*responses)) as server:
        return server, await asyncio.to_thread(count_tokens, server.url, "sk-own", '{"é": 1}')


async def test_the_body_goes_out_with_the_key() -> None:
    server, tokens = await count_at(whole(b'{"input_tokens": 19, "object": "x"}'))
    assert tokens == 19
    (request,) = server.requests
    assert request.line == f"POST {PATH} HTTP/1.1"
    assert request.headers["authorization"] == "Bearer sk-own"
    assert request.body == '{"é": 1}'.encode()


@pytest.mark.parametrize(
    ("response", "kind", "said"),
    [
        (whole(b'{"error": {"message": "bad"}}', status="400 Bad Request"), ValueError, "bad"),
        (whole(b'{"error": {"message": "oh"}}', status="500 Error"), RuntimeError, "oh"),
        (whole(b"{}", status="500 Error"), RuntimeError, "status 500"),
        (whole(b"no json"), RuntimeError, "does not count"),
        (b"no http\r\n\r\n", RuntimeError, "does not count"),
    ],
)
async def test_failures_are_those_of_a_completion(
    response: bytes, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        await count_at(response)


async def test_nobody_there_is_a_failure() -> None:
    with pytest.raises(RuntimeError, match="does not count"):
        count_tokens(f"http://127.0.0.1:{await unused_port()}", "k", "{}")
