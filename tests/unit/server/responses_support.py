"""What the tests of the Responses door share."""

import json
from typing import Any

RESPONSES = "/v1/responses"


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream: each says its type twice, and they are numbered without a gap."""
    frames = text.split("\n\n")
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
