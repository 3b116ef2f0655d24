"""What the tests of the Responses door share."""

import json
from typing import Any

from hypothesis import strategies as st

from penstock.contract.messages import Content, MCPCall, Reasoning, Text, ToolUse
from tests.unit.server.gateway_support import frames_of

RESPONSES = "/v1/responses"


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream: each says its type twice, and they are numbered without a gap."""
    frames = frames_of(text)
    assert frames.pop() == "", "the stream does not end with a whole event"
    events: list[dict[str, Any]] = []
    for number, frame in enumerate(frames):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def types(events: list[dict[str, Any]]) -> list[str]:
    """The types, without what they all begin with."""
    return [event["type"].removeprefix("response.") for event in events]


_META = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Content, ...]:
    """What a model may have said, with a secret of its provider."""
    content: list[Content] = [Reasoning("", signature="s", redacted=True, origin="o/p")]
    for number in range(draw(st.integers(0, 6))):
        id, meta = f"call_{number}", draw(_META)
        part: Content
        match draw(st.sampled_from(["text", "thought", "use", "mcp"])):
            case "text":
                part = Text(draw(_TEXT), meta=meta)
            case "thought":
                signature = draw(st.none() | st.just("sig"))
                origin = None if signature is None else "o/p"
                part = Reasoning(draw(_TEXT), signature=signature, origin=origin, meta=meta)
            case "use":
                part = ToolUse(id, draw(_TEXT), {"q": draw(_TEXT)}, meta=meta)
            case _:
                part = MCPCall(id, draw(_TEXT), draw(_TEXT), {}, (Text(draw(_TEXT)),), meta=meta)
        content.append(part)
    return tuple(content)
