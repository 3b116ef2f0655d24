"""Whole bodies in, replies out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Audio, Content, Image, Reasoning, Text, ToolUse
from penstock.providers.gemini.contents import SIGNATURE
from penstock.providers.gemini.decode import call_id, decode
from tests.unit.providers.gemini.gemini_wire import COUNTED, body, call, event, text


def test_a_whole_answer() -> None:
    answer = body(event(text("Hello"), finish="STOP"))
    assert decode(answer) == Reply((Text("Hello"),), "m-1", "endTurn", COUNTED, "r1", "STOP")


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ([text("a"), text("b")], (Text("ab"),)),
        ([text("why", thought=True), text("a")], (Reasoning("why"), Text("a"))),
        (
            [text("why", thought=True, thoughtSignature="s"), text("a")],
            (Reasoning("why", signature="s"), Text("a")),
        ),
        (
            [text("a"), text("b", thoughtSignature="s"), text("c")],
            (Text("a"), Text("b", meta={SIGNATURE: "s"}), Text("c")),
        ),
        ([text("a"), text("", thoughtSignature="s")], (Text("a"), Text("", meta={SIGNATURE: "s"}))),
        ([text("")], ()),
        ([], ()),
        (
            [text("a"), text("b", thought=True), text("c", thought=True), text("d")],
            (Text("a"), Reasoning("bc"), Text("d")),
        ),
        (
            [{"inlineData": {"mimeType": "image/png", "data": "aW1n"}, "thoughtSignature": "s"}],
            (Image(data="aW1n", mime_type="image/png", meta={SIGNATURE: "s"}),),
        ),
        (
            [{"inlineData": {"mimeType": "audio/wav", "data": "d2F2"}}],
            (Audio("d2F2", "audio/wav"),),
        ),
        ([{"inlineData": {"mimeType": "video/mp4", "data": "eA=="}}, text("a")], (Text("a"),)),
        ([{"executableCode": {"code": "1"}}, text("a")], (Text("a"),)),
    ],
)
def test_parts_stay_as_they_came(parts: list[dict[str, Any]], content: tuple[Content, ...]) -> None:
    assert decode(body(event(*parts, finish="STOP"))).content == content


def test_calls_keep_ids_and_signatures() -> None:
    reply = decode(
        body(
            event(
                text("Let me look."),
                call("weather", {"city": "Rome"}, id="c1", thoughtSignature="s"),
                call("clock", id="c2"),
                finish="STOP",
            )
        )
    )
    assert reply.stop_reason == "toolUse"
    assert reply.response_status == "STOP"
    assert reply.content == (
        Text("Let me look."),
        ToolUse("c1", "weather", {"city": "Rome"}, meta={SIGNATURE: "s"}),
        ToolUse("c2", "clock", {}),
    )


def test_ids_are_made_up_where_a_model_names_none_or_one_twice() -> None:
    parts = [call("a"), call("b", id="x"), call("c", id="x")]
    content = decode(body(event(*parts, finish="STOP"))).content
    assert [part.id for part in content if isinstance(part, ToolUse)] == [
        "call_r1_0",
        "x",
        "call_r1_2",
    ]


def test_made_up_ids_are_stable_and_unique_over_rounds() -> None:
    assert call_id("answer-1/äö", 2) == "call_answer-1_2"
    assert call_id("one", 0) != call_id("two", 0)
    assert call_id(None, 0) != call_id(None, 0)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "endTurn"),
        ("MAX_TOKENS", "maxTokens"),
        ("CONTINUATION", "maxTokens"),
        ("SOMETHING_NEW", "SOMETHING_NEW"),
        (None, "endTurn"),
    ],
)
def test_stop_reasons(reason: str | None, stop: str) -> None:
    assert decode(body(event(text("a"), finish=reason))).stop_reason == stop


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "FUNCTION_CALL", "SOMETHING_NEW"])
def test_calls_win_over_the_reason(reason: str) -> None:
    assert decode(body(event(call("f"), finish=reason))).stop_reason == "toolUse"


@pytest.mark.parametrize(
    "reason",
    [
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_OTHER"),
    ],
)
def test_filters_reject_with_what_was_said(reason: str) -> None:
    with pytest.raises(ContentRejected, match=reason) as caught:
        decode(body(event(text("Half an "), finish=reason)))
    assert caught.value.partial == "Half an "
    assert not caught.value.retryable


def test_a_filter_that_leaves_no_content() -> None:
    with pytest.raises(ContentRejected) as caught:
        decode(body({"candidates": [{"finishReason": "SAFETY", "index": 0}]}))
    assert caught.value.partial == ""


def test_a_blocked_prompt() -> None:
    with pytest.raises(ContentRejected, match="PROHIBITED_CONTENT") as caught:
        decode(body({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}))
    assert caught.value.status == 200


@pytest.mark.parametrize(
    "reason",
    [
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MALFORMED_RESPONSE",
    ],
)
def test_what_the_model_garbled_is_retryable(reason: str) -> None:
    answer = event(finish=reason, finishMessage="print(\n default_api)")
    with pytest.raises(MalformedResponse, match=rf"{reason}: print\( default_api\)") as caught:
        decode(body(answer))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({}, Usage()),
        ({"promptTokenCount": 5}, Usage(5)),
        ({"promptTokenCount": 5, "toolUsePromptTokenCount": 2}, Usage(7)),
        ({"thoughtsTokenCount": 3}, Usage(None, 3, None, None, 3)),
        ({"candidatesTokenCount": 4, "thoughtsTokenCount": 3}, Usage(None, 7, None, None, 3)),
        ({"cachedContentTokenCount": 2}, Usage(cached_input_tokens=2)),
        (
            {
                "promptTokenCount": 9,
                "promptTokensDetails": [
                    {"modality": "TEXT", "tokenCount": 2},
                    {"modality": "AUDIO", "tokenCount": 7},
                ],
                "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
            },
            Usage(9, input_audio_tokens=7, output_image_tokens=1290),
        ),
    ],
)
def test_usage_is_what_was_said(wire: dict[str, Any], usage: Usage) -> None:
    assert decode(body(event(text("a"), finish="STOP") | {"usageMetadata": wire})).usage == usage


def test_a_paused_answer_carries_its_token_and_no_reason() -> None:
    paused = event(text("Once "), finish="CONTINUATION", continuationToken="dG9r")
    reply = decode(body(paused))
    assert reply.content == (Text("Once ", meta={"gemini/continuationToken": "dG9r"}),)
    assert (reply.stop_reason, reply.response_status) == ("", "CONTINUATION")
    empty = decode(body(event(finish="CONTINUATION", continuationToken="dG9r")))
    assert empty.content == (Text("", meta={"gemini/continuationToken": "dG9r"}),)


def test_only_the_first_candidate_counts() -> None:
    answer = event(text("a"), finish="STOP")
    second = {"index": 1, "content": {"parts": [{"text": "b"}]}, "finishReason": "SAFETY"}
    answer["candidates"] = [second, *answer["candidates"]]
    assert decode(body(answer)).text == "a"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"{}",
        b'{"candidates": []}',
        b"<html>",
        b'{"candidates": [{"content": 7}]}',
        b'{"promptFeedback": {}}',
        b'[{"candidates": [{"finishReason": "STOP"}]}]',
        body(event({"functionCall": {"args": {}}}, finish="STOP")),
    ],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode(answer)


def test_an_error_under_a_good_status() -> None:
    error = {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}
    for wrapped in ({"error": error}, [{"error": error}]):
        with pytest.raises(RateLimited, match="Slow down") as caught:
            decode(body(wrapped))
        assert caught.value.status == 429
    with pytest.raises(ProviderUnavailable):
        decode(body({"error": {"message": "?"}}))


@given(st.binary())
def test_arbitrary_bytes_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(PenstockError):
        decode(data)
