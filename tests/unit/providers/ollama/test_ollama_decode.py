"""Bodies in, replies out."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.ollama import DIALECT
from penstock.providers.ollama.decode import decode
from tests.unit.providers.ollama.ollama_wire import call, frame, last, line


def test_a_whole_answer() -> None:
    assert DIALECT.decode(frame(last(content="Hello")), {}) == Reply(
        (Text("Hello"),), "llama3.2", "endTurn", Usage(26, 282), None, "stop"
    )


@pytest.mark.parametrize(
    ("reason", "stop", "status"),
    [
        ("stop", "endTurn", "stop"),
        ("length", "maxTokens", "length"),
        ("news", "news", "news"),
        (None, "endTurn", None),
    ],
)
def test_stop_reasons(reason: str | None, stop: str, status: str | None) -> None:
    reply = decode(frame(last(reason, content="Hi")))
    assert (reply.stop_reason, reply.response_status, reply.response_id) == (stop, status, None)


def test_thinking_text_and_calls_in_this_order() -> None:
    reply = decode(
        frame(last(content="Yes.", thinking="Hm.", tool_calls=[call("f", {"x": [1, None]})]))
    )
    assert reply.content[:2] == (Reasoning("Hm."), Text("Yes."))
    use = reply.content[2]
    assert isinstance(use, ToolUse)
    assert (use.name, use.input, reply.stop_reason) == ("f", {"x": [1, None]}, "toolUse")


def test_calls_win_over_the_reason() -> None:
    assert decode(frame(last("length", tool_calls=[call("f")]))).stop_reason == "toolUse"


def test_call_ids_are_made_up_once_and_never_again() -> None:
    body = frame(last(tool_calls=[call("f"), call("f"), call("g")]))
    ids = [part.id for _ in range(50) for part in decode(body).content if isinstance(part, ToolUse)]
    assert len(set(ids)) == 150
    assert all(id.startswith("call_") for id in ids)


def test_the_ids_of_newer_servers_are_kept_unless_they_repeat() -> None:
    body = last(tool_calls=[call("f", id="call_a"), call("f", id="call_a"), call("f", id="call_b")])
    first, second, third = (
        part.id for part in decode(frame(body)).content if isinstance(part, ToolUse)
    )
    assert (first, third) == ("call_a", "call_b")
    assert second not in ("", first, third)


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("weather", "weather"),
        ("tool.weather", "weather"),
        ("tools.weather", "weather"),
        ("function.weather", "weather"),
        ("functions.weather", "weather"),
        ("tool.tool.x", "tool.x"),
        ("my.tool.x", "my.tool.x"),
        ("toolbox", "toolbox"),
        ("tool.", "tool."),
    ],
)
def test_names_lose_one_prefix(name: str, tool: str) -> None:
    (use,) = decode(frame(last(tool_calls=[call(name)]))).content
    assert isinstance(use, ToolUse)
    assert use.name == tool


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"a": 1.5}, {"a": 1.5}), ('{"a": 2}', {"a": 2}), ("", {}), (None, {}), ({}, {})],
)
def test_arguments_are_objects_or_the_text_of_one(arguments: Any, expected: Any) -> None:
    wire = {"function": {"name": "f", "arguments": arguments}}
    (use,) = decode(frame(last(tool_calls=[wire]))).content
    assert isinstance(use, ToolUse)
    assert use.input == expected


def test_what_is_not_counted_stays_unknown() -> None:
    reply = decode(frame(line("Hi", done=True)))
    assert reply.usage == Usage()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"done": true}',
        b"\xff",
        b"[" * 5000,
        frame(line("Hi")),
        frame(line("Hi")) + b"\n" + frame(last()),
        frame(last(tool_calls=[call("")])),
        frame(last(tool_calls=[{}])),
        frame(last(tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}])),
    ],
)
def test_other_bodies_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode(body)


def test_an_error_inside_a_good_answer() -> None:
    with pytest.raises(ProviderUnavailable, match="out of memory"):
        decode(b'{"error": "out of memory"}')
    with pytest.raises(RateLimited) as caught:
        decode(b'{"StatusCode": 429, "Status": "429 Too Many Requests", "error": "slow down"}')
    assert caught.value.status == 429


@given(st.binary(max_size=200))
def test_any_bytes_give_a_reply_or_a_typed_error(body: bytes) -> None:
    with contextlib.suppress(PenstockError):
        assert isinstance(decode(body), Reply)
