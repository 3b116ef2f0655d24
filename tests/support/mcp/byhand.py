"""An MCP server by hand on standard input and output that asks for sampling: `byhand.py REVISION`.

It speaks whichever revision it is told to, cancels its own requests, and dies on demand.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

REVISION = sys.argv[1]
TOOLS = ("ask", "cancel", "process")
_asked: dict[str, Any] = {}
"""Who waits for the answer to which of our requests."""


def _send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _text(identifier: Any, value: Any) -> None:
    content = [{"type": "text", "text": json.dumps(value)}]
    _send(id=identifier, result={"content": content})


def _call(identifier: Any, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "ask":
            ours = f"question-{len(_asked)}"
            _asked[ours] = identifier
            _send(id=ours, method="sampling/createMessage", params=arguments["params"])
        case "cancel":
            for ours in _asked:
                params = {"requestId": ours, "reason": "never mind"}
                _send(method="notifications/cancelled", params=params)
            _text(identifier, list(_asked))
        case _:
            _text(identifier, os.getpid())


def _request(message: dict[str, Any]) -> None:
    identifier = message["id"]
    params: dict[str, Any] = message.get("params") or {}
    nothing: dict[str, Any] = {}
    match message["method"]:
        case "initialize":
            result = {
                "protocolVersion": REVISION,
                "capabilities": {"tools": nothing},
                "serverInfo": {"name": "by hand", "version": "1"},
            }
            _send(id=identifier, result=result)
        case "tools/list":
            schema = {"type": "object"}
            _send(
                id=identifier,
                result={"tools": [{"name": each, "inputSchema": schema} for each in TOOLS]},
            )
        case "tools/call":
            _call(identifier, params["name"], params.get("arguments") or {})
        case _:
            _send(id=identifier, error={"code": -32601, "message": "no such method"})


def main() -> None:
    """Until nobody writes any more."""
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message:
            if "id" in message:
                _request(message)
        elif message.get("id") in _asked:
            kept = {key: message[key] for key in ("result", "error") if key in message}
            _text(_asked.pop(message["id"]), kept)


if __name__ == "__main__":
    main()
