"""A dialect at an address: what every provider over HTTP does alike."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest
import uvloop

from penstock.contract.errors import (
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, Usage, Vectors
from penstock.contract.messages import user
from penstock.contract.options import Capabilities
from penstock.contract.ports import ModelInfo
from penstock.providers import openai_chat
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.http_provider import WireProvider
from penstock.providers.wire.dialect import Dialect
from tests.support.loops import pass_time, timeless
from tests.support.plain import PLAIN, UNSAYABLE, event, said
from tests.support.raw import (
    LAST_CHUNK,
    OK_HEAD,
    STREAM_HEAD,
    Handler,
    Peer,
    RawServer,
    answering,
    chunk,
    read_to_their_end,
    whole,
)

ASK = SamplingRequest(messages=(user("hi"),), max_tokens=9)
IMPATIENT = TransportSettings(
    first_token_timeout_s=0.2, idle_timeout_s=0.2, keep_alive_timeout_s=0.2
)
END = event("[END]")
TEXT_AND_ERROR = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
    b'data: {"error": {"message": "no more"}}\n\n'
)
HANGING_S = 20.0
"""Less than the idle timeout of the transport."""


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport


@pytest.fixture
async def impatient() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport(IMPATIENT) as transport:
        yield transport


def provider_at(
    server: RawServer, transport: HttpTransport, dialect: Dialect = PLAIN
) -> WireProvider:
    return WireProvider(
        "mine",
        dialect,
        transport,
        kind="plain",
        url=f"{server.url}/v1/",
        key=Secret("sk-secret"),
        headers={"X-Team": "a"},
    )


async def read(provider: WireProvider, request: SamplingRequest = ASK) -> list[ProviderEvent]:
    return [event async for batch in provider.stream("m", request) for event in batch]


def streaming(*pieces: bytes) -> Handler:
    """Sends each piece as a chunk of its own, then the end of the body."""
    return answering(STREAM_HEAD + b"".join(map(chunk, pieces)) + LAST_CHUNK)


# Whole answers


async def test_a_whole_answer_is_asked_for_and_decoded(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b'{"text": "hello"}'))) as server:
        assert await provider_at(server, transport).generate("m", ASK) == said("hello")
    (request,) = server.requests
    assert request.line == "POST /v1/say HTTP/1.1"
    assert msgspec.json.decode(request.body) == {"model": "m", "text": "hi", "stream": False}
    assert request.headers["x-key"] == "sk-secret"
    assert request.headers["x-team"] == "a"
    assert request.headers["content-type"] == "application/json"


async def test_a_refusal_is_mapped_by_the_dialect_and_located(transport: HttpTransport) -> None:
    refusal = whole(b"slow down", status="429 Slow", headers="Wait: 7\r\n")
    async with RawServer(answering(refusal)) as server:
        provider = provider_at(server, transport)
        for call in (provider.generate("m", ASK), read(provider)):
            with pytest.raises(RateLimited, match="429 slow down") as caught:
                await call
            assert caught.value.retry_after == 7
            assert (caught.value.provider, caught.value.model) == ("mine", "m")
    assert server.connections == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b'{"error": "slow down"}', RateLimited), (b"<html>", MalformedResponse)],
)
async def test_an_error_inside_a_200_is_an_error(
    body: bytes, kind: type[PenstockError], transport: HttpTransport
) -> None:
    async with RawServer(answering(whole(body))) as server:
        with pytest.raises(kind) as caught:
            await provider_at(server, transport).generate("m", ASK)
    assert caught.value.provider == "mine"


async def test_what_the_dialect_cannot_write_is_located_and_not_sent(
    transport: HttpTransport,
) -> None:
    unsayable = SamplingRequest(messages=(user(UNSAYABLE),), max_tokens=9)
    async with RawServer(answering(whole())) as server:
        provider = provider_at(server, transport)
        for call in (provider.generate("m", unsayable), read(provider, unsayable)):
            with pytest.raises(InvalidRequest) as caught:
                await call
            assert (caught.value.provider, caught.value.model) == ("mine", "m")
    assert server.connections == 0


# Streams


async def test_a_stream_gives_a_batch_a_read_and_ends_with_its_reply(
    transport: HttpTransport,
) -> None:
    go_on = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(event("a") + event("b") + b"data: c"))
        await go_on.wait()
        await peer.send(chunk(b"c\n\n") + chunk(END) + LAST_CHUNK)

    async with RawServer(answer) as server:
        stream = provider_at(server, transport).stream("m", ASK)
        assert await anext(stream) == [Chunk("a"), Chunk("b")]
        go_on.set()
        assert [e async for batch in stream for e in batch] == [
            Chunk("cc"),
            Finished(said("abcc")),
        ]
    (request,) = server.requests
    assert msgspec.json.decode(request.body)["stream"] is True
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["accept-encoding"] == "identity"


async def test_a_last_event_without_its_blank_line_counts(transport: HttpTransport) -> None:
    async with RawServer(streaming(event("a"), b"data: [END]")) as server:
        assert await read(provider_at(server, transport)) == [Chunk("a"), Finished(said("a"))]


async def test_connections_are_used_again_after_finished_streams(transport: HttpTransport) -> None:
    async with RawServer(streaming(event("a"), END)) as server:
        for _ in range(5):
            assert await read(provider_at(server, transport)) == [Chunk("a"), Finished(said("a"))]
    assert server.connections == 1


async def test_a_reader_that_leaves_at_the_terminal_event_keeps_the_connection(
    transport: HttpTransport,
) -> None:
    async with RawServer(streaming(event("a"), END)) as server:
        provider = provider_at(server, transport)
        for _ in range(5):
            stream = provider.stream("m", ASK)
            async for batch in stream:
                if isinstance(batch[-1], Finished):
                    break
            await stream.aclose()
    assert server.connections == 1


async def test_the_end_of_a_body_that_comes_late_keeps_the_connection_too(
    transport: HttpTransport,
) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        while await peer.request():
            await peer.send(STREAM_HEAD + chunk(event("a")) + chunk(END))
            await left.wait()
            await peer.send(LAST_CHUNK)
            ended.set()

    async with RawServer(answer) as server:
        provider = provider_at(server, transport)
        assert (await read(provider))[-1] == Finished(said("a"))
        left.set()
        await ended.wait()
        await read_to_their_end()
        assert (await read(provider))[-1] == Finished(said("a"))
    assert server.connections == 1


async def test_leaving_a_stream_cuts_the_connection_within_a_second(
    transport: HttpTransport,
) -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(event("a")))
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server:
        stream = provider_at(server, transport).stream("m", ASK)
        assert await anext(stream) == [Chunk("a")]
        await stream.aclose()
        async with asyncio.timeout(30):
            await gone.wait()


async def test_a_body_that_never_ends_does_not_delay_the_answer_and_is_cut(
    transport: HttpTransport,
) -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(event("a")) + chunk(END))
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server:
        assert await read(provider_at(server, transport)) == [Chunk("a"), Finished(said("a"))]
        assert not gone.is_set()
        async with asyncio.timeout(30):
            await gone.wait()


async def test_many_streams_at_once(transport: HttpTransport) -> None:
    everybody = asyncio.Barrier(60)

    async def answer(peer: Peer) -> None:
        request = await peer.request()
        assert request is not None
        word = msgspec.json.decode(request.body)["text"]
        await peer.send(STREAM_HEAD + chunk(event(word)))
        await everybody.wait()
        await peer.send(chunk(event(word)) + chunk(END) + LAST_CHUNK)

    async with RawServer(answer) as server:
        provider = provider_at(server, transport)
        asked = [SamplingRequest(messages=(user(f"w{n}"),), max_tokens=9) for n in range(60)]
        streams = await asyncio.gather(*(read(provider, request) for request in asked))
    assert [stream[-1] for stream in streams] == [Finished(said(f"w{n}" * 2)) for n in range(60)]


# Streams that go wrong


async def test_a_stream_that_ends_early_is_interrupted_and_keeps_its_text(
    transport: HttpTransport,
) -> None:
    async with RawServer(streaming(event("a") + event("b"))) as server:
        stream = provider_at(server, transport).stream("m", ASK)
        assert await anext(stream) == [Chunk("a"), Chunk("b")]
        with pytest.raises(StreamInterrupted) as caught:
            await anext(stream)
    assert caught.value.partial == "ab"
    assert (caught.value.provider, caught.value.model) == ("mine", "m")


async def test_a_reset_is_an_interruption_with_its_cause(transport: HttpTransport) -> None:
    read_first = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(event("a")))
        await read_first.wait()
        peer.reset()

    async with RawServer(answer) as server:
        stream = provider_at(server, transport).stream("m", ASK)
        assert await anext(stream) == [Chunk("a")]
        read_first.set()
        with pytest.raises(StreamInterrupted) as caught:
            await anext(stream)
    assert caught.value.partial == "a"
    assert isinstance(caught.value.__cause__, ProviderUnavailable)


async def test_a_reset_after_the_terminal_event_has_lost_nothing(transport: HttpTransport) -> None:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(event("a")) + chunk(END))
        peer.reset()

    async with RawServer(answer) as server:
        assert (await read(provider_at(server, transport)))[-1] == Finished(said("a"))


async def test_a_failure_inside_the_stream_is_raised_after_what_came_before(
    transport: HttpTransport,
) -> None:
    async with RawServer(streaming(event("a"), event("!"))) as server:
        with pytest.raises(ProviderUnavailable, match="failed on its side") as caught:
            await read(provider_at(server, transport))
    assert caught.value.provider == "mine"


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("application/json", b'{"error": "slow down"}', RateLimited),
        ("Application/JSON; charset=utf-8", b'{"error": "slow down"}', RateLimited),
        ("application/json", b'{"text": "hello"}', MalformedResponse),
        ("text/html", b"<html>", MalformedResponse),
    ],
)
async def test_an_answer_that_is_no_stream_is_an_error(
    content_type: str, body: bytes, kind: type[PenstockError], transport: HttpTransport
) -> None:
    answer = whole(body, headers=f"content-type: {content_type}\r\n")
    async with RawServer(answering(answer)) as server:
        with pytest.raises(kind):
            await read(provider_at(server, transport))


async def test_a_stream_without_a_content_type_is_taken_for_one(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(event("a") + END))) as server:
        assert await read(provider_at(server, transport)) == [Chunk("a"), Finished(said("a"))]


# Silence


def repeating(first: bytes, again: bytes, every_s: float) -> Handler:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(first)
        watch = asyncio.create_task(peer.gone())
        while not watch.done():
            await peer.send(again)
            await asyncio.wait([watch], timeout=every_s)

    return answer


PING = chunk(b": ping\n\n")
PINGS = chunk(b": ping\n\n" * 10_000)


async def flood(peer: Peer) -> None:
    """Pings without end or pause: there is always something to read."""
    await peer.request()
    await peer.send(STREAM_HEAD)
    watch = asyncio.create_task(peer.gone())
    while not watch.done():
        await peer.send(PINGS)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "handler",
    [
        answering(STREAM_HEAD),
        answering(STREAM_HEAD + PING),
        repeating(STREAM_HEAD, PING, 0.02),
    ],
    ids=["silence", "one ping", "pings"],
)
async def test_no_token_in_time_is_a_timeout_whatever_else_comes(
    handler: Handler, impatient: HttpTransport
) -> None:
    async with RawServer(handler) as server:
        started = asyncio.get_running_loop().time()
        with pytest.raises(ProviderTimeout, match=r"no token came within 0\.2 s") as caught:
            await read(provider_at(server, impatient))
        assert asyncio.get_running_loop().time() - started < 20
    assert (caught.value.provider, caught.value.model) == ("mine", "m")


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_a_flood_of_pings_does_not_wash_the_time_limit_away(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def ask() -> None:
        async with RawServer(flood) as server, HttpTransport(IMPATIENT) as transport:
            await read(provider_at(server, transport))

    # The server's loop fires its timers later than the plain one.
    with (
        asyncio.Runner(loop_factory=new_loop) as runner,
        pytest.raises(ProviderTimeout, match=r"no token came within 0\.2 s"),
    ):
        runner.run(ask())


@timeless
async def test_a_ping_just_before_the_time_is_over_gains_none() -> None:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD)
        await pass_time(0.15)
        await peer.send(PING)
        # If the ping counted, this would be too short, and the test would never end.
        await pass_time(0.1)
        await peer.gone()

    async with RawServer(answer) as server, HttpTransport(IMPATIENT) as transport:
        with pytest.raises(ProviderTimeout, match=r"no token came within 0\.2 s"):
            await read(provider_at(server, transport))


@pytest.mark.parametrize(
    "handler",
    [
        answering(STREAM_HEAD + chunk(event("a"))),
        repeating(STREAM_HEAD + chunk(event("a")), PING, 0.02),
    ],
    ids=["silence", "pings"],
)
async def test_silence_in_mid_stream_is_an_interruption(
    handler: Handler, impatient: HttpTransport
) -> None:
    async with RawServer(handler) as server:
        started = asyncio.get_running_loop().time()
        with pytest.raises(StreamInterrupted) as caught:
            await read(provider_at(server, impatient))
        assert asyncio.get_running_loop().time() - started < 20
    assert caught.value.partial == "a"
    assert isinstance(caught.value.__cause__, ProviderTimeout)


KEPT_ALIVE = TransportSettings(
    first_token_timeout_s=0.2, idle_timeout_s=0.2, keep_alive_timeout_s=1.0
)


async def send_pings(peer: Peer, begun: bytes) -> None:
    """For 0.9 s, each within the limit of silence."""
    await peer.request()
    await peer.send(STREAM_HEAD + begun)
    for _ in range(6):
        await pass_time(0.15)
        await peer.send(PING)


@timeless
@pytest.mark.parametrize("begun", [b"", chunk(event("a"))], ids=["first token", "mid-stream"])
async def test_keep_alives_count_as_life(begun: bytes) -> None:
    async def answer(peer: Peer) -> None:
        await send_pings(peer, begun)
        await peer.send(chunk(event("b")) + chunk(END) + LAST_CHUNK)

    async with RawServer(answer) as server, HttpTransport(KEPT_ALIVE) as transport:
        events = await read(provider_at(server, transport))
    assert events[-1] == Finished(said("ab" if begun else "b"))


@timeless
@pytest.mark.parametrize("begun", [b"", chunk(event("a"))], ids=["first token", "mid-stream"])
async def test_keep_alives_count_for_a_limited_time_only(begun: bytes) -> None:
    async def answer(peer: Peer) -> None:
        await send_pings(peer, begun)
        await pass_time(0.11)
        await peer.gone()

    async with RawServer(answer) as server, HttpTransport(KEPT_ALIVE) as transport:
        with pytest.raises((ProviderTimeout, StreamInterrupted)) as caught:
            await read(provider_at(server, transport))
    error = caught.value.__cause__ if begun else caught.value
    assert isinstance(error, ProviderTimeout)
    assert str(error) == "no token came within 1 s, only keep-alive signals"
    assert not caught.value.retryable


@timeless
async def test_keep_alives_that_stop_are_silence() -> None:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD)
        await pass_time(0.15)
        await peer.send(PING)
        await pass_time(0.21)
        await peer.gone()

    async with RawServer(answer) as server, HttpTransport(KEPT_ALIVE) as transport:
        with pytest.raises(ProviderTimeout, match="only keep-alive signals"):
            await read(provider_at(server, transport))


async def test_an_error_behind_events_does_not_wait_for_the_next_bytes(
    transport: HttpTransport,
) -> None:
    """The server says nothing more and keeps the connection open."""

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(TEXT_AND_ERROR))
        await peer.gone()

    async with RawServer(answer) as server:
        stream = provider_at(server, transport, openai_chat.DIALECT).stream("m", ASK)
        assert await anext(stream) == [Chunk("a")]
        async with asyncio.timeout(HANGING_S):
            with pytest.raises(ProviderUnavailable, match="no more"):
                await anext(stream)


@timeless
async def test_a_slow_stream_lives_as_long_as_tokens_come() -> None:
    async def drip(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD)
        for _ in range(6):
            await pass_time(0.15)
            await peer.send(chunk(event("a")))
        await peer.send(chunk(END) + LAST_CHUNK)

    async with RawServer(drip) as server, HttpTransport(IMPATIENT) as transport:
        assert (await read(provider_at(server, transport)))[-1] == Finished(said("aaaaaa"))


@timeless
async def test_a_slow_consumer_is_not_taken_for_a_silent_provider() -> None:
    step = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(STREAM_HEAD + chunk(event("a")))
        await step.wait()
        await peer.send(chunk(END) + LAST_CHUNK)

    async with RawServer(answer) as server, HttpTransport(IMPATIENT) as transport:
        stream = provider_at(server, transport).stream("m", ASK)
        assert await anext(stream) == [Chunk("a")]
        await pass_time(0.3)  # longer than the provider may be silent
        step.set()
        assert await anext(stream) == [Finished(said("a"))]
        await stream.aclose()


# Embeddings, models, and the rest


def embedding(make: Callable[[int], Vectors]) -> Handler:
    return embedding_each(lambda texts: make(len(texts)))


def embedding_each(make: Callable[[list[str]], Vectors]) -> Handler:
    async def answer(peer: Peer) -> None:
        while request := await peer.request():
            texts = msgspec.json.decode(request.body)["texts"]
            await peer.send(whole(msgspec.json.encode(make(texts))))

    return answer


async def test_texts_are_embedded_in_batches_in_their_order(transport: HttpTransport) -> None:
    def make(texts: list[str]) -> Vectors:
        vectors = tuple((float(ord(text) - ord("a")),) for text in texts)
        return Vectors(vectors, "plain-1", Usage(len(texts)))

    async with RawServer(embedding_each(make)) as server:
        request = EmbeddingRequest(texts=tuple("abcde"))
        answer = await provider_at(server, transport).embed("m", request)
    vectors = ((0.0,), (1.0,), (2.0,), (3.0,), (4.0,))
    assert answer == Vectors(vectors, "plain-1", Usage(5), api_calls=3)
    # They are under way at once, and arrive in any order.
    assert sorted(msgspec.json.decode(sent.body)["texts"] for sent in server.requests) == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]


async def test_a_nameless_answer_is_of_the_model_that_was_asked(transport: HttpTransport) -> None:
    async with RawServer(embedding(lambda size: Vectors(((1.0,),) * size, ""))) as server:
        answer = await provider_at(server, transport).embed("m", EmbeddingRequest(texts=("a",)))
    assert answer.model == "m"


async def test_too_few_vectors_are_malformed(transport: HttpTransport) -> None:
    async with RawServer(embedding(lambda _: Vectors(((1.0,),), "m"))) as server:
        with pytest.raises(MalformedResponse, match="1 vectors came back for 2 texts") as caught:
            await provider_at(server, transport).embed("m", EmbeddingRequest(texts=("a", "b")))
    assert (caught.value.provider, caught.value.model) == ("mine", "m")


async def test_a_dialect_without_embeddings_says_so(transport: HttpTransport) -> None:
    mute = dataclasses.replace(PLAIN, embeddings=None)
    async with RawServer(answering(whole())) as server:
        with pytest.raises(InvalidRequest, match="mine offers no embeddings; choose another"):
            await provider_at(server, transport, mute).embed("m", EmbeddingRequest(texts=("a",)))
    assert server.requests == []


async def test_the_models_are_listed(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b'[{"id": "a"}, {"id": "b"}]'))) as server:
        assert await provider_at(server, transport).models() == [ModelInfo("a"), ModelInfo("b")]
    assert server.requests[0].line == "GET /v1/models HTTP/1.1"
    assert server.requests[0].headers["x-key"] == "sk-secret"


async def test_a_refused_listing_is_located(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b"no", status="500 Oops"))) as server:
        with pytest.raises(RateLimited) as caught:
            await provider_at(server, transport).models()
    assert caught.value.provider == "mine"


async def test_other_framings_ask_for_their_own_type(transport: HttpTransport) -> None:
    types = {"ndjson": "application/x-ndjson", "eventstream": "application/vnd.amazon.eventstream"}
    for framing, accepted in types.items():
        dialect = dataclasses.replace(PLAIN, framing=framing)
        async with RawServer(answering(OK_HEAD + b"content-length: 0\r\n\r\n")) as server:
            with pytest.raises(StreamInterrupted):
                await read(provider_at(server, transport, dialect))
        assert server.requests[0].headers["accept"] == accepted


async def test_a_frame_cut_off_by_the_end_is_an_interruption(transport: HttpTransport) -> None:
    dialect = dataclasses.replace(PLAIN, framing="eventstream")
    half = OK_HEAD + b"content-length: 6\r\n\r\n\0\0\0\x40\0\0"
    async with RawServer(answering(half)) as server:
        with pytest.raises(StreamInterrupted) as caught:
            await read(provider_at(server, transport, dialect))
    assert isinstance(caught.value.__cause__, MalformedResponse)


async def test_a_provider_shows_its_address_and_not_its_key(transport: HttpTransport) -> None:
    async with RawServer(answering(whole())) as server:
        provider = provider_at(server, transport)
        await provider.aclose()
    assert repr(provider) == f"WireProvider('mine', 'plain', '{server.url}/v1')"
    assert provider.capabilities("m") == Capabilities()


async def test_without_a_key_none_is_sent(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b"[]"))) as server:
        provider = WireProvider("mine", PLAIN, transport, kind="plain", url=server.url)
        assert await provider.models() == []
    assert "x-key" not in server.requests[0].headers
