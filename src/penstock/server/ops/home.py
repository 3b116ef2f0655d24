"""`GET /`: a page that says what answers here."""

from __future__ import annotations

import base64
import hashlib
import html

import msgspec

from penstock.engine.engine import Engine
from penstock.server.dispatch import Route, Routes
from penstock.server.exchange import Exchange

_ENDPOINTS = (
    ("POST /v1/chat/completions", "OpenAI Chat Completions; base URL: this address with /v1"),
    ("POST /v1/responses", "OpenAI Responses"),
    ("POST /v1/messages", "Anthropic Messages; base URL: this address"),
    ("POST /v1/embeddings", "OpenAI embeddings"),
    ("POST /v1/sampling/createMessage", "MCP sampling"),
    ("POST /mcp", "MCP over Streamable HTTP"),
    ("GET /v1/models", "the models that you may use"),
    ("GET /v1/usage", "what your key has used and may use"),
    ("POST /v1/estimate", "what a chat completion would cost, without a call"),
    ("GET /openapi.json", "the whole HTTP API"),
    ("GET /health", "whether the gateway runs"),
    ("GET /ready", "whether a request would be served"),
    ("GET /metrics", "Prometheus metrics"),
    ("GET /admin/v1/usage", "the admin API, for the admin key"),
)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem;"
    "color-scheme:light dark}td{padding:.2rem 1.5rem .2rem 0;vertical-align:top}"
    "code{white-space:nowrap}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = (
    (b"content-security-policy", f"default-src 'none'; style-src 'sha256-{_HASH}'".encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"vary", b"accept"),
)


def _page() -> bytes:
    rows = "\n".join(
        f"<tr><td><code>{_shown(endpoint)}</code></td><td>{html.escape(what)}</td></tr>"
        for endpoint, what in _ENDPOINTS
    )
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Penstock gateway</title><style>{_STYLE}</style></head>
<body>
<h1>Penstock gateway</h1>
<p>One address for every language model. Point a client at this address and send a request.</p>
<table>
{rows}
</table>
</body>
</html>
""".encode()


def _shown(endpoint: str) -> str:
    """The endpoint, as a link where a browser can open it."""
    method, path = map(html.escape, endpoint.split(" ", 1))
    return f'{method} <a href="{path}">{path}</a>' if method == "GET" else f"{method} {path}"


_HTML = _page()
_JSON = msgspec.json.encode({"name": "Penstock gateway", "endpoints": dict(_ENDPOINTS)})


async def home(_: Engine, exchange: Exchange) -> None:
    """HTML for browsers, JSON for all others."""
    if b"text/html" in exchange.headers.get(b"accept", b""):
        await exchange.reply(_HTML, _HEADERS, content_type=b"text/html; charset=utf-8")
    else:
        await exchange.reply(_JSON, _HEADERS)


ROUTES: Routes = {("GET", "/"): Route(home, needs="nothing")}
