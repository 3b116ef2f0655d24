"""A server that repeats whatever it is sent, in every shape in which providers report errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.raw import Handler, Peer, RawRequest, whole
from tests.support.wire.bedrock import frames

Render = Callable[[RawRequest], bytes]

STATUSES = (302, 400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529)
# Names are shortened to 80 or 100 characters and messages to 500; the cut moves through the echo.
PADDINGS = (*range(0, 100, 9), *range(180, 500, 9))


def said(request: RawRequest, padding: int = 0) -> str:
    """Everything that came, behind some harmless text."""
    lines = [f"{name}: {value}" for name, value in request.headers.items()]
    # The headers that a provider adds are the last, and the likeliest to be secret.
    return " ".join(["x" * padding, *reversed(lines), request.body.decode("utf-8", "replace")])


def shapes(text: str) -> dict[str, Any]:
    """One body that is an error to every dialect."""
    error: dict[str, Any] = {
        "message": text,
        "type": text,
        "code": text,
        "param": text,
        "status": text,
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": text, "description": text}],
            },
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": text},
        ],
    }
    return {
        "type": "error",
        "error": error,
        "message": text,
        "__type": text,
        "request_id": text,
    }


def answer(status: int, body: bytes, request: RawRequest) -> bytes:
    """A response whose headers repeat the request too."""
    text = said(request).replace("\r", " ").replace("\n", " ")[:4000]
    names = ("x-amzn-errortype", "x-request-id", "location", "www-authenticate", "retry-after")
    headers = "".join(f"{name}: {text}\r\n" for name in names)
    return whole(body, status=f"{status} Echo", headers=headers)


def as_json(status: int, padding: int = 0) -> Render:
    """The error as JSON."""
    return lambda request: answer(
        status, json.dumps(shapes(said(request, padding))).encode(), request
    )


def as_text(status: int, padding: int = 0) -> Render:
    """The error as a proxy writes it."""
    return lambda request: answer(status, said(request, padding).encode(), request)


def as_string(status: int, padding: int = 0) -> Render:
    """Ollama's shape, and that of FastAPI."""

    def render(request: RawRequest) -> bytes:
        text = said(request, padding)
        return answer(status, json.dumps({"error": text, "detail": text}).encode(), request)

    return render


def in_stream(_status: int = 200, padding: int = 0) -> Render:
    """An error as the first event, in the framing that was asked for."""

    def render(request: RawRequest) -> bytes:
        value = shapes(said(request, padding))
        text = json.dumps(value)
        kind = request.headers.get("accept", "")
        if "eventstream" in kind:
            body = frames.exception("validationException", value)
        elif "ndjson" in kind:
            body = json.dumps({"error": said(request, padding)}).encode() + b"\n"
        else:
            body = f"event: error\ndata: {text}\n\n".encode()
        return whole(body, headers=f"content-type: {kind or 'application/json'}\r\n")

    return render


def echoing(render: Render) -> Handler:
    """Answer every request so."""

    async def serve(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            await peer.send(render(request))

    return serve
