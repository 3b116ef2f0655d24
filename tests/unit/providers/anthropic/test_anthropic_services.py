"""Keys, the model list, counting, and answers that pause."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import (
    AuthenticationFailed,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
)
from penstock.contract.events import Chunk, Finished
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.contract.messages import Reasoning, Text, assistant, user
from penstock.contract.options import OutputSchema, ToolDefinition
from penstock.contract.ports import ModelInfo
from penstock.providers.anthropic import DIALECT, authorize, count, models
from penstock.providers.anthropic.catalogue import CATALOGUE
from penstock.providers.anthropic.encode import encode
from penstock.providers.anthropic.resume import resume
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.http_provider import WireProvider
from penstock.providers.wire.multi_call import MAX_ROUNDS
from tests.support.raw import RawServer, answering, whole
from tests.unit.providers.anthropic.message_wire import (
    START,
    STOP,
    begin,
    body,
    ending,
    says,
    text,
    wire_bytes,
)

ASK = SamplingRequest(messages=(user("Hi"),), max_tokens=9)


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ("sk-ant-api03-x", {"x-api-key": "sk-ant-api03-x"}),
        ("sk-ant-admin01-x", {"x-api-key": "sk-ant-admin01-x"}),
        ("sk-ant-oat01-x", {"authorization": "Bearer sk-ant-oat01-x"}),
        ("sk-litellm", {"authorization": "Bearer sk-litellm"}),
        ("eyJhbGciOi", {"authorization": "Bearer eyJhbGciOi"}),
    ],
)
def test_a_key_is_told_from_a_token_by_its_beginning(key: str, headers: dict[str, str]) -> None:
    assert authorize(key) == headers


def test_the_list_of_models() -> None:
    call = models.call({"api_version": "2026-10-21"})
    assert (call.method, call.path) == ("GET", "/v1/models?limit=1000")
    assert call.headers == {"anthropic-version": "2026-10-21"}
    page = (
        b'{"data": [{"id": "a", "created_at": "2026-09-22T00:00:00Z"}, {"id": ""}, {"id": "b"},'
        b'{"id": "c", "created_at": 7}, {"id": "d", "created_at": "soon"}], "has_more": false}'
    )
    assert models.decode(page) == [
        ModelInfo("a", created=1_790_035_200),
        ModelInfo("b"),
        ModelInfo("c"),
        ModelInfo("d"),
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", MalformedResponse),
        (b"{}", MalformedResponse),
        (b"[]", MalformedResponse),
        (b'{"error": {"type": "authentication_error"}}', AuthenticationFailed),
        (b'{"type": "error", "error": {"type": "overloaded_error"}}', ProviderUnavailable),
    ],
)
def test_what_is_no_list_and_no_count(data: bytes, kind: type[PenstockError]) -> None:
    for decode in (models.decode, count.decode):
        with pytest.raises(PenstockError) as caught:
            decode(data)
        assert type(caught.value) is kind


def test_counting_asks_for_the_prompt_only() -> None:
    request = msgspec.structs.replace(
        ASK,
        system_prompt="S",
        temperature=0.5,
        stop_sequences=("x",),
        metadata={"user": "u"},
        tools=(ToolDefinition("f"),),
        output_schema=OutputSchema({"type": "null"}),
        reasoning_level="low",
    )
    call = count.encode("m", request, CATALOGUE.profile("anthropic", "m", {}))
    assert (call.method, call.path) == ("POST", "/v1/messages/count_tokens")
    assert call.headers == {"anthropic-version": "2023-06-01"}
    assert msgspec.json.decode(call.body or b"").keys() == {
        *("model", "messages", "system", "tools", "thinking", "output_config")
    }
    assert count.decode(b'{"input_tokens": 14}') == 14


def paused(*content: Any) -> Reply:
    return Reply(content, "m", "", Usage(), response_status="pause_turn")


def test_a_pause_is_resumed_with_what_was_said() -> None:
    thought = Reasoning(text="Hm", signature="s")
    follow = resume(ASK, paused(thought, Text("a")))
    assert follow is not None
    again = resume(follow, paused(Text("b")))
    assert again is not None
    # Even where no prefill is taken: the turn is the model's own.
    profile = CATALOGUE.profile("anthropic", "claude-opus-5-5", {})
    sent = msgspec.json.decode(encode("claude-opus-5-5", again, profile, False).body or b"")
    assert sent["messages"] == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "s"},
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b"},
            ],
        },
    ]


def test_what_is_not_paused_is_not_resumed() -> None:
    assert resume(ASK, Reply((Text("a"),), "m", "endTurn", Usage())) is None
    assert resume(ASK, Reply((), "m", "toolUse", Usage(), response_status="pause_turn")) is None
    assert resume(ASK, paused()) is ASK
    prefilled = msgspec.structs.replace(ASK, messages=(user("Hi"), assistant("a")))
    follow = resume(prefilled, paused(Text("b")))
    assert follow is not None
    assert [message.text for message in follow.messages] == ["Hi", "a", "b"]


def provider_at(url: str, transport: HttpTransport) -> WireProvider:
    key = Secret("sk-ant-api03-x")
    return WireProvider("a", DIALECT, transport, kind="anthropic", url=url, key=key)


async def test_a_paused_answer_is_one_answer() -> None:
    pause = whole(
        body(text("Hel"), stop="pause_turn"), headers="content-type: application/json\r\n"
    )
    end = whole(body(text("lo")), headers="content-type: application/json\r\n")
    async with RawServer(answering(pause, pause, end)) as server, HttpTransport() as transport:
        reply = await provider_at(server.url, transport).generate("claude-x", ASK)
    assert (reply.text, reply.stop_reason, reply.api_calls) == ("HelHello", "endTurn", 3)
    assert reply.usage.output_tokens == 21
    sent = [msgspec.json.decode(request.body)["messages"] for request in server.requests]
    assert [len(messages) for messages in sent] == [1, 2, 2]
    assert sent[2][1]["content"] == [text("Hel"), text("Hel")]


async def test_a_paused_stream_is_one_stream() -> None:
    def stream(said: str, reason: str) -> bytes:
        events = (START, begin(0, text("")), says(0, said), ending(reason), STOP)
        return whole(wire_bytes(events), headers="content-type: text/event-stream\r\n")

    handler = answering(stream("Hel", "pause_turn"), stream("lo", "end_turn"))
    async with RawServer(handler) as server, HttpTransport() as transport:
        stream_of = provider_at(server.url, transport).stream("claude-x", ASK)
        events = [event async for batch in stream_of for event in batch]
    assert events[:-1] == [Chunk("Hel"), Chunk("lo")]
    assert isinstance(last := events[-1], Finished)
    assert (last.reply.text, last.reply.api_calls) == ("Hello", 2)


async def test_an_endless_pause_is_no_answer() -> None:
    pause = whole(body(text("x"), stop="pause_turn"), headers="content-type: application/json\r\n")
    async with (
        RawServer(answering(*[pause] * MAX_ROUNDS)) as server,
        HttpTransport() as transport,
    ):
        with pytest.raises(ProviderUnavailable, match="no end of the answer"):
            await provider_at(server.url, transport).generate("claude-x", ASK)
