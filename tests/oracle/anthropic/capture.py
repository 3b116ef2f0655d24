"""A local server that keeps what it is sent, and answers with what it is given."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Reply:
    """What the server says next."""

    body: bytes = field(default_factory=lambda: json.dumps(MESSAGE).encode())
    content_type: str = "application/json"


class Capture:
    """The server, on a free port of the loopback."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.reply = Reply()
        capture = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                raw = self.rfile.read(length)
                capture.sent.append(
                    Sent(
                        self.command,
                        self.path,
                        {name.lower(): value for name, value in self.headers.items()},
                        json.loads(raw) if raw else None,
                    )
                )
                self.send_response(200)
                self.send_header("content-type", capture.reply.content_type)
                self.send_header("content-length", str(len(capture.reply.body)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(capture.reply.body)

            do_GET = do_POST  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Capture:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
