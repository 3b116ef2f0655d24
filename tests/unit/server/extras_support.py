"""Providers on loopback that keep the bodies they are sent, and answer with more than is known."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from tests.support.wire.connection import read_request

VENDOR = {"vendor_note": {"tier": [1, None, "ü"]}}
"""What stands in every whole answer."""
USAGE = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
ANSWERS: Mapping[str, dict[str, Any]] = {
    "openai-chat": {
        "id": "up_1",
        "object": "chat.completion",
        "created": 1,
        "model": "theirs",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "annotations": [{"a": 1}]},
                "logprobs": {"content": [{"token": "Hi", "logprob": -0.5}]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        "system_fingerprint": "fp_1",
        **VENDOR,
    },
    "openai": {
        "id": "up_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "theirs",
        "error": None,
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
            }
        ],
        "usage": USAGE,
        "instructions": "not the caller's",
        "service_tier": "flex",
        **VENDOR,
    },
    "anthropic": {
        "id": "up_1",
        "type": "message",
        "role": "assistant",
        "model": "theirs",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
        "container": {"id": "c_1"},
        **VENDOR,
    },
}
_CHUNK = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
STREAMS: Mapping[str, list[dict[str, Any]]] = {
    "openai-chat": [{"id": "up_1", "model": "theirs", "choices": [_CHUNK], **VENDOR}],
    "openai": [
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "x", "delta": "Hi"},
        {"type": "response.completed", "response": ANSWERS["openai"]},
    ],
    "anthropic": [
        {"type": "message_start", "message": {**ANSWERS["anthropic"], "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hi"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ],
}


@dataclass
class Upstream:
    """One provider; `bodies` and `headers` are what it was sent, in their order."""

    kind: str
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])

    @property
    def shape(self) -> str:
        """The kind whose answers it gives."""
        return self.kind if self.kind in ANSWERS else "openai-chat"

    def answer(self, body: dict[str, Any]) -> tuple[str, bytes]:
        """The type and the bytes of an answer."""
        if not body.get("stream"):
            return "application/json", json.dumps(ANSWERS[self.shape]).encode()
        events = [
            f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n"
            for event in STREAMS[self.shape]
        ]
        return "text/event-stream", "".join(events).encode()


@contextlib.asynccontextmanager
async def upstream(kind: str) -> AsyncGenerator[Upstream]:
    """A provider of this kind at an address of its own."""
    seen = Upstream(kind)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        assert request is not None
        seen.bodies.append(json.loads(request.body))
        seen.headers.append(request.headers)
        content_type, body = seen.answer(seen.bodies[-1])
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen.url = f"http://127.0.0.1:{port}" + ("" if kind == "anthropic" else "/v1")
        yield seen


def engine_on(*upstreams: Upstream) -> Engine:
    """An engine whose default model tries these, each under the name of its kind."""
    return Engine(
        Config.model_validate(
            {
                "providers": {
                    each.kind: {"kind": each.kind, "url": each.url, "auth_token": "k"}
                    for each in upstreams
                },
                "models": {"default": {"targets": [f"{each.kind}/m" for each in upstreams]}},
                "pool": {"retries": 0},
            }
        )
    )
