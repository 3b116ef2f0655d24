"""Answers without end, as each provider would write them: a head, and a block that repeats.

`ROWS` names each as `dialect.growth`, which is also the model that a request asks for.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tests.support.wire.bedrock import frames

Event: TypeAlias = Callable[[Mapping[str, Any]], bytes]
PIECE = "word " * 200
PAD = "p" * 4096
_SSE = "text/event-stream"


@dataclass(frozen=True)
class Row:
    """What a server writes for one model: `before` once, and `block` for ever."""

    before: bytes
    block: bytes
    content_type: str = _SSE
    coding: str = ""
    raw: bool = False
    """Whether it is written as it is, without a head of ours."""
    error: str = "MalformedResponse"
    retryable: bool = False
    whole: bool = False
    """Whether a whole answer is asked for, and no stream."""
    begins: bool = True
    """Whether a part of the answer reaches the caller, who then gets the error as an event."""
    limits: Literal["default", "small", "short"] = "small"
    """Those of the client: the default ones, fewer bytes, or a short silence."""


def _sse(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _ndjson(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _many(count: int, event: Callable[[int], bytes]) -> bytes:
    return b"".join(map(event, range(count)))


def _chat() -> dict[str, Row]:
    def delta(**fields: Any) -> bytes:
        return _sse({"id": "c", "model": "m", "choices": [{"index": 0, "delta": fields}]})

    def call(index: int, name: str = "f", arguments: str = "") -> bytes:
        function = {"name": name, "arguments": arguments}
        return delta(tool_calls=[{"index": index, "id": f"c{index}", "function": function}])

    usage = {"prompt_tokens": 1, "completion_tokens": 1, "pad": PAD}
    text = delta(content=PIECE)
    return {
        "text": Row(b"", text),
        "reasoning": Row(b"", delta(reasoning_content=PIECE)),
        "arguments": Row(
            call(0), delta(tool_calls=[{"index": 0, "function": {"arguments": PIECE}}])
        ),
        "calls": Row(b"", _many(2000, lambda each: call(each * 10**9))),
        "tiny calls": Row(b"", delta(tool_calls=[{"id": f"{each}"} for each in range(2000)])),
        "choices": Row(
            text,
            _sse({"choices": [{"index": each, "delta": {"content": PAD}} for each in range(1, 9)]}),
        ),
        "usage": Row(text, _sse({"choices": [], "usage": usage})),
        "refusal": Row(b"", delta(refusal=PIECE), begins=False),
        "event": Row(
            text + b'data: {"choices": [{"delta": {"content": "', PAD.encode(), limits="default"
        ),
        "comment": Row(text, b": " + PAD.encode() + b"\n"),
        "pings": Row(text, b": " + PAD.encode() + b"\n\n", limits="default"),
        "parts": Row(b"", delta(content="a") + delta(reasoning_content="b" + "\\u0000" * 100)),
        "whole": Row(
            b'{"choices": [{"message": {"content": "', PAD.encode(), whole=True, begins=False
        ),
    }


def _responses() -> dict[str, Row]:
    def event(kind: str, **fields: Any) -> bytes:
        return _sse({"type": f"response.{kind}", **fields})

    def item(kind: str, index: int, **fields: Any) -> bytes:
        said = {"type": kind, "id": f"i{index}", **fields}
        return event("output_item.added", output_index=index, item=said)

    text = event("output_text.delta", output_index=0, delta=PIECE)
    call = item("function_call", 0, call_id="c", name="f")
    return {
        "text": Row(b"", text),
        "reasoning": Row(b"", event("reasoning_text.delta", output_index=0, delta=PIECE)),
        "arguments": Row(call, event("function_call_arguments.delta", output_index=0, delta=PIECE)),
        "calls": Row(
            b"", _many(2000, lambda at: item("function_call", at, call_id=f"c{at}", name="f"))
        ),
        "items": Row(text, _many(70_000, lambda at: item("message", at))),
        "repeated items": Row(
            text * 900,
            event("output_item.done", output_index=0, item={"type": "message", "id": PAD}),
        ),
        "refusal": Row(b"", event("refusal.delta", output_index=0, delta=PIECE), begins=False),
        "usage": Row(text, event("in_progress", response={"usage": {"input_tokens": PAD}})),
    }


def _anthropic() -> dict[str, Row]:
    def start(index: int, **block: Any) -> bytes:
        return _sse({"type": "content_block_start", "index": index, "content_block": block})

    def delta(kind: str, **fields: Any) -> bytes:
        piece = {"type": kind, **fields}
        return _sse({"type": "content_block_delta", "index": 0, "delta": piece})

    head = _sse({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}})
    text = head + start(0, type="text", text="")
    thinking = head + start(0, type="thinking", thinking="")
    stop = _sse({"type": "content_block_stop", "index": 0})
    said = delta("text_delta", text=PIECE)
    return {
        "text": Row(text, said),
        "reasoning": Row(thinking, delta("thinking_delta", thinking=PIECE)),
        "arguments": Row(
            head + start(0, type="tool_use", id="t", name="f"),
            delta("input_json_delta", partial_json=PIECE),
        ),
        "calls": Row(
            head,
            _many(2000, lambda at: start(at * 10**9, type="tool_use", id=f"t{at}", name="f")),
        ),
        "blocks": Row(text + said, _many(70_000, lambda at: start(at, type="text", text=""))),
        "stops": Row(
            thinking
            + delta("thinking_delta", thinking=PIECE) * 900
            + delta("signature_delta", signature="s"),
            stop * 64,
        ),
        "usage": Row(
            text + said,
            _sse({"type": "message_delta", "delta": {}, "usage": {"output_tokens": -1, "p": PAD}}),
        ),
        "pings": Row(text + said, b"event: ping\ndata: " + json.dumps(PAD).encode() + b"\n\n"),
    }


def _gemini() -> dict[str, Row]:
    def parts(*found: Mapping[str, Any]) -> bytes:
        return _sse({"candidates": [{"content": {"parts": found}, "index": 0}]})

    return {
        "text": Row(b"", parts({"text": PIECE})),
        "reasoning": Row(b"", parts({"text": PIECE, "thought": True})),
        "calls": Row(
            b"", parts(*({"functionCall": {"name": "f", "id": f"{at}"}} for at in range(2000)))
        ),
        "arguments": Row(b"", parts({"functionCall": {"name": "f", "args": {"a": PIECE}}})),
        "media": Row(
            parts({"text": PIECE}),
            parts({"inlineData": {"mimeType": "image/png", "data": PAD}}),
        ),
        "signatures": Row(
            parts({"text": PIECE}),
            parts(*([{"text": "", "thoughtSignature": "s"}] * 70_000)),
        ),
        "usage": Row(parts({"text": PIECE}), _sse({"usageMetadata": {"promptTokenCount": PAD}})),
    }


def _ollama() -> dict[str, Row]:
    def line(**message: Any) -> bytes:
        return _ndjson({"model": "m", "message": message, "done": False})

    nd = "application/x-ndjson"
    return {
        "text": Row(b"", line(content=PIECE), nd),
        "reasoning": Row(b"", line(thinking=PIECE), nd),
        "arguments": Row(
            b"", line(tool_calls=[{"function": {"name": "f", "arguments": {"a": PIECE}}}]), nd
        ),
        "calls": Row(b"", line(tool_calls=[{}] * 200_000), nd),
        "line": Row(
            line(content=PIECE) + b'{"message": {"content": "', PAD.encode(), nd, limits="default"
        ),
        "blank": Row(line(content=PIECE), b" " * 4095 + b"\n", nd),
        "unknown": Row(line(content=PIECE), _ndjson({"pad": PAD}), nd),
    }


def _bedrock() -> dict[str, Row]:
    def delta(**fields: Any) -> bytes:
        return frames.event("contentBlockDelta", {"contentBlockIndex": 0, "delta": fields})

    def start(index: int) -> bytes:
        begun = {"toolUse": {"toolUseId": f"t{index}", "name": "f"}}
        return frames.event("contentBlockStart", {"contentBlockIndex": index, "start": begun})

    aws = "application/vnd.amazon.eventstream"
    text = delta(text=PIECE)
    stop = frames.event("contentBlockStop", {"contentBlockIndex": 0})
    usage = {"usage": {"inputTokens": "x"}, "p": PAD}
    return {
        "text": Row(b"", text, aws),
        "reasoning": Row(b"", delta(reasoningContent={"text": PIECE}), aws),
        "arguments": Row(start(0), delta(toolUse={"input": PIECE}), aws),
        "calls": Row(b"", _many(2000, lambda at: start(at * 10**9)), aws),
        "signatures": Row(
            text
            + frames.event(
                "contentBlockDelta",
                {"contentBlockIndex": 1, "delta": {"reasoningContent": {"text": "t"}}},
            ),
            frames.event(
                "contentBlockDelta",
                {"contentBlockIndex": 1, "delta": {"reasoningContent": {"signature": PIECE}}},
            ),
            aws,
        ),
        "stops": Row(
            delta(reasoningContent={"text": PIECE}) * 900
            + delta(reasoningContent={"signature": "s"}),
            stop * 64,
            aws,
        ),
        "usage": Row(text, frames.event("metadata", usage), aws),
        "message": Row(
            frames.event("contentBlockDelta", b"x" * 17_000_000)[:12],
            PAD.encode(),
            aws,
            begins=False,
        ),
    }


def _http() -> dict[str, Row]:
    """Growth below the events, the same for all dialects."""
    said = _chat()["text"].block
    chunk = b"%x\r\n%s\r\n" % (len(said), said)
    ok = b"HTTP/1.1 200 OK\r\n"
    head = ok + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    packed = gzip.compress(said)
    packer = zlib.compressobj(wbits=31)
    open_gzip = packer.compress(said) + packer.flush(zlib.Z_SYNC_FLUSH)
    empty = packer.flush(zlib.Z_FULL_FLUSH) or b"\0\0\0\xff\xff"
    bomb = packer.compress(said * 1000) + packer.flush(zlib.Z_FULL_FLUSH)
    broken = "StreamInterrupted"
    return {
        "trailers": Row(
            head + chunk + b"0\r\n",
            b"x-trailer: " + PAD.encode() + b"\r\n",
            raw=True,
            error=broken,
            limits="short",
        ),
        "trailer": Row(
            head + chunk + b"0\r\nx-trailer: ",
            PAD.encode(),
            raw=True,
            error=broken,
            limits="short",
        ),
        "extension": Row(
            head + chunk + b"5;", PAD.encode(), raw=True, error=broken, limits="short"
        ),
        "headers": Row(ok, b"x-header: y\r\n" * 64, raw=True, begins=False, retryable=True),
        "header": Row(ok + b"x-header: ", PAD.encode(), raw=True, begins=False, retryable=True),
        "notices": Row(
            b"",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 64,
            raw=True,
            begins=False,
            retryable=True,
        ),
        "gzip": Row(open_gzip, bomb, coding="gzip"),
        "empty gzip": Row(open_gzip, empty * 64, coding="gzip", error=broken, retryable=True),
        "after gzip": Row(packed, PAD.encode(), coding="gzip", error=broken, retryable=True),
        "error body": Row(
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            PAD.encode(),
            raw=True,
            error="InvalidRequest",
            begins=False,
        ),
    }


def rows() -> dict[str, Row]:
    """All of them; made when asked for, as some are large."""
    families = {
        "openai-chat": {**_chat(), **_http()},
        "openai": _responses(),
        "anthropic": _anthropic(),
        "gemini": _gemini(),
        "ollama": _ollama(),
        "bedrock": _bedrock(),
    }
    return {
        f"{kind}.{growth.replace(' ', '-')}": row
        for kind, family in families.items()
        for growth, row in family.items()
    }
