"""Answers out: a scenario as the body, the stream or the error that the real server would send."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from tests.support.wire.dialect import Frame
from tests.support.wire.scenario import Call, Failure, FailureKind, Scenario, Stop
from tests.support.wire.seen import Seen

CREATED = "2026-11-15T12:00:00.123456789Z"
_REASONS: Mapping[Stop, str] = {
    "end": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "stop",
}

# (status, whether the cloud says so, message).
_ERRORS: Mapping[FailureKind, tuple[int, bool, str]] = {
    "rate_limit": (429, True, "you have reached your hourly usage limit, please wait"),
    "authentication": (401, True, "unauthorized"),
    "permission": (403, True, "this model requires a subscription, upgrade for access"),
    "unknown_model": (404, False, "model 'x' not found"),
    "bad_request": (400, False, '"x" does not support thinking'),
    "server_error": (500, False, "llama runner process has terminated: exit status 2"),
    "overloaded": (
        503,
        False,
        "server busy, please try again.  maximum pending requests exceeded",
    ),
}


def write_json(value: Any) -> bytes:
    """JSON as it travels: compact, and in UTF-8."""
    return msgspec.json.encode(value)


def answer(scenario: Scenario, seen: Seen) -> bytes:
    """A whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": scenario.whole_text}
    if scenario.reasoning:
        message["thinking"] = "".join(scenario.reasoning)
    if scenario.calls:
        message["tool_calls"] = [
            _call(index, call)["tool_calls"][0] for index, call in enumerate(scenario.calls)
        ]
    return write_json(_line(seen, message) | _end(scenario))


def stream(scenario: Scenario, seen: Seen) -> list[Frame]:
    """The lines of an answer, to the one that is done."""
    pieces: list[dict[str, Any]] = [
        *({"content": "", "thinking": piece} for piece in scenario.reasoning),
        *({"content": piece} for piece in scenario.text),
        *(_call(index, call) for index, call in enumerate(scenario.calls)),
    ]
    frames = [
        _frame(_line(seen, {"role": "assistant", **piece}) | {"done": False}, piece=True)
        for piece in pieces
    ]
    last = _line(seen, {"role": "assistant", "content": ""}) | _end(scenario)
    return [*frames, _frame(last, terminal=True)]


def model(name: str) -> dict[str, Any]:
    """An entry of the model list."""
    return {
        "name": name,
        "model": name,
        "modified_at": "2026-10-03T23:34:03.409490317-07:00",
        "size": 3_338_801_804,
        "digest": "a2af6cc3eb7fa8be8504abaf9b04e88f17a119ec3f04a3addf55f92841195f5a",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "gemma",
            "families": ["gemma"],
            "parameter_size": "4.3B",
            "quantization_level": "Q4_K_M",
        },
    }


def status(failure: Failure) -> int:
    """The HTTP status of this failure."""
    return _ERRORS[failure.kind][0]


def error(failure: Failure) -> bytes:
    """The body of this failure."""
    code, cloud, message = _ERRORS[failure.kind]
    named = {"StatusCode": code, "Status": f"{code} {HTTPStatus(code).phrase}"} if cloud else {}
    return write_json({**named, "error": message})


def _line(seen: Seen, message: dict[str, Any]) -> dict[str, Any]:
    return {"model": seen.model, "created_at": CREATED, "message": message}


def _end(scenario: Scenario) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    if scenario.tokens is not None:
        counts = {
            "prompt_eval_count": scenario.tokens.input,
            "prompt_eval_duration": 342_546_000,
            "eval_count": scenario.tokens.output,
            "eval_duration": 4_535_599_000,
        }
    return {
        "done": True,
        "done_reason": _REASONS[scenario.stop],
        "total_duration": 4_883_583_458,
        "load_duration": 1_334_875,
        **counts,
    }


def _call(index: int, call: Call) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": call.arguments}
    return {"content": "", "tool_calls": [{"function": function}]}


def _frame(value: dict[str, Any], *, piece: bool = False, terminal: bool = False) -> Frame:
    return Frame(write_json(value) + b"\n", piece, terminal)
