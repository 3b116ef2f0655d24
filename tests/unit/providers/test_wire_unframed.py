"""A 200 that says it is a stream of events, and holds bare JSON instead."""

from collections.abc import AsyncGenerator

import pytest

from penstock.contract.errors import (
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.providers import anthropic, gemini, openai_chat, openai_responses
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.http_provider import WireProvider
from penstock.providers.wire.dialect import Dialect
from tests.support.plain import PLAIN, event
from tests.support.raw import LAST_CHUNK, STREAM_HEAD, Peer, RawServer, answering, chunk

ASK = SamplingRequest(messages=(user("hi"),), max_tokens=9)
SLOW = b"""{
  "error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED",
            "type": "rate_limit_error"}
}"""
EVENTS = [anthropic.DIALECT, gemini.DIALECT, openai_chat.DIALECT, openai_responses.DIALECT]
# Of these two, one list of errors is Google's own, and the other its Chat endpoint's.
GOOGLE = [gemini.DIALECT, openai_chat.DIALECT]


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport(TransportSettings(first_token_timeout_s=0.2)) as transport:
        yield transport


async def failure_of(
    transport: HttpTransport, dialect: Dialect, *pieces: bytes, end: bytes = LAST_CHUNK
) -> PenstockError:
    answer = STREAM_HEAD + b"".join(map(chunk, pieces)) + end
    async with RawServer(answering(answer)) as server:
        return await failure_at(server, transport, dialect)


async def failure_at(
    server: RawServer, transport: HttpTransport, dialect: Dialect
) -> PenstockError:
    provider = WireProvider("mine", dialect, transport, kind="any", url=server.url)
    with pytest.raises(PenstockError) as caught:
        async for _ in provider.stream("m", ASK):
            pass
    return caught.value


@pytest.mark.parametrize("dialect", EVENTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"\r\n\r\n"])
async def test_a_bare_error_is_that_error(
    dialect: Dialect, ending: bytes, transport: HttpTransport
) -> None:
    error = await failure_of(transport, dialect, SLOW[:20], SLOW[20:] + ending)
    assert type(error) is RateLimited
    assert "slow" in str(error)
    assert error.provider == "mine"


@pytest.mark.parametrize("dialect", GOOGLE, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("framed", [False, True])
async def test_an_error_in_a_list_is_that_error(
    dialect: Dialect, framed: bool, transport: HttpTransport
) -> None:
    listed = b"[" + SLOW + b"]"
    if framed:
        listed = b"data: " + listed.replace(b"\n", b"") + b"\n\n"
    assert type(await failure_of(transport, dialect, listed)) is RateLimited


async def test_an_answer_that_ignores_the_wish_for_a_stream_is_malformed(
    transport: HttpTransport,
) -> None:
    error = await failure_of(transport, PLAIN, b'{"text": "hello"}')
    assert type(error) is MalformedResponse
    assert "JSON without events came back" in str(error)


@pytest.mark.parametrize("dialect", EVENTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("body", [SLOW[:40], b"upstream gone", b": ping\n\n", b"", b"{" * 99_999])
async def test_what_is_no_whole_json_is_an_interruption(
    dialect: Dialect, body: bytes, transport: HttpTransport
) -> None:
    pieces = [body] if body else []
    assert type(await failure_of(transport, dialect, *pieces)) is StreamInterrupted


async def test_bare_json_behind_an_event_is_not_looked_at(transport: HttpTransport) -> None:
    error = await failure_of(transport, PLAIN, event("a"), b'{"error": "slow down"}')
    assert type(error) is StreamInterrupted
    assert error.partial == "a"


async def test_a_bare_error_is_told_even_if_the_connection_breaks_behind_it(
    transport: HttpTransport,
) -> None:
    error = await failure_of(transport, PLAIN, b'{"error": "slow down"}', end=b"")
    assert type(error) is RateLimited


async def test_a_bare_error_is_told_even_if_nothing_follows_it(transport: HttpTransport) -> None:
    async def say_and_wait(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(b'{"error": "slow down"}'))
        await peer.gone()

    async with RawServer(say_and_wait) as server:
        error = await failure_at(server, transport, PLAIN)
    assert type(error) is RateLimited


async def test_an_error_that_tells_nothing_is_the_providers_failure(
    transport: HttpTransport,
) -> None:
    error = await failure_of(transport, gemini.DIALECT, b'{"error": {"message": "well"}}')
    assert type(error) is ProviderUnavailable
