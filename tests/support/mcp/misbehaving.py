"""An MCP server by hand on standard input and output, which does one thing wrong.

`misbehaving.py WHAT`: see `_list` and `_call` for what there is. It speaks the legacy era.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

LOOK: dict[str, Any] = {"name": "look", "inputSchema": {"type": "object"}}
PAGES, PAGE = 20, 50
MANY_BYTES = 100_000_000
WHAT = sys.argv[1]


def _named(number: int) -> dict[str, Any]:
    return {**LOOK, "name": f"tool-{number}"}


def _list(cursor: str | None) -> Any:
    page = int(cursor or 0)
    match WHAT:
        case "never-lists":
            return None
        case "thousand-tools":
            tools = [_named(page * PAGE + number) for number in range(PAGE)]
            return {"tools": tools} | ({"nextCursor": str(page + 1)} if page + 1 < PAGES else {})
        case "ten-thousand-tools":
            tools = [_named(page * 1000 + number) for number in range(1000)]
            return {"tools": tools, "nextCursor": str(page + 1)}
        case "large-tools":
            tools = [{**_named(page), "description": "x" * 3_000_000}]
            return {"tools": tools, "nextCursor": str(page + 1)}
        case "endless-pages":
            return {"tools": [LOOK, _named(page)], "nextCursor": str(page + 1)}
        case "same-page-for-ever":
            return {"tools": [LOOK], "nextCursor": "1"}
        case "same-tool-twice":
            return {"tools": [LOOK, {**LOOK, "description": "again"}]}
        case "arguments-that-are-no-object":
            return {"tools": [LOOK, {"name": "bad", "inputSchema": {"type": "array"}}]}
        case "a-tool-without-a-schema":
            return {"tools": [LOOK, {"name": "bad"}]}
        case "no-list-at-all":
            return {"tools": "none"}
        case "no-tools":
            return {"tools": []}
        case _:
            return {"tools": [LOOK]}


def _call() -> Any:
    match WHAT:
        case "never-answers":
            return None
        case "dies-in-mid-call":
            os._exit(1)
        case "hundred-megabytes":
            return _text("x" * MANY_BYTES)
        case "no-result-at-all":
            return {"content": "nothing"}
        case "nothing-that-it-calls-a-picture":
            return {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}
        case "unknown-content":
            return {"content": [{"type": "smell", "data": "rose"}]}
        case _:
            return _text("fine")


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """The body of the answer; None is silence."""
    params: dict[str, Any] = request.get("params") or {}
    match request["method"]:
        case "initialize":
            about = {"name": "misbehaving", "version": "1"}
            capabilities: dict[str, Any] = {
                "tools": {},
                "tasks": {"requests": {"tools": {"call": {}}}},
            }
            return {
                "result": {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": capabilities,
                    "serverInfo": about,
                }
            }
        case "tools/list":
            result = _list(params.get("cursor"))
        case "tools/call" if WHAT == "answers-with-an-error":
            # The code with which a client reports that a session is lost.
            return {"error": {"code": -32600, "message": "I would rather not"}}
        case "tools/call":
            result = _call()
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}
    return None if result is None else {"result": result}


def main() -> None:
    """Until nobody writes any more."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or (body := _answer(request)) is None:
            continue
        if WHAT == "garbage-between-messages":
            sys.stdout.buffer.write(b"listening on \xff\xfe\n{\n[]\n\n")
        identifier = request["id"]
        if WHAT == "answers-somebody-else" and request["method"] == "tools/call":
            identifier = 10**9
        sys.stdout.buffer.write(
            json.dumps({"jsonrpc": "2.0", "id": identifier, **body}).encode() + b"\n"
        )
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
