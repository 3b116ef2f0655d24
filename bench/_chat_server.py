"""A chat-completions server that costs next to nothing: canned bytes on a bare asyncio protocol.

The model `down` is answered with 503, and a stream of the model `hold` stops after its first words.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import cast

CHUNKS = 100
WORD = "word "


def _event(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return (
        b"data: %b\n\n"
        % json.dumps(_head("chat.completion.chunk") | {"choices": [choice]}).encode()
    )


def _head(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-bench", "object": kind, "created": 1, "model": "bench"}


USAGE = {"prompt_tokens": 9, "completion_tokens": CHUNKS, "total_tokens": 9 + CHUNKS}
MESSAGE = {"role": "assistant", "content": WORD * CHUNKS, "refusal": None}
ANSWER = json.dumps(
    _head("chat.completion")
    | {"usage": USAGE}
    | {"choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}]}
).encode()
EVENTS = [
    _event({"role": "assistant", "content": ""}),
    *[_event({"content": WORD}) for _ in range(CHUNKS)],
    _event({}, "stop"),
    b"data: %b\n\n"
    % json.dumps(_head("chat.completion.chunk") | {"choices": [], "usage": USAGE}).encode(),
    b"data: [DONE]\n\n",
]
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(ANSWER),
    ANSWER,
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM = [STREAM_HEAD, *(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS), b"0\r\n\r\n"]
DOWN = (
    b"HTTP/1.1 503 X\r\ncontent-type: application/json\r\ncontent-length: 28\r\n\r\n"
    b'{"error":{"message":"down"}}'
)


class Chat(asyncio.Protocol):
    """Answers each request of a connection as soon as it is whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted, for uvloop's are none by inheritance.
        self._transport = cast(asyncio.Transport, transport)
        self._held = b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, found, body = self._held.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(body) < length:
            return
        self._held = body[length:]
        asked = body[:length].replace(b" ", b"")
        if b'"model":"down"' in asked:
            self._transport.write(DOWN)
        elif b'"stream":true' in asked:
            for piece in STREAM[:4] if b'"model":"hold"' in asked else STREAM:
                self._transport.write(piece)
        else:
            self._transport.write(WHOLE)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Chat, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends with its parent, which holds the other end of the pipe.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
