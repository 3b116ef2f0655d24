"""A neutral scenario as a fixture of aimock, as far as its fixtures can say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.wire.dialect import TranscribingDialect, WireDialect
from tests.support.wire.scenario import Failure, Scenario, Stop

FOREVER_MS = 60_000
"""Longer than any test lasts: it stands for "never"."""
_SILENCE_MS = 30_000
"""The longest pause that aimock makes before an answer."""
_HANG_UP_MS = 150
"""Time for what was written to arrive: aimock drops what is still on its way when it hangs up."""
_STOPS: Mapping[Stop, str] = {"max_tokens": "length", "stop_sequence": "stop_sequence"}
_SILENT_STOPS: Mapping[Stop, str] = {"max_tokens": "length"}
"""Where the API does not say that a stop sequence ended an answer."""


@dataclass(frozen=True, slots=True)
class Frames:
    """How many events of a stream stand around a piece of text; aimock counts its delays in them.

    aimock cuts text by a fixed number of characters; only its blocks give pieces of any length, and
    on some wires a block has events of its own before and after the piece.
    """

    opening: int
    """Before the first block."""
    before: int = 0
    """In a block, before its piece."""
    after: int = 0
    """In a block, after its piece."""

    def until(self, pieces: int) -> int:
        """The number of events up to this piece, and none for no piece."""
        block = self.before + 1 + self.after
        return pieces and self.opening + block * (pieces - 1) + self.before + 1


@dataclass(frozen=True, slots=True)
class Wire:
    """One dialect as aimock speaks it."""

    dialect: WireDialect
    frames: Frames
    filtered: str = "content_filter"
    """The word for a filter's end: aimock's own, or the API's, which it passes on."""
    refused: str = ""
    """The API's word for a refusal, where it is a reason to stop."""
    wraps_results: bool = False
    """Whether a tool's result is an object with the text in it."""


def fixture(scenario: Scenario, wire: Wire) -> dict[str, Any]:
    """What makes aimock play this; the caller says when, by its `match`."""
    frames = wire.frames
    if scenario.failure is not None:
        assert not scenario.has("error_event"), "aimock has no errors inside a stream"
        error = _error(scenario.failure, wire.dialect, scenario.has("error_in_200"))
        return {"response": error}
    assert wire.refused or not scenario.refusal, "aimock has no refusals"
    assert not scenario.mcp, "aimock has no calls at MCP servers"
    made: dict[str, Any] = {"response": _response(scenario, wire), "chunkSize": _longest(scenario)}
    if scenario.has("not_json"):
        made["chaos"] = {"malformedRate": 1}
    elif scenario.has("silent") or (scenario.pause is not None and not scenario.pause.after):
        made["chaos"] = {"latencyMs": _SILENCE_MS}
    elif scenario.has("stall", "cut"):
        assert scenario.fault is not None
        made["recordedTimings"] = _halt(frames.until(scenario.fault.after))
        if scenario.has("cut"):
            made["disconnectAfterMs"] = _HANG_UP_MS
    elif scenario.pause is not None:
        made["recordedTimings"] = _halt(frames.until(scenario.pause.after))
    assert scenario.fault is None or made.keys() & {"chaos", "recordedTimings"}, (
        f"aimock has no fault {scenario.fault}"
    )
    assert not scenario.fragment, "aimock writes whole events"
    return made


def transcript(scenario: Scenario, wire: Wire) -> dict[str, Any] | None:
    """The same for a recording, where that is a call of its own."""
    if not isinstance(wire.dialect, TranscribingDialect):
        return None
    if scenario.failure is not None:
        return {"response": _error(scenario.failure, wire.dialect, good_status=False)}
    return {"response": {"transcription": json.loads(wire.dialect.transcript(scenario))}}


def _response(scenario: Scenario, wire: Wire) -> dict[str, Any]:
    stops = _STOPS if wire.dialect.reports_stop_sequence else _SILENT_STOPS
    pieces = scenario.text or filter(None, [scenario.refusal])
    blocks: list[dict[str, str]] = [{"type": "text", "text": piece} for piece in pieces]
    blocks += [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.json}
        for call in scenario.calls
    ]
    made: dict[str, Any] = {"blocks": blocks, "id": scenario.response_id}
    if scenario.reasoning:
        made["reasoning"] = "".join(scenario.reasoning)
    if scenario.refusal or scenario.stop == "filtered":
        made["finishReason"] = wire.refused if scenario.refusal else wire.filtered
    elif word := stops.get(scenario.stop):
        made["finishReason"] = word
    assert scenario.tokens is not None, "aimock always reports usage"
    made["usage"] = {
        # Each dialect picks its own names.
        **dict.fromkeys(("input_tokens", "promptTokenCount"), scenario.tokens.input),
        **dict.fromkeys(("output_tokens", "candidatesTokenCount"), scenario.tokens.output),
    }
    return made


def _longest(scenario: Scenario) -> int:
    """The size of a piece, in UTF-16 code units, that leaves every piece whole."""
    pieces = [*scenario.text, *scenario.reasoning, scenario.refusal]
    pieces += [fragment for call in scenario.calls for fragment in call.fragments]
    return max(len(piece.encode("utf-16-le")) // 2 for piece in pieces)


def _halt(events: int) -> dict[str, Any]:
    """So many events at once, and nothing after them."""
    first, *others = [0] * events + [FOREVER_MS]
    return {"ttftMs": first, "interChunkDelaysMs": others, "totalDurationMs": FOREVER_MS}


def _error(failure: Failure, dialect: WireDialect, good_status: bool) -> dict[str, Any]:
    """The provider's own error, in the fields that aimock puts into each dialect's body."""
    response = dialect.error(failure, None)
    body: Any = json.loads(response.body)
    found = body.get("error", body)
    said: dict[str, Any] = {"message": found} if isinstance(found, str) else found
    kind = said.get("status") or said.get("type") or response.headers.get("x-amzn-errortype")
    error = {"message": said.get("message", ""), "type": kind, "code": said.get("code")}
    if isinstance(error["code"], int):
        del error["code"]  # Google's copy of the status
    made = {"error": error, "status": 200 if good_status else response.status}
    return made if failure.retry_after is None else made | {"retryAfter": failure.retry_after}
