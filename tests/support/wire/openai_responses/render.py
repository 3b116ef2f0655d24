"""Answers out: a scenario as a response, or as the events of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tests.support.wire.dialect import Frame
from tests.support.wire.openai_chat import render as common
from tests.support.wire.openai_chat.render import CREATED, write_json
from tests.support.wire.scenario import Call, Failure, Scenario, ServerCall, Stop, Tokens
from tests.support.wire.seen import Seen

_INCOMPLETE: Mapping[Stop, str] = {
    "max_tokens": "max_output_tokens",
    "filtered": "content_filter",
}
ENCRYPTED = "gAAAAABencrypted=="


def answer(scenario: Scenario, seen: Seen) -> bytes:
    """A whole response."""
    return write_json(_finished(scenario, seen))


def stream(scenario: Scenario, seen: Seen) -> list[Frame]:
    """The events of a response, each numbered, to the one that repeats the whole of it."""
    begun = _response(scenario, seen, "in_progress")
    events: list[tuple[dict[str, Any], bool]] = [
        ({"type": "response.created", "response": begun}, False),
        ({"type": "response.in_progress", "response": begun}, False),
    ]
    for index, item in enumerate(_items(scenario)):
        events += _item_events(scenario, index, item)
    whole = _finished(scenario, seen)
    frames = [
        _event({**event, "sequence_number": number}, piece=piece)
        for number, (event, piece) in enumerate(events)
    ]
    end = {"type": f"response.{whole['status']}", "response": whole, "sequence_number": len(frames)}
    return [*frames, _event(end, terminal=True)]


def error_event(failure: Failure) -> Frame:
    """An `error` event: the fields of the error stand in the event itself."""
    said = msgspec.json.decode(common.error(failure, None))["error"]
    event = {
        "type": "error",
        "code": said["code"] or said["type"],
        "message": said["message"],
        "param": said["param"],
        "sequence_number": 7,
    }
    return _event(event)


def keep_alive() -> Frame:
    """An event that the real server sends while a model is slow."""
    return _event({"type": "keepalive", "sequence_number": 3})


def _finished(scenario: Scenario, seen: Seen) -> dict[str, Any]:
    reason = _INCOMPLETE.get(scenario.stop)
    response = _response(scenario, seen, "incomplete" if reason else "completed")
    return response | {
        "completed_at": None if reason else CREATED + 1,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(_items(scenario)),
        "usage": _usage(scenario.tokens) if scenario.tokens else None,
    }


def _response(scenario: Scenario, seen: Seen, status: str) -> dict[str, Any]:
    return {
        "id": scenario.response_id,
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": seen.system,
        "max_output_tokens": seen.max_tokens,
        "model": seen.model,
        "output": [],
        "parallel_tool_calls": seen.parallel_tools is not False,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0 if seen.temperature is None else seen.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }


def _items(scenario: Scenario) -> Iterator[dict[str, Any]]:
    if scenario.reasoning:
        yield {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "".join(scenario.reasoning)}],
            "encrypted_content": ENCRYPTED,
        }
    for server in dict.fromkeys(made.server for made in scenario.mcp):
        yield {
            "id": f"mcpl_{server}",
            "type": "mcp_list_tools",
            "server_label": server,
            "tools": [
                {
                    "name": "search",
                    "description": "Finds pages.",
                    "input_schema": {"type": "object"},
                    "annotations": None,
                }
            ],
            "error": None,
        }
    for made in scenario.mcp:
        yield _mcp_call(made)
    content: list[dict[str, Any]] = []
    if scenario.text:
        content.append(_output_text(scenario.whole_text))
    if scenario.refusal:
        content.append({"type": "refusal", "refusal": scenario.refusal})
    if content:
        status = "incomplete" if scenario.stop in _INCOMPLETE else "completed"
        yield {
            "id": "msg_1",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }
    for number, call in enumerate(scenario.calls):
        yield _call(number, call)


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _call(number: int, call: Call) -> dict[str, Any]:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": "completed",
        "arguments": call.json,
        "call_id": call.id,
        "name": call.name,
    }


def _mcp_call(made: ServerCall) -> dict[str, Any]:
    said = [{"type": "text", "text": made.answer}]
    return {
        "id": made.call.id,
        "type": "mcp_call",
        "status": "failed" if made.failed else "completed",
        "approval_request_id": None,
        "arguments": made.call.json,
        "error": {"type": "mcp_tool_execution_error", "content": said} if made.failed else None,
        "name": made.call.name,
        "output": None if made.failed else made.answer,
        "server_label": made.server,
    }


def _mcp_events(
    scenario: Scenario, place: dict[str, Any], item: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], bool]]:
    kind = item["type"]
    yield {"type": f"response.{kind}.in_progress", **place}, False
    if kind == "mcp_call":
        made = next(each for each in scenario.mcp if each.call.id == item["id"])
        name = "response.mcp_call_arguments"
        for fragment in made.call.fragments:
            yield {"type": f"{name}.delta", **place, "delta": fragment}, False
        yield {"type": f"{name}.done", **place, "arguments": made.call.json}, False
    end = "failed" if item["error"] else "completed"
    yield {"type": f"response.{kind}.{end}", **place}, False


def _item_events(
    scenario: Scenario, index: int, item: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], bool]]:
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    empty: dict[str, Any] = {"summary": [], "content": [], "arguments": ""}
    begun: dict[str, Any] = {**item, **{key: empty[key] for key in empty if key in item}}
    if "status" in item:
        begun["status"] = "in_progress"
    if item["type"].startswith("mcp_"):
        begun |= {"output": None} if "output" in item else {"tools": []}
        begun["error"] = None
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}, False
    if item["type"] == "reasoning":
        yield from _reasoning_events(scenario, place, item)
    elif item["type"] == "message":
        yield from _message_events(scenario, place, item)
    elif item["type"].startswith("mcp_"):
        yield from _mcp_events(scenario, place, item)
    else:
        call = next(call for call in scenario.calls if call.id == item["call_id"])
        name = "response.function_call_arguments"
        for fragment in call.fragments:
            yield {"type": f"{name}.delta", **place, "delta": fragment}, True
        yield {"type": f"{name}.done", **place, "arguments": call.json}, False
    yield {"type": "response.output_item.done", "output_index": index, "item": item}, False


def _reasoning_events(
    scenario: Scenario, place: dict[str, Any], item: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], bool]]:
    place = {**place, "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **place, "part": part}, False
    for piece in scenario.reasoning:
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}, True
    whole = item["summary"][0]
    text = {"text": whole["text"]}
    yield {"type": "response.reasoning_summary_text.done", **place, **text}, False
    yield {"type": "response.reasoning_summary_part.done", **place, "part": whole}, False


def _message_events(
    scenario: Scenario, place: dict[str, Any], item: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], bool]]:
    for content_index, part in enumerate(item["content"]):
        here = {**place, "content_index": content_index}
        field = "text" if part["type"] == "output_text" else "refusal"
        empty = {**part, field: ""}
        yield {"type": "response.content_part.added", **here, "part": empty}, False
        name = f"response.{part['type']}"
        extra: dict[str, Any] = {"logprobs": []} if field == "text" else {}
        for piece in scenario.text if field == "text" else (scenario.refusal,):
            yield {"type": f"{name}.delta", **here, "delta": piece, **extra}, True
        yield {"type": f"{name}.done", **here, field: part[field], **extra}, False
        yield {"type": "response.content_part.done", **here, "part": part}, False


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def _event(value: dict[str, Any], *, piece: bool = False, terminal: bool = False) -> Frame:
    name = str(value["type"]).encode()
    data = b"event: " + name + b"\ndata: " + write_json(value) + b"\n\n"
    return Frame(data, piece, terminal)
