"""Builders for bodies and lines of Ollama's wire."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply
from penstock.providers.ollama.decode import OllamaStreamDecoder

CREATED = "2026-11-15T12:00:00.123456789Z"
COUNTS = {
    "total_duration": 4883583458,
    "load_duration": 1334875,
    "prompt_eval_count": 26,
    "prompt_eval_duration": 342546000,
    "eval_count": 282,
    "eval_duration": 4535599000,
}


def line(content: str = "", *, done: bool = False, **message: Any) -> dict[str, Any]:
    """A line in the middle of a stream."""
    said = {"role": "assistant", "content": content, **message}
    return {"model": "llama3.2", "created_at": CREATED, "message": said, "done": done}


def last(reason: str | None = "stop", *, content: str = "", **message: Any) -> dict[str, Any]:
    """The line that ends a stream; also a whole body."""
    end = {} if reason is None else {"done_reason": reason}
    return line(content, done=True, **message) | end | COUNTS


def call(name: str, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A tool call."""
    return {"function": {"name": name, "arguments": arguments or {}}, **fields}


def frame(value: dict[str, Any] | bytes) -> bytes:
    """One line as the framing gives it."""
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def run(*lines: dict[str, Any] | bytes, whole: bool = False) -> list[ProviderEvent]:
    """Every line in a read of its own, or all in one, to the end of the body."""
    decoder = OllamaStreamDecoder()
    frames = [frame(each) for each in lines]
    reads: Sequence[Sequence[bytes]] = [frames] if whole else [[each] for each in frames]
    events: list[ProviderEvent] = []
    for read in reads:
        events += decoder.feed(read)
    return [*events, *decoder.finish()]


def reply_of(events: Sequence[ProviderEvent]) -> Reply:
    """The reply of a stream that ended well, and ended once."""
    end = events[-1]
    assert isinstance(end, Finished)
    assert not any(isinstance(event, Finished) for event in events[:-1])
    return end.reply
