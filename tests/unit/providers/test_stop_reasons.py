"""The table of stop reasons, row by row, whole and streamed, and against the official SDKs."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Sequence
from typing import Any

import anthropic.types.beta
import botocore.session
import msgspec
import openai.types.chat.chat_completion
import openai.types.responses
import openai.types.responses.response
import pytest
from google.genai import types as google

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import user
from penstock.providers import anthropic as anthropic_dialect
from penstock.providers import bedrock, gemini, ollama, openai_chat, openai_responses
from penstock.providers.embedded.decode import Decoder
from penstock.providers.embedded.encode import ChatCall
from penstock.providers.wire.dialect import Dialect
from penstock.providers.wire.stop_reasons import STOP_REASONS, StopReasonRow, meaning_of
from penstock.streaming.eventstream import EventStreamMessage
from penstock.streaming.sse import ServerSentEvent
from penstock.testing import FakeProvider, FakeReply

ERRORS: dict[str, type[PenstockError]] = {
    "filter": ContentRejected,
    "error": ProviderUnavailable,
    "malformed": MalformedResponse,
    # No answer here calls a tool.
    "tool_use": MalformedResponse,
}
STOPS = {
    "end": "endTurn",
    "stop_sequence": "stopSequence",
    "max_tokens": "maxTokens",
    "resume": "maxTokens",
    "none": "endTurn",
}


def sse(*events: dict[str, Any]) -> list[ServerSentEvent]:
    return [
        ServerSentEvent(msgspec.json.encode(event), event.get("type", "message"))
        for event in events
    ]


def chat(reason: str) -> tuple[bytes, list[Any]]:
    """An answer of one word that ends for this reason: its body, and the frames of its stream."""

    def answer(key: str) -> dict[str, Any]:
        choice = {"index": 0, key: {"content": "Half"}, "finish_reason": reason}
        return {"id": "r", "model": "m", "choices": [choice]}

    return msgspec.json.encode(answer("message")), [
        *sse(answer("delta")),
        ServerSentEvent(b"[DONE]"),
    ]


def responses(reason: str) -> tuple[bytes, list[Any]]:
    item = {
        "type": "message",
        "id": "i",
        "content": [{"type": "output_text", "text": "Half"}],
    }
    response = {
        "id": "r",
        "model": "m",
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "output": [item],
    }
    return msgspec.json.encode(response), sse(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Half"},
        {"type": "response.incomplete", "response": response},
    )


def messages(reason: str) -> tuple[bytes, list[Any]]:
    head: dict[str, Any] = {"type": "message", "id": "r", "model": "m", "content": []}
    block = {"type": "text", "text": "Half"}
    return msgspec.json.encode({**head, "content": [block], "stop_reason": reason}), sse(
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {"stop_reason": reason}},
        {"type": "message_stop"},
    )


def content(reason: str) -> tuple[bytes, list[Any]]:
    candidate = {"content": {"parts": [{"text": "Half"}]}, "finishReason": reason, "index": 0}
    answer = {"candidates": [candidate]}
    return msgspec.json.encode(answer), sse(answer)


def converse(reason: str) -> tuple[bytes, list[Any]]:
    message = {"role": "assistant", "content": [{"text": "Half"}]}
    events: tuple[tuple[str, Any], ...] = (
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Half"}}),
        ("messageStop", {"stopReason": reason}),
        ("metadata", {}),
    )
    return msgspec.json.encode({"output": {"message": message}, "stopReason": reason}), [
        EventStreamMessage({":event-type": kind}, msgspec.json.encode(event))
        for kind, event in events
    ]


def lines(reason: str) -> tuple[bytes, list[Any]]:
    last = {"model": "m", "message": {"content": "Half"}, "done": True, "done_reason": reason}
    body = msgspec.json.encode(last)
    return body, [body]


Render = Callable[[str], tuple[bytes, list[Any]]]
DIALECTS: dict[str, tuple[Dialect, Render]] = {
    "openai-chat": (openai_chat.DIALECT, chat),
    "openai": (openai_responses.DIALECT, responses),
    "anthropic": (anthropic_dialect.DIALECT, messages),
    "gemini": (gemini.DIALECT, content),
    "bedrock": (bedrock.DIALECT, converse),
    "ollama": (ollama.DIALECT, lines),
}


def read(dialect: Dialect, frames: Sequence[Any]) -> Reply:
    """The reply of a stream, however its frames are cut into reads."""
    decoder = dialect.stream_decoder({})
    events: list[ProviderEvent] = []
    for frame in frames:
        events += decoder.feed([frame])
    events += decoder.finish()
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reply


def both(kind: str, reason: str) -> list[Callable[[], Reply]]:
    dialect, render = DIALECTS[kind]
    body, frames = render(reason)
    return [lambda: dialect.decode(body, {}), lambda: read(dialect, frames)]


def written(row: StopReasonRow) -> list[str]:
    return [row.reason, row.reason.upper(), row.reason.replace("_", "-")]


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("row", STOP_REASONS, ids=lambda row: row.reason)
def test_each_row_on_each_wire(kind: str, row: StopReasonRow) -> None:
    for reason in written(row):
        for streamed, answer in enumerate(both(kind, reason)):
            expected = STOPS.get(row.meaning)
            if (kind, reason) == ("anthropic", "pause_turn"):
                expected = ""
            if kind == "openai" and row.meaning in ("end", "stop_sequence", "none"):
                # The status says that it is incomplete.
                expected = "maxTokens"
            if expected is None:
                with pytest.raises(ERRORS[row.meaning]) as caught:
                    answer()
                assert type(caught.value) is ERRORS[row.meaning]
                assert caught.value.retryable is (row.meaning != "filter")
                if isinstance(caught.value, ContentRejected):
                    assert caught.value.partial == "Half"
            elif streamed and kind == "gemini" and row.meaning == "none":
                # Nothing else ends a stream of this wire.
                with pytest.raises(StreamInterrupted):
                    answer()
            else:
                reply = answer()
                assert (reply.text, reply.stop_reason) == ("Half", expected)
                missing = row.meaning == "none" and kind != "openai"
                assert reply.stop_detail == ("missing" if missing else None)


@pytest.mark.parametrize("kind", DIALECTS)
@pytest.mark.parametrize("reason", ["of_tomorrow", "stop_of_tomorrow", "stop: of_tomorrow"])
def test_an_unknown_reason_is_kept_by_its_name(kind: str, reason: str) -> None:
    for answer in both(kind, reason):
        reply = answer()
        assert (reply.text, reply.stop_reason, reply.stop_detail) == ("Half", reason, reason)


def _embedded(reason: str) -> Reply:
    decoder = Decoder(ChatCall(body=""), model="m")
    chunks = chat(reason)[1][:-1]
    (*_, last) = decoder.feed([frame.data.decode() for frame in chunks])
    assert isinstance(last, Finished)
    return last.reply


def _fake(reason: str) -> Reply:
    fake = FakeProvider([FakeReply(text="Half", stop_reason=reason)])
    request = SamplingRequest(messages=(user("Hi"),), max_tokens=9)
    return asyncio.run(fake.generate("echo", request))


WITHOUT_WIRE = pytest.mark.parametrize("answer", [_embedded, _fake], ids=["embedded", "fake"])


@WITHOUT_WIRE
@pytest.mark.parametrize("row", STOP_REASONS, ids=lambda row: row.reason)
def test_each_row_without_a_wire(answer: Callable[[str], Reply], row: StopReasonRow) -> None:
    for reason in written(row):
        expected = STOPS.get(row.meaning)
        if expected is None:
            with pytest.raises(ERRORS[row.meaning]) as caught:
                answer(reason)
            assert type(caught.value) is ERRORS[row.meaning]
            if isinstance(caught.value, ContentRejected):
                assert caught.value.partial == "Half"
            continue
        reply = answer(reason)
        detail = "missing" if row.meaning == "none" else None
        assert (reply.text, reply.stop_reason, reply.stop_detail) == ("Half", expected, detail)


@WITHOUT_WIRE
def test_an_unknown_reason_is_kept_without_a_wire(answer: Callable[[str], Reply]) -> None:
    reply = answer("of_tomorrow")
    assert (reply.stop_reason, reply.stop_detail) == ("of_tomorrow", "of_tomorrow")


def test_a_reason_without_end_is_cut() -> None:
    for answer in both("openai-chat", "x" * 10_000):
        reply = answer()
        assert len(reply.stop_reason) == len(reply.stop_detail or "") == 256


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("content_filter: SAFETY", "filter"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "malformed"),
        ("content_filter: OF_TOMORROW", "filter"),
        ("stop: of_tomorrow", None),
        (None, "none"),
        ("", "none"),
    ],
)
def test_what_stands_in_front_of_a_reason(reason: str | None, meaning: str | None) -> None:
    assert meaning_of(reason) == meaning


def test_no_reason_is_listed_twice_and_all_are_in_their_plain_form() -> None:
    reasons = [row.reason for row in STOP_REASONS]
    assert len(reasons) == len(set(reasons))
    assert reasons == [reason.lower().replace("-", "_") for reason in reasons]
    assert all(row.used_by for row in STOP_REASONS)


def _converse_reasons() -> list[str]:
    # No part of botocore is typed.
    module: Any = botocore.session
    return module.get_session().get_service_model("bedrock-runtime").shape_for("StopReason").enum


def _responses_reasons() -> list[str]:
    details = openai.types.responses.response.IncompleteDetails.model_fields["reason"].annotation
    (reasons,) = (each for each in typing.get_args(details) if each is not type(None))
    statuses = typing.get_args(openai.types.responses.ResponseStatus)
    return [*typing.get_args(reasons), *statuses]


SDKS: dict[str, Callable[[], Sequence[str]]] = {
    "openai-chat": lambda: typing.get_args(
        openai.types.chat.chat_completion.Choice.model_fields["finish_reason"].annotation
    ),
    "openai": _responses_reasons,
    "anthropic": lambda: typing.get_args(anthropic.types.beta.BetaStopReason),
    "gemini": lambda: [each.value for each in google.FinishReason],
    "bedrock": _converse_reasons,
}


@pytest.mark.parametrize("kind", SDKS)
def test_every_reason_that_an_official_sdk_knows_is_in_the_table(kind: str) -> None:
    reasons = SDKS[kind]()
    assert reasons
    assert [reason for reason in reasons if meaning_of(reason) is None] == []
