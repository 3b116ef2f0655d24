"""Builders for bodies and events of the Responses wire."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.providers.openai_responses.decode import ResponseStreamDecoder
from penstock.streaming.sse import ServerSentEvent

WireEvent: TypeAlias = dict[str, Any] | str | bytes

USAGE = {
    "input_tokens": 11,
    "output_tokens": 7,
    "total_tokens": 18,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
    "output_tokens_details": {"reasoning_tokens": 5},
}
COUNTED = Usage(11, 7, 3, 2, 5)


def message(*texts: str, id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    parts: list[Any] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    item = {"type": "message", "id": id, "role": "assistant", "status": "completed"}
    return {**item, "content": parts, **fields}


def refusal(text: str, *before: str) -> dict[str, Any]:
    item = message(*before)
    return {**item, "content": [*item["content"], {"type": "refusal", "refusal": text}]}


def call(
    name: str | None = "f", arguments: Any = "{}", *, id: str = "fc_1", call_id: str | None = "c1"
) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def thought(*texts: str, id: str = "rs_1", encrypted: str | None = "enc") -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}


def response(*items: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "id": "r1",
        "object": "response",
        "model": "m-1",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": list(items),
        **fields,
    }


def body(*items: dict[str, Any], status: str = "completed", **fields: Any) -> bytes:
    return msgspec.json.encode(response(*items, status=status, **fields))


def created() -> dict[str, Any]:
    return {"type": "response.created", "response": response(status="in_progress")}


def added(index: int | None, item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": [], "arguments": "", "summary": []}
    begun: dict[str, Any] = {**item, **{key: empty[key] for key in empty if key in item}}
    return {"type": "response.output_item.added", "output_index": index, "item": begun}


def done(index: int | None, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, index: int | None, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, **fields}


def text(index: int | None, piece: str, **fields: Any) -> dict[str, Any]:
    return delta("output_text", index, piece, content_index=0, logprobs=[], **fields)


def arguments(index: int | None, piece: str, **fields: Any) -> dict[str, Any]:
    return delta("function_call_arguments", index, piece, **fields)


def summary(index: int | None, piece: str, part: int = 0) -> dict[str, Any]:
    return delta("reasoning_summary_text", index, piece, summary_index=part)


def end(*items: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": response(*items, status=status, **fields)}


def frame(event: WireEvent, name: str = "message") -> ServerSentEvent:
    if isinstance(event, str):
        event = event.encode()
    data = event if isinstance(event, bytes) else msgspec.json.encode(event)
    return ServerSentEvent(data, name)


def run(*events: WireEvent) -> list[ProviderEvent]:
    """Every event in a read of its own, to the end of the body."""
    decoder = ResponseStreamDecoder()
    out: list[ProviderEvent] = []
    for event in events:
        out += decoder.feed([frame(event)])
    return [*out, *decoder.finish()]


def reply_of(events: Sequence[ProviderEvent]) -> Reply:
    assert [isinstance(event, Finished) for event in events].count(True) == 1
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reply
