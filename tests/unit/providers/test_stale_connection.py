"""A server that closes a connection after its answer without having said so."""

import asyncio

import pytest

from penstock.providers.http.transport import HttpTransport
from penstock.providers.wire.dialect import WireCall
from tests.support.raw import CHUNKED_HEAD, LAST_CHUNK, Peer, RawServer, chunk


async def close_after_the_answer(peer: Peer) -> None:
    if await peer.request():
        peer.writer.write(CHUNKED_HEAD + chunk(b"{}") + LAST_CHUNK)
        peer.writer.close()


@pytest.mark.parametrize("turns_of_the_loop_between_requests", [0, 1, 2, 5])
async def test_the_next_request_is_sent_once_on_another_connection(
    turns_of_the_loop_between_requests: int,
) -> None:
    async with RawServer(close_after_the_answer) as server, HttpTransport() as transport:
        for number in range(20):
            answer = await transport.request(server.url, WireCall("/", b'{"a":%d}' % number), {})
            assert answer.body == b"{}"
            for _ in range(turns_of_the_loop_between_requests):
                await asyncio.sleep(0)
    assert [request.body for request in server.requests] == [b'{"a":%d}' % n for n in range(20)]
