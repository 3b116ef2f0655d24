"""What a dialect may add to a call: resumed pauses, dropped options, signatures, counts."""

import dataclasses
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest

from penstock.contract.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
    UnsupportedOption,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest
from penstock.contract.messages import assistant, user
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.http_provider import WireProvider
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import CountDialect, Dialect, Options, Signer, WireCall
from penstock.providers.wire.multi_call import MAX_ROUNDS
from tests.support.plain import PLAIN, event
from tests.support.raw import (
    LAST_CHUNK,
    STREAM_HEAD,
    RawServer,
    answering,
    chunk,
    whole,
)

ASK = SamplingRequest(messages=(user("hi"),), max_tokens=9, temperature=0.5)
REFUSED = whole(b"no temperature", status="400 Bad Request")
END = event("[END]")


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport


def provider_at(
    server: RawServer, transport: HttpTransport, options: Options | None = None, **changes: Any
) -> WireProvider:
    dialect: Dialect = dataclasses.replace(PLAIN, **changes)
    return WireProvider(
        "mine",
        dialect,
        transport,
        kind="plain",
        url=server.url,
        key=Secret("sk-secret"),
        headers={"X-Extra": "1"},
        options=options,
    )


async def read(provider: WireProvider) -> list[ProviderEvent]:
    return [event async for batch in provider.stream("m", ASK) for event in batch]


def streamed(*words: str) -> bytes:
    pieces = [*map(event, words), END]
    return STREAM_HEAD + b"".join(map(chunk, pieces)) + LAST_CHUNK


def text(words: str) -> bytes:
    return whole(msgspec.json.encode({"text": words}))


def prompts(server: RawServer) -> list[str]:
    return [msgspec.json.decode(request.body)["text"] for request in server.requests]


def one_reply(events: list[ProviderEvent]) -> Reply:
    ends = [event for event in events if isinstance(event, Finished)]
    assert ends == events[-1:]
    return ends[0].reply


# Pauses


def go_on(request: SamplingRequest, reply: Reply) -> SamplingRequest | None:
    """An answer that ends in dots is only paused."""
    if not reply.text.endswith("..."):
        return None
    turns = (*request.messages, assistant(reply.text), user(f"after {reply.text}"))
    return msgspec.structs.replace(request, messages=turns)


async def test_a_paused_answer_is_one_answer(transport: HttpTransport) -> None:
    async with RawServer(answering(text("One..."), text(" two..."), text(" three."))) as server:
        reply = await provider_at(server, transport, resume=go_on).generate("m", ASK)
    assert reply.text == "One... two... three."
    assert (reply.api_calls, reply.stop_reason) == (3, "endTurn")
    assert reply.usage.output_tokens == len(reply.text)
    assert prompts(server) == ["hi", "after One...", "after  two..."]


async def test_a_paused_stream_is_one_stream(transport: HttpTransport) -> None:
    answers = streamed("One", "..."), streamed(" two", "..."), streamed(" three.")
    async with RawServer(answering(*answers)) as server:
        events = await read(provider_at(server, transport, resume=go_on))
    assert [event.text for event in events if isinstance(event, Chunk)] == [
        *("One", "...", " two", "...", " three.")
    ]
    reply = one_reply(events)
    assert (reply.text, reply.api_calls) == ("One... two... three.", 3)
    assert prompts(server) == ["hi", "after One...", "after  two..."]


async def test_an_answer_that_pauses_for_ever_is_given_up(transport: HttpTransport) -> None:
    async with RawServer(answering(text("..."))) as server:
        with pytest.raises(ProviderUnavailable, match="no end of the answer"):
            await provider_at(server, transport, resume=go_on).generate("m", ASK)
    assert len(server.requests) == MAX_ROUNDS
    async with RawServer(answering(streamed("..."))) as server:
        with pytest.raises(ProviderUnavailable, match="no end of the answer"):
            await read(provider_at(server, transport, resume=go_on))
    assert len(server.requests) == MAX_ROUNDS


async def test_a_later_round_may_fail(transport: HttpTransport) -> None:
    failure = whole(b"slow", status="429 Slow")
    async with RawServer(answering(text("One..."), failure)) as server:
        with pytest.raises(RateLimited) as caught:
            await provider_at(server, transport, resume=go_on).generate("m", ASK)
    assert (caught.value.provider, caught.value.model) == ("mine", "m")
    cut = STREAM_HEAD + chunk(event("two")) + LAST_CHUNK
    async with RawServer(answering(streamed("One", "..."), cut)) as server:
        events: list[ProviderEvent] = []
        stream = provider_at(server, transport, resume=go_on).stream("m", ASK)
        with pytest.raises(StreamInterrupted) as interrupted:
            events += [event async for batch in stream for event in batch]
    assert interrupted.value.partial.startswith("One")
    assert interrupted.value.partial.endswith("two")
    assert not any(isinstance(event, Finished) for event in events)


# Options that are dropped


def refuse(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    return InvalidRequest(body.decode(), status=status)


def relax(request: SamplingRequest, error: PenstockError) -> tuple[SamplingRequest, str] | None:
    if error.status != 400 or request.temperature is None:
        return None
    return msgspec.structs.replace(request, temperature=None), "temperature"


async def test_a_refused_option_is_dropped_and_named(transport: HttpTransport) -> None:
    for call, answer in (("generate", text("ok")), ("stream", streamed("o", "k"))):
        async with RawServer(answering(REFUSED, answer)) as server:
            provider = provider_at(server, transport, error=refuse, relax=relax)
            if call == "generate":
                reply = await provider.generate("m", ASK)
            else:
                reply = one_reply(await read(provider))
        assert (reply.text, reply.dropped_options, reply.api_calls) == ("ok", ("temperature",), 2)
        assert len(server.requests) == 2


async def test_what_the_dialect_itself_refuses_to_write_is_relaxed_too(
    transport: HttpTransport,
) -> None:
    def picky(
        model: str, request: SamplingRequest, profile: ModelProfile, stream: bool
    ) -> WireCall:
        if request.temperature is not None:
            raise InvalidRequest("no temperature", status=400)
        return PLAIN.encode(model, request, profile, stream)

    async with RawServer(answering(text("ok"), streamed("o", "k"))) as server:
        provider = provider_at(server, transport, encode=picky, relax=relax)
        replies = [await provider.generate("m", ASK), one_reply(await read(provider))]
    for reply in replies:
        assert (reply.text, reply.dropped_options) == ("ok", ("temperature",))
    assert len(server.requests) == 2


async def test_a_second_refusal_is_final(transport: HttpTransport) -> None:
    async with RawServer(answering(REFUSED)) as server:
        provider = provider_at(server, transport, error=refuse, relax=relax)
        with pytest.raises(InvalidRequest, match="no temperature"):
            await provider.generate("m", ASK)
        with pytest.raises(InvalidRequest, match="no temperature"):
            await read(provider)
    assert len(server.requests) == 4


async def test_without_a_way_to_relax_the_first_refusal_is_final(transport: HttpTransport) -> None:
    async with RawServer(answering(REFUSED)) as server:
        provider = provider_at(server, transport, error=refuse)
        with pytest.raises(InvalidRequest):
            await provider.generate("m", ASK)
        with pytest.raises(InvalidRequest):
            await read(provider)
    assert len(server.requests) == 2


async def test_a_dialect_that_relaxes_for_ever_is_given_up(transport: HttpTransport) -> None:
    def again(request: SamplingRequest, error: PenstockError) -> tuple[SamplingRequest, str]:
        return request, "x"

    async with RawServer(answering(REFUSED)) as server:
        provider = provider_at(server, transport, error=refuse, relax=again)
        for call in (provider.generate("m", ASK), read(provider)):
            with pytest.raises(ProviderUnavailable, match="no end") as caught:
                await call
            assert not caught.value.retryable
    assert len(server.requests) == 2 * MAX_ROUNDS


async def test_other_errors_are_not_relaxed(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b"slow", status="429 Slow"))) as server:
        provider = provider_at(server, transport, relax=relax)
        with pytest.raises(RateLimited):
            await provider.generate("m", ASK)
    assert len(server.requests) == 1


async def test_a_refusal_and_a_pause_in_one_answer(transport: HttpTransport) -> None:
    answers = REFUSED, text("One..."), text(" two.")
    async with RawServer(answering(*answers)) as server:
        provider = provider_at(server, transport, error=refuse, relax=relax, resume=go_on)
        reply = await provider.generate("m", ASK)
    assert (reply.text, reply.dropped_options) == ("One... two.", ("temperature",))
    assert reply.api_calls == 3


# Signatures


def signer(key: Secret | None, options: Options) -> Signer:
    async def sign(call: WireCall, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        secret = key.reveal() if key else ""
        size = len(call.body or b"")
        return {
            "x-signature": f"{secret[:2]} {options['region']} {call.method} {size} {url}",
            "x-signed": " ".join(sorted(headers)),
        }

    return sign


async def test_every_call_is_signed_and_the_key_itself_is_not_sent(
    transport: HttpTransport,
) -> None:
    vectors = whole(b'{"vectors": [[1.0]], "model": "e"}')
    answers = text("a"), streamed("b"), whole(b"[]"), vectors
    async with RawServer(answering(*answers)) as server:
        provider = provider_at(server, transport, {"region": "eu"}, signer=signer)
        await provider.generate("m", ASK)
        await read(provider)
        await provider.models()
        await provider.embed("e", EmbeddingRequest(texts=("x",)))
        paths = ["POST", "POST", "GET", "POST"], ["/say", "/say", "/models", "/embed"]
    for request, method, path in zip(server.requests, *paths, strict=True):
        size = len(request.body)
        assert request.headers["x-signature"] == f"sk eu {method} {size} {server.url}{path}"
        signed = set(request.headers["x-signed"].split())
        assert {"content-type", "x-extra"} <= signed <= request.headers.keys()
        assert ("accept" in signed) == (request is server.requests[1]), "as streams ask for theirs"
        assert "x-key" not in request.headers
        assert "sk-secret" not in str(request.headers)


# Counting


def encode_count(model: str, request: SamplingRequest, profile: ModelProfile) -> WireCall:
    body = {"model": model, "text": request.messages[-1].text, "size": profile.options["size"]}
    return WireCall("/count", msgspec.json.encode(body))


COUNT = CountDialect(encode_count, lambda body: msgspec.json.decode(body, type=int))


async def test_tokens_are_counted_by_the_provider(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b"42"))) as server:
        provider = provider_at(server, transport, {"size": 7}, count=COUNT)
        assert await provider.count_tokens("m", ASK) == 42
    (request,) = server.requests
    assert request.line == "POST /count HTTP/1.1"
    assert request.headers["x-key"] == "sk-secret"
    assert msgspec.json.decode(request.body) == {"model": "m", "text": "hi", "size": 7}


async def test_a_provider_without_counting_says_nothing(transport: HttpTransport) -> None:
    async with RawServer(answering(b"")) as server:
        assert await provider_at(server, transport).count_tokens("m", ASK) is None
    assert not server.requests


async def test_a_model_that_is_not_counted_is_not_asked_about(transport: HttpTransport) -> None:
    nobody = CountDialect(lambda model, request, profile: None, int)
    async with RawServer(answering(b"")) as server:
        assert await provider_at(server, transport, count=nobody).count_tokens("m", ASK) is None
    assert not server.requests


async def test_a_failed_count_is_located(transport: HttpTransport) -> None:
    def too_long(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
        return ContextLengthExceeded("too long", status=status)

    async with RawServer(answering(whole(b"", status="400 Bad"))) as server:
        provider = provider_at(server, transport, {"size": 7}, count=COUNT, error=too_long)
        with pytest.raises(ContextLengthExceeded) as caught:
            await provider.count_tokens("m", ASK)
    assert (caught.value.provider, caught.value.model) == ("mine", "m")


async def test_a_provider_without_embeddings_refuses_them_by_name(
    transport: HttpTransport,
) -> None:
    async with RawServer(answering(b"")) as server:
        with pytest.raises(UnsupportedOption) as caught:
            await provider_at(server, transport, embeddings=None).embed(
                "m", EmbeddingRequest(texts=("x",))
            )
    assert caught.value.options == ("embeddings",)
    assert not server.requests


async def test_a_call_may_have_an_address_of_its_own(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b"[]"))) as other, RawServer(answering(b"")) as server:

        def call(url: str, options: Options) -> WireCall:
            return WireCall(f"{other.url}/all", method="GET")

        elsewhere = dataclasses.replace(PLAIN.models, call=call)
        assert await provider_at(server, transport, models=elsewhere).models() == []
    assert [request.line for request in other.requests] == ["GET /all HTTP/1.1"]
    assert not server.requests
