"""Answers and streams on the Responses wire: events in, JSON out."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import ContentRejected, ProviderTimeout, RateLimited
from penstock.contract.events import (
    Cancelled,
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Metadata, Result, Usage
from penstock.contract.messages import Content, Image, MCPCall, Reasoning, Text, ToolUse
from penstock.server.doors.openai_responses.decode import Echo, decode
from penstock.server.doors.openai_responses.encode import encode
from penstock.server.doors.openai_responses.events import EventEncoder
from tests.unit.server.responses_support import answers, read_events, types

COUNTED = Usage(10, 5)


def echo(**fields: Any) -> Echo:
    return decode(json.dumps({"input": "Hi", **fields}).encode(), lambda _: 1).echo


def result(*content: Content, reason: str = "endTurn", usage: Usage = COUNTED) -> Result:
    metadata = Metadata(provider="p", model="m-1", request_id="req_1", latency_ms=1, usage=usage)
    return Result(content, "m-1", reason, metadata)


def whole(*content: Content, reason: str = "endTurn", usage: Usage = COUNTED) -> dict[str, Any]:
    return json.loads(encode(result(*content, reason=reason, usage=usage), echo()))


def written(*events: StreamEvent, together: bool = False) -> list[dict[str, Any]]:
    encoder = EventEncoder("req_1", "m-1", echo())
    batches = [list(events)] if together else [[event] for event in events]
    data = b"".join(encoder.encode(batch) for batch in batches)
    assert encoder.ended
    return read_events(data.decode())


def message(text: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    part: Any = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_1_{index}",
        "status": "completed",
        "type": "message",
        "role": "assistant",
        "content": [part],
        **fields,
    }


def test_a_text() -> None:
    document = whole(Text("Hello "), Text("you"))
    assert isinstance(document.pop("created_at"), int)
    assert document == {
        "id": "resp_1",
        "object": "response",
        "model": "m-1",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": [message("Hello you")],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "user": None,
        "safety_identifier": None,
        "background": False,
        "previous_response_id": None,
        "store": False,
    }


def test_the_request_is_repeated() -> None:
    schema = {"type": "object"}
    tool = {
        "type": "function",
        "name": "f",
        "description": None,
        "parameters": schema,
        "strict": True,
    }
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "reasoning": {"effort": "low", "summary": "auto"},
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}},
        "tool_choice": {"type": "function", "name": "f"},
        "tools": [tool],
        "top_p": 1,
        "user": "u",
        "safety_identifier": "s",
    }
    document = json.loads(encode(result(Text("x")), echo(**asked, store=True)))
    assert {name: document[name] for name in asked} == asked
    assert document["store"] is False


def test_tools_thinking_and_pictures() -> None:
    failed = MCPCall("mcp_2", "s", "g", {}, (Text("gone"),), is_error=True)
    content = (
        Reasoning("Hm"),
        Reasoning("."),
        ToolUse("a", "f", {"x": 1}),
        MCPCall("mcp_1", "s", "g", {"y": 2}, (Text("found"), Image(url="https://x.test"))),
        failed,
        Image(data="AAAA", mime_type="image/webp"),
    )
    assert whole(*content, reason="toolUse")["output"] == [
        {
            "id": "rs_1_0",
            "status": "completed",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm."}],
        },
        {
            "id": "fc_1_1",
            "status": "completed",
            "type": "function_call",
            "call_id": "a",
            "name": "f",
            "arguments": '{"x":1}',
        },
        {
            "id": "mcp_1",
            "status": "completed",
            "type": "mcp_call",
            "server_label": "s",
            "name": "g",
            "arguments": '{"y":2}',
            "approval_request_id": None,
            "output": "found (image)",
            "error": None,
        },
        {
            "id": "mcp_2",
            "status": "failed",
            "type": "mcp_call",
            "server_label": "s",
            "name": "g",
            "arguments": "{}",
            "approval_request_id": None,
            "output": None,
            "error": {
                "type": "mcp_tool_execution_error",
                "content": [{"type": "text", "text": "gone"}],
            },
        },
        {
            "id": "ig_1_4",
            "status": "completed",
            "type": "image_generation_call",
            "result": "AAAA",
            "output_format": "webp",
        },
    ]


def test_phases_are_messages_of_their_own() -> None:
    first = Text("Hm.", meta={"openai_phase": "commentary"})
    last = Text("42", meta={"openai_phase": "final_answer"})
    told = [
        (item["type"], item.get("phase"), item.get("content", [{}])[0].get("text"))
        for item in whole(first, last)["output"]
    ]
    assert told == [
        ("message", "commentary", "Hm."),
        ("message", "final_answer", "42"),
        ("reasoning", None, None),
    ]


def test_an_answer_that_says_nothing() -> None:
    assert whole()["output"] == []


def test_an_answer_that_was_cut() -> None:
    document = whole(Text("Hal"), reason="maxTokens")
    assert document["status"] == "incomplete"
    assert document["incomplete_details"] == {"reason": "max_output_tokens"}
    assert document["output"] == [message("Hal", status="incomplete")]
    events = written(Chunk("Hal"), Complete(result(Text("Hal"), reason="maxTokens")))
    assert types(events)[-2:] == ["output_item.done", "incomplete"]
    assert events[-2]["item"] == message("Hal", status="incomplete")
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("reason", ["endTurn", "stopSequence", "toolUse"])
def test_an_answer_that_ended_otherwise_is_whole(reason: str) -> None:
    assert whole(Text("x"), reason=reason)["status"] == "completed"


def test_an_answer_that_ended_for_an_unknown_reason_is_not_whole() -> None:
    response = whole(Text("x"), reason="something new")
    assert response["status"] == response["output"][-1]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert whole(ToolUse("a", "f", {}), reason="something new")["status"] == "completed"


@pytest.mark.parametrize("usage", [Usage(), Usage(3), Usage(None, 4)])
def test_usage_that_nobody_counted_is_not_told(usage: Usage) -> None:
    assert whole(Text("x"), usage=usage)["usage"] is None


def test_usage_with_its_details() -> None:
    usage = Usage(30, 4, cached_input_tokens=20, cache_write_tokens=5, reasoning_tokens=1)
    assert whole(Text("x"), usage=usage)["usage"] == {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 34,
    }


@pytest.mark.parametrize("together", [False, True])
def test_a_stream_of_text(together: bool) -> None:
    odd = 'quote " and \n and € and \x00'
    end = Complete(result(Text("Hel" + odd)))
    events = written(Chunk("Hel"), Chunk(odd), end, together=together)
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    for event in events[:2]:
        assert event["response"]["status"] == "in_progress"
        assert event["response"]["output"] == []
        assert event["response"]["usage"] is None
    assert events[2]["item"] == message("", content=[], status="in_progress")
    place = {"item_id": "msg_1_0", "output_index": 0, "content_index": 0}
    assert events[5] == {
        "type": "response.output_text.delta",
        "sequence_number": 5,
        **place,
        "logprobs": [],
        "delta": odd,
    }
    assert events[6] == {
        "type": "response.output_text.done",
        "sequence_number": 6,
        **place,
        "logprobs": [],
        "text": "Hel" + odd,
    }
    assert events[7]["part"] == message("Hel" + odd)["content"][0]
    assert events[8]["item"] == message("Hel" + odd)
    final = events[-1]["response"]
    assert final == {**whole(Text("Hel" + odd)), "created_at": final["created_at"]}


def test_a_stream_of_everything_ends_with_what_a_whole_answer_would_have() -> None:
    content = (
        Reasoning("Let me see", signature="s", origin="o"),
        MCPCall("mcp_1", "s", "g", {"y": 2}, (Text("found"),)),
        Text("So."),
        ToolUse("a", "f", {"x": 1}),
        ToolUse("b", "f", {}),
    )
    events = written(
        ReasoningDelta("Let me "),
        ReasoningDelta("see"),
        ToolStarted("mcp_1", "g", {"y": 2}, "s"),
        ToolEnded("mcp_1", "g", content=(Text("found"),)),
        Chunk("So."),
        ToolUseDelta(0, "a", "f"),
        ToolUseDelta(1, "b", "f"),
        ToolUseDelta(0, arguments='{"x"'),
        ToolUseDelta(0, arguments=":1}"),
        Complete(result(*content, reason="toolUse")),
    )
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.done",
        "completed",
    ]
    place = {"item_id": "rs_1_0", "output_index": 0, "summary_index": 0}
    assert events[4] == {
        "type": "response.reasoning_summary_text.delta",
        "sequence_number": 4,
        **place,
        "delta": "Let me ",
    }
    assert events[7]["part"] == {"type": "summary_text", "text": "Let me see"}
    assert events[22]["delta"] + events[23]["delta"] == events[24]["arguments"] == '{"x":1}'
    assert events[22]["item_id"] == events[20]["item"]["id"] == "fc_1_3"
    assert events[26]["delta"] == events[27]["arguments"] == "{}"
    output = events[-1]["response"]["output"]
    assert output == whole(*content, reason="toolUse")["output"]
    done = {
        event["output_index"]: event["item"]
        for event in events
        if event["type"] == "response.output_item.done"
    }
    assert [done[index] for index in range(len(output))] == output


def test_a_signature_alone_is_no_event_of_its_own() -> None:
    signed = Reasoning("hm", "signature")
    end = Complete(result(signed, Text("Well")))
    plain = written(ReasoningDelta("hm"), Chunk("Well"), end)
    marked = written(ReasoningDelta("hm"), ReasoningDelta("", signed), Chunk("Well"), end)
    assert types(marked) == types(plain)
    # Thinking that is not shown opens no item before the text.
    assert types(written(ReasoningDelta("", signed), Chunk("Well"), end)) == types(
        written(Chunk("Well"), end)
    )


def test_a_seal_without_thinking_comes_last() -> None:
    use = ToolUse("a", "f", {}, meta={"k": "v"})
    events = written(ToolUseDelta(0, "a", "f", "{}"), Complete(result(use, reason="toolUse")))
    assert types(events)[-3:] == ["output_item.added", "output_item.done", "completed"]
    assert events[-2]["item"] == whole(use)["output"][1]
    assert events[-2]["output_index"] == 1


def test_a_picture_and_a_phase_come_at_the_end() -> None:
    text = Text("Look.", meta={"openai_phase": "final_answer"})
    picture = Image(data="AAAA", mime_type="image/png")
    events = written(Chunk("Look."), Complete(result(text, picture)))
    assert events[-1]["response"]["output"] == whole(text, picture)["output"]


def test_a_call_that_was_cut_off() -> None:
    events = written(
        ToolUseDelta(0, "a", "f"),
        ToolUseDelta(0, arguments='{"x'),
        Complete(result(reason="maxTokens")),
    )
    (item,) = events[-1]["response"]["output"]
    assert (item["arguments"], item["status"]) == ('{"x', "incomplete")
    assert events[-1]["type"] == "response.incomplete"


def test_a_failed_tool_of_a_server() -> None:
    failed = MCPCall("mcp_1", "s", "g", {}, (Text("gone"),), is_error=True)
    events = written(
        ToolStarted("mcp_1", "g", {}, "s"),
        ToolEnded("mcp_1", "g", is_error=True, content=(Text("gone"),)),
        ToolEnded("unknown", "g"),
        Complete(result(failed)),
    )
    assert "mcp_call.failed" in types(events)
    assert events[-1]["response"]["output"] == whole(failed)["output"]


def test_calls_of_one_id_are_told_apart() -> None:
    one = MCPCall("call_1", "s", "g", {}, (Text("one"),))
    two = MCPCall("call_1", "s", "g", {}, (Text("two"),))
    events = written(
        ToolStarted("call_1", "g", {}, "s"),
        ToolEnded("call_1", "g", content=(Text("one"),)),
        ToolStarted("call_1", "g", {}, "s"),
        ToolEnded("call_1", "g", content=(Text("two"),)),
        Complete(result(one, two)),
    )
    assert events[-1]["response"]["output"] == whole(one, two)["output"]
    told = [(item["id"], item["output"]) for item in events[-1]["response"]["output"]]
    assert told == [("call_1", "one"), ("mcp_1_1", "two")]


def test_an_error_in_mid_stream() -> None:
    events = written(
        Chunk("half"),
        ToolUseDelta(0, "a", "f", '{"x'),
        Error(RateLimited("slow down", retry_after=3)),
    )
    assert types(events)[-2:] == ["error", "failed"]
    fields = {"code": "rate_limit_exceeded", "message": "slow down", "param": None}
    assert events[-2] == {
        "type": "error",
        "sequence_number": len(events) - 2,
        **fields,
        "error": {"type": "rate_limit_error", **fields},
    }
    response = events[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
    assert response["output"][0]["content"][0]["text"] == "half"
    assert response["output"][1]["status"] == "incomplete"
    assert response["output"][1]["arguments"] == '{"x'


def test_a_filter_in_mid_stream() -> None:
    events = written(Chunk("half"), Error(ContentRejected("no more", partial="half")))
    assert events[-1]["type"] == "response.incomplete"
    response = events[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "content_filter"}
    assert response["output"] == [message("half", status="incomplete")]


def test_a_stream_that_was_cancelled() -> None:
    events = written(ReasoningDelta("Hm"), Cancelled())
    assert events[-1]["response"]["error"]["code"] == "request_cancelled"
    assert events[-1]["response"]["output"][0]["summary"][0]["text"] == "Hm"


def test_a_silent_provider_in_mid_stream() -> None:
    events = written(Chunk("x"), Error(ProviderTimeout("too slow")))
    assert events[-1]["response"]["error"] == {"code": "upstream_timeout", "message": "too slow"}


def told(content: Sequence[Content], size: int) -> Iterator[StreamEvent]:
    """The pieces in which a provider tells this."""
    calls = 0
    for part in content:
        if isinstance(part, Text | Reasoning):
            kind = Chunk if isinstance(part, Text) else ReasoningDelta
            for at in range(0, len(part.text), size):
                yield kind(part.text[at : at + size])
        elif isinstance(part, ToolUse):
            arguments = json.dumps(part.input, ensure_ascii=False, separators=(",", ":"))
            yield ToolUseDelta(calls, part.id, part.name)
            for at in range(0, len(arguments), size):
                yield ToolUseDelta(calls, arguments=arguments[at : at + size])
            calls += 1
        elif isinstance(part, MCPCall):
            yield ToolStarted(part.id, part.name, part.input, part.server)
            yield ToolEnded(part.id, part.name, part.is_error, part.content)


@given(answers(), st.integers(1, 5), st.booleans())
def test_any_stream_ends_with_what_the_whole_answer_would_have(
    content: tuple[Content, ...], size: int, together: bool
) -> None:
    events = written(*told(content, size), Complete(result(*content)), together=together)
    final = events[-1]["response"]
    output = whole(*content)["output"]
    for items in (final["output"], output):
        for item in items:
            if item["type"] == "function_call":
                # Nothing is said of how a provider writes its JSON.
                item["arguments"] = json.loads(item["arguments"])
    assert final["output"] == output
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    places = list(range(len(output)))
    assert [event["output_index"] for event in added] == places
    assert sorted(event["output_index"] for event in done) == places
    assert {event["item"]["id"] for event in done} == {item["id"] for item in output}
