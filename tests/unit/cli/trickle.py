"""A chat server on loopback that can stop in mid-answer, and notices who hangs up."""

import contextlib
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class TrickleServer(ThreadingHTTPServer):
    """Says `words`; then it waits until the client hangs up, unless `complete`."""

    daemon_threads = True
    # Handlers that wait for a client must not keep the test from ending.
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.words = ["one ", "two "]
        self.complete = False
        self.impatient = False
        """Whether connections are closed after each answer."""
        self.broken = False
        """Whether the connection is cut in mid-answer."""
        self.bodies: list[dict[str, Any]] = []
        self.hung_up = threading.Event()
        self.closed = threading.Semaphore(0)
        """Released once for each connection that the server has closed."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what this server is for."""

    def config(self) -> str:
        """A configuration whose default model is this server's."""
        return (
            f'[providers.slow]\nkind = "openai-chat"\nurl = "{self.url}"\n'
            '[models.default]\ntargets = ["slow/m"]\n'
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TrickleServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        body = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in self.server.words:
            self._event({"delta": {"content": word}})
        if self.server.broken:
            self.close_connection = True
            return
        if not self.server.complete:
            with contextlib.suppress(OSError):
                self.connection.recv(1)
            self.server.hung_up.set()
            self.close_connection = True
            return
        self._event({"delta": {}, "finish_reason": "stop"})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        # Unannounced, as a server does that has had enough of an idle connection.
        self.close_connection = self.server.impatient

    def _event(self, choice: dict[str, Any]) -> None:
        event = {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": None, **choice}],
        }
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""


@contextlib.contextmanager
def trickling() -> Generator[TrickleServer]:
    """A running server."""
    with TrickleServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
