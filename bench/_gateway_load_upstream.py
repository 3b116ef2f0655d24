"""The provider of `gateway_load.py`, in a process of its own: it says what the message asks for.

    python bench/_gateway_load_upstream.py PORT

The first message of a user is four words, `NAME PIECES PAUSE_MS STATUS`. The answer is `NAME:0 `,
`NAME:1 ` and so on, so many pieces; a stream has one each pause, a whole answer comes after the
first. With another status than 200 there is an error instead. A request to continue a cut answer
gets the answer from the beginning. So the client sees whether a piece is missing, comes twice or
belongs to another answer. `GET /seen` has the names of all requests.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import uvloop

from penstock.server.http.listening import allow_open_files

_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
seen: list[str] = []


class Asked(NamedTuple):
    """What a message says."""

    name: str
    pieces: int
    pause_s: float
    status: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Asked:
        said = next(each["content"] for each in body["messages"] if each["role"] == "user")
        text = said if isinstance(said, str) else said[0]["text"]
        name, pieces, pause_ms, status = text.split()
        return cls(name, int(pieces), int(pause_ms) / 1e3, int(status))


class Upstream(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted, for uvloop's are none by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        self._held = b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, found, body = self._held.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if not found or len(body) < length:
            return
        self._held = body[length:]
        path = head.split(b" ", 2)[1]
        if path == b"/seen":
            self._reply(seen)
        elif path.endswith(b"/models"):
            self._reply({"object": "list", "data": []})
        elif path.endswith(b"/embeddings"):
            self._embed(json.loads(body[:length]))
        else:
            self._answer(json.loads(body[:length]))

    def _embed(self, body: Mapping[str, Any]) -> None:
        texts = body["input"]
        rows = [
            {"object": "embedding", "index": index, "embedding": [float(index), 0.5, 0.25]}
            for index in range(len(texts))
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        self._reply({"object": "list", "data": rows, "model": body["model"], "usage": usage})

    def _answer(self, body: Mapping[str, Any]) -> None:
        asked = Asked.of(body)
        seen.append(asked.name)
        if asked.status != 200:
            error = {"message": "as asked for", "type": "error", "code": None, "param": None}
            self._reply({"error": error}, asked.status)
        elif body.get("stream"):
            self._transport.write(_STREAM)
            self._event(asked, {"role": "assistant", "content": ""})
            self._go_on(asked, 0)
        else:
            asyncio.get_running_loop().call_later(asked.pause_s, self._whole, asked)

    def _whole(self, asked: Asked) -> None:
        text = "".join(piece(asked.name, number) for number in range(asked.pieces))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}}
        said = _head("chat.completion") | {"choices": [choice | {"finish_reason": "stop"}]}
        self._reply(said | {"usage": _usage(asked)})

    def _go_on(self, asked: Asked, number: int) -> None:
        if self._transport.is_closing():
            return
        if number < asked.pieces:
            self._event(asked, {"content": piece(asked.name, number)})
            asyncio.get_running_loop().call_later(asked.pause_s, self._go_on, asked, number + 1)
            return
        self._event(asked, {}, "stop")
        choices: list[object] = []
        usage = _head("chat.completion.chunk") | {"choices": choices, "usage": _usage(asked)}
        self._chunk(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(usage).encode())
        self._transport.write(b"0\r\n\r\n")

    def _event(self, asked: Asked, delta: Mapping[str, str], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        said = _head("chat.completion.chunk") | {"choices": [choice]}
        self._chunk(b"data: %b\n\n" % json.dumps(said).encode())

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _reply(self, body: object, status: int = 200) -> None:
        said = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(said)}\r\n\r\n".encode() + said)


def piece(name: str, number: int) -> str:
    """What is said in one chunk."""
    return f"{name}:{number} "


def _head(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-load", "object": kind, "created": 1, "model": "load"}


def _usage(asked: Asked) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": asked.pieces, "total_tokens": 9 + asked.pieces}


async def main(port: int) -> None:
    allow_open_files()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends with its parent, which holds the other end of the pipe.
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
