"""Whole bodies in, replies or typed errors out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    ContentRejected,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, Reasoning, Text, ToolUse
from penstock.providers.anthropic.decode import decode
from tests.unit.providers.anthropic.message_wire import COUNTED, body, call, text

THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s=="}


def test_a_whole_answer() -> None:
    content = (Reasoning(text="Hm.", signature="s=="), Text("Hello"))
    assert decode(body(THOUGHT, text("Hello"))) == Reply(
        content, "claude-x", "endTurn", COUNTED, "msg_1", "end_turn"
    )


@pytest.mark.parametrize(
    ("blocks", "content"),
    [
        ([], ()),
        ([text("")], ()),
        ([text("a"), text(""), text("b")], (Text("ab"),)),
        ([THOUGHT, THOUGHT], (Reasoning(text="Hm.", signature="s=="),) * 2),
        ([{"type": "thinking", "thinking": "Hm."}], (Reasoning(text="Hm."),)),
        ([{"type": "redacted_thinking", "data": "x"}], (Reasoning(signature="x", redacted=True),)),
        ([call("a", x={"y": [1]})], (ToolUse("a", "f", {"x": {"y": [1]}}),)),
        ([{"type": "tool_use", "id": "a", "name": "f"}], (ToolUse("a", "f", {}),)),
        (
            [{"type": "server_tool_use", "id": "s", "name": "n", "input": None}, text("a")],
            (Text("a"),),
        ),
        ([{"type": "of_tomorrow"}, {}], ()),
    ],
)
def test_blocks(blocks: list[dict[str, Any]], content: tuple[Content, ...]) -> None:
    assert decode(body(*blocks)).content == content


@pytest.mark.parametrize(
    ("reason", "mapped"),
    [
        ("end_turn", "endTurn"),
        ("stop_sequence", "stopSequence"),
        ("max_tokens", "maxTokens"),
        ("model_context_window_exceeded", "maxTokens"),
        ("pause_turn", ""),
        ("of_tomorrow", "of_tomorrow"),
    ],
)
def test_stop_reasons(reason: str, mapped: str) -> None:
    reply = decode(body(text("a"), stop=reason))
    assert (reply.stop_reason, reply.response_status) == (mapped, reason)
    reply = decode(body(call(), text("a"), stop=reason))
    assert reply.stop_reason == "toolUse"


def test_a_body_without_a_reason_has_come_to_its_end() -> None:
    assert decode(body(text("a"), stop=None)).stop_reason == "endTurn"


def test_a_call_at_the_end_of_a_cut_answer_may_be_broken_off_and_is_left_out() -> None:
    reply = decode(body(call("a", x=1), call("b", x=2), stop="max_tokens"))
    assert reply.content == (ToolUse("a", "f", {"x": 1}),)
    reply = decode(body(text("So"), call("b"), stop="max_tokens"))
    assert (reply.content, reply.stop_reason) == ((Text("So"),), "maxTokens")


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 2},
            Usage(12, 2, cached_input_tokens=7),
        ),
        (
            {"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 0},
            Usage(8, None, 0, 3),
        ),
        ({"cache_read_input_tokens": 7}, Usage(cached_input_tokens=7)),
        (
            {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
            Usage(output_tokens=9, reasoning_tokens=4),
        ),
    ],
)
def test_the_whole_prompt_is_counted(usage: Any, counted: Usage) -> None:
    assert decode(body(text("a"), usage=usage)).usage == counted


def test_a_refusal_is_an_error_with_the_partial() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    with pytest.raises(ContentRejected, match=r"\(cyber\): Not this\.") as caught:
        decode(body(text("Well"), stop="refusal", stop_details=details))
    assert caught.value.partial == "Well"
    with pytest.raises(ContentRejected, match="the model refused"):
        decode(body(stop="refusal"))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error"}}', ProviderUnavailable),
        (b'{"type":"error","error":{"type":"rate_limit_error"}}', RateLimited),
        (b'{"error":{"type":"invalid_request_error","message":"x"}}', InvalidRequest),
        (b'{"type":"error"}', ProviderUnavailable),
        (b"", MalformedResponse),
        (b"[]", MalformedResponse),
        (b"{}", MalformedResponse),
        (b"<html>", MalformedResponse),
        (b'{"content": "text"}', MalformedResponse),
        (b'{"content": [{"type": "tool_use", "name": "f", "input": {}}]}', MalformedResponse),
        (b'{"content": [{"type": "tool_use", "id": "a", "input": {}}]}', MalformedResponse),
        (
            b'{"content": [{"type": "tool_use", "id": "a", "name": "f", "input": [1]}]}',
            MalformedResponse,
        ),
        (b'{"content": [], "stop_reason": "tool_use"}', MalformedResponse),
        (b"[" * 100_000, MalformedResponse),
    ],
)
def test_what_is_no_message(data: bytes, kind: type[PenstockError]) -> None:
    with pytest.raises(PenstockError) as caught:
        decode(data)
    assert type(caught.value) is kind


@given(st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    with pytest.raises(PenstockError):
        decode(data)
