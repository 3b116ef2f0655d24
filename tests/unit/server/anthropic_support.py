"""What tests of the Anthropic door share."""

import json
from typing import Any

from tests.unit.server.gateway_support import frames_of

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    """The body of a call; a plain text is a user's message."""
    conversation = [
        {"role": "user", "content": message} if isinstance(message, str) else message
        for message in messages or ("Hello there",)
    ]
    return {"messages": conversation, "max_tokens": 100, **fields}


def read_events(text: str) -> list[Any]:
    """The data of each event, whose name is its type."""
    frames = frames_of(text)
    assert frames.pop() == "", "the stream does not end with a whole event"
    events: list[Any] = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events
