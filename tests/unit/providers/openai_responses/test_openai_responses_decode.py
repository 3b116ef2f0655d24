"""Whole bodies in, replies out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, Reasoning, Text, ToolUse
from penstock.providers.openai_responses.count import decode as decode_count
from penstock.providers.openai_responses.decode import decode
from tests.unit.providers.openai_responses.responses_wire import (
    COUNTED,
    USAGE,
    body,
    call,
    message,
    refusal,
    thought,
)


def test_a_whole_answer() -> None:
    assert decode(body(message("Hello"), usage=USAGE)) == Reply(
        (Text("Hello"),), "m-1", "endTurn", COUNTED, "r1", "completed"
    )


PARTS: list[Any] = [
    ((), ()),
    ((message("a", "b"),), (Text("ab"),)),
    ((message("a"), message("b", id="msg_2")), (Text("a"), Text("b"))),
    ((message(""),), ()),
    (
        (message("Soon.", phase="commentary"),),
        (Text("Soon.", meta={"openai_phase": "commentary"}),),
    ),
    ((call("f", '{"x":1}'),), (ToolUse("c1", "f", {"x": 1}),)),
    ((call("f", ""),), (ToolUse("c1", "f", {}),)),
    ((call("f", None, call_id=None),), (ToolUse("fc_1", "f", {}),)),
    (
        (thought("First.", "Then."), message("Yes")),
        (
            Reasoning("First.\n\nThen.", signature="enc", meta={"openai_id": "rs_1"}),
            Text("Yes"),
        ),
    ),
    (
        (thought(), call()),
        (
            Reasoning("", signature="enc", redacted=True, meta={"openai_id": "rs_1"}),
            ToolUse("c1", "f", {}),
        ),
    ),
    ((thought("Hm.", encrypted=None),), (Reasoning("Hm."),)),
    ((thought(encrypted=None),), ()),
    (
        (
            {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
            },
        ),
        (Reasoning("Hm."),),
    ),
    # Items of other kinds, and such as nobody can read, harm no other.
    (({"type": "web_search_call", "id": "ws"}, message("a")), (Text("a"),)),
    (({"type": "tool_search_call", "arguments": {}}, message("a")), (Text("a"),)),
]


@pytest.mark.parametrize(("items", "content"), PARTS)
def test_the_parts_of_an_answer(
    items: tuple[dict[str, Any], ...], content: tuple[Content, ...]
) -> None:
    assert decode(body(*items)).content == content


def test_two_calls_of_one_id_are_told_apart() -> None:
    first, second = decode(body(call(), call("g", id="fc_2"))).content
    assert isinstance(first, ToolUse)
    assert isinstance(second, ToolUse)
    assert first.id == "c1"
    assert second.id.startswith("call_")


def incomplete(reason: str | None) -> dict[str, Any]:
    return {"status": "incomplete", "incomplete_details": {"reason": reason} if reason else None}


@pytest.mark.parametrize(
    ("items", "fields", "stop_reason"),
    [
        ((message("a"),), {}, "endTurn"),
        ((message("a"), call()), {}, "toolUse"),
        ((message("a"),), incomplete("max_output_tokens"), "maxTokens"),
        ((call(),), incomplete("max_output_tokens"), "toolUse"),
        ((message("a"),), incomplete("max_messages"), "maxTokens"),
        ((message("a"),), incomplete("steered"), "maxTokens"),
        ((message("a"),), incomplete(None), "maxTokens"),
        ((message("a"),), incomplete("stop"), "maxTokens"),
        ((message("a"),), incomplete("of_tomorrow"), "of_tomorrow"),
        ((message("a"),), {"status": None}, "endTurn"),
    ],
)
def test_stop_reasons(
    items: tuple[dict[str, Any], ...], fields: dict[str, Any], stop_reason: str
) -> None:
    assert decode(body(*items, **fields)).stop_reason == stop_reason


@pytest.mark.parametrize("arguments", ["", '{"x"', "[]"])
def test_a_call_that_ran_out_of_tokens_is_left_out(arguments: str) -> None:
    answer = body(message("a"), call("f", arguments), **incomplete("max_output_tokens"))
    reply = decode(answer)
    assert (reply.content, reply.stop_reason) == ((Text("a"),), "maxTokens")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (USAGE, COUNTED),
        (None, Usage()),
        ({"input_tokens": 5, "output_tokens": 0}, Usage(5, 0)),
        ({"input_tokens_details": {"cached_tokens": 0}}, Usage(cached_input_tokens=0)),
    ],
)
def test_usage_is_what_was_said(usage: dict[str, Any] | None, expected: Usage) -> None:
    assert decode(body(message("a"), usage=usage)).usage == expected


def test_refusals_and_filters_keep_what_was_said() -> None:
    with pytest.raises(ContentRejected, match="I cannot") as refused:
        decode(body(refusal("I cannot", "Well")))
    with pytest.raises(ContentRejected) as filtered:
        decode(body(message("Well"), **incomplete("content_filter")))
    failed = {"code": "bio_policy", "message": "no"}
    with pytest.raises(ContentRejected) as forbidden:
        decode(body(message("Well"), status="failed", error=failed))
    for caught in (refused, filtered, forbidden):
        assert caught.value.partial == "Well"


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("server_error", ProviderUnavailable, True),
        ("vector_store_timeout", ProviderUnavailable, True),
        ("something_new", ProviderUnavailable, True),
        ("rate_limit_exceeded", RateLimited, True),
        ("context_length_exceeded", ContextLengthExceeded, False),
        ("invalid_image_url", InvalidRequest, False),
        ("image_too_large", InvalidRequest, False),
        ("failed_to_download_image", InvalidRequest, False),
        ("data_residency_mismatch", InvalidRequest, False),
        ("invalid_prompt", ContentRejected, False),
        ("image_content_policy_violation", ContentRejected, False),
        ("misalignment_policy_violation", ContentRejected, False),
    ],
)
def test_a_response_that_failed(code: str, kind: type[PenstockError], retryable: bool) -> None:
    with pytest.raises(PenstockError, match="boom") as caught:
        decode(body(status="failed", error={"code": code, "message": "boom"}))
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress", "new"])
def test_a_response_without_an_answer(status: str) -> None:
    with pytest.raises(ProviderUnavailable, match=f"left the response {status}"):
        decode(body(status=status))


def test_an_error_inside_a_200() -> None:
    with pytest.raises(RateLimited, match="slow"):
        decode(b'{"error": {"message": "slow", "code": "rate_limit_exceeded"}}')


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"output": null}',
        b'{"output": 7}',
        b"[" * 100_000,
        body(call("f", "{")),
        body(call("f", "[]")),
        body(call(None)),
    ],
)
def test_a_body_that_is_no_response(answer: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode(answer)


@given(st.binary())
def test_arbitrary_bytes_raise_only_typed_errors(data: bytes) -> None:
    with pytest.raises(PenstockError):
        decode(data)


def test_a_count() -> None:
    assert decode_count(b'{"object": "response.input_tokens", "input_tokens": 42}') == 42
    for wrong in (b"", b"{}", b'{"input_tokens": "x"}', b"[]"):
        with pytest.raises(MalformedResponse):
            decode_count(wrong)
    with pytest.raises(ContextLengthExceeded):
        decode_count(b'{"error": {"message": "long", "code": "context_length_exceeded"}}')
