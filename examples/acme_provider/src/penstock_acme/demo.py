"""A server that speaks this wire, to try the package without an account.

    python -m penstock_acme.demo 8600

It repeats the last turn, word by word.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Demo(BaseHTTPRequestHandler):
    """Answers `GET /engines` and `POST /talk`."""

    def do_GET(self) -> None:
        self._answer(200, [{"engines": ["parrot"]}])

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["engine"] != "parrot":
            return self._answer(404, [{"error": f"there is no engine {asked['engine']}"}])
        said = asked["turns"][-1]["say"].split()
        words = said[: asked["limit"]]
        end = {
            "why": "done" if len(words) == len(said) else "limit",
            "read": sum(len(turn["say"].split()) for turn in asked["turns"]),
            "wrote": len(words),
        }
        pieces = [*words[:1], *(f" {word}" for word in words[1:])]
        if asked["live"]:
            return self._answer(200, [*({"say": piece} for piece in pieces), end])
        return self._answer(200, [{"say": "".join(pieces), **end}])

    def _answer(self, status: int, lines: list[dict[str, Any]]) -> None:
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self.send_response(status)
        several = len(lines) > 1
        self.send_header("content-type", f"application/{'x-ndjson' if several else 'json'}")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Stay silent."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Demo) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
