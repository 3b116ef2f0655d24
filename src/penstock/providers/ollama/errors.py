"""What goes wrong on this wire, as errors of Penstock.

Ollama says `{"error": "..."}`, and for what its cloud refuses also `StatusCode` beside it. There
are no codes, so the status decides; a message's wording is shown to people and never searched. The
rows are tried from the top:

| answer | error |
|---|---|
| 408, 409, 5xx | ProviderUnavailable; 501 is not retryable, the server lacks the feature |
| 402 | RateLimited that is not retryable: waiting earns no money |
| 429 | RateLimited |
| 401, 403 | AuthenticationFailed |
| 404 with `error` | ModelNotFound, with the command that fetches a model |
| 404 of another form | MalformedResponse, not retryable: this server knows no such path |
| any other 4xx | InvalidRequest |
| any other status | MalformedResponse, not retryable: the url leads somewhere else |

An error inside a stream has no status: unless it names one, it counts as a failure of the server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import (
    AuthenticationFailed,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    Problem,
    ProviderUnavailable,
    RateLimited,
)
from penstock.providers.retry_after import retry_after

_MESSAGE_LIMIT = 500
_KEY = re.compile(r"\bbearer\s+\S+", re.IGNORECASE)
# A refused key has no beginning to know it by, so there any long word with a digit goes.
_LONG_WORD = re.compile(r"\b(?=[\w*.-]*\d)[\w*.-]{20,}")
_SPACE = re.compile(r"\s+")


class _Report(msgspec.Struct, frozen=True):
    """What the body of a failure says."""

    message: str
    own: bool = False
    """Whether it is Ollama's own form, and not that of something in between."""
    status: int | None = None


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """What an answer with this status stands for; header names are lower-case."""
    report = _read(body)
    error = _classify(status if status >= 400 else report.status, report, status)
    error.status = status
    if error.retryable:
        error.retry_after = retry_after(headers, time.time())
    return error


def map_inline_error(body: bytes) -> PenstockError:
    """The error inside a line of a stream, or inside the body of a 200."""
    report = _read(body)
    error = _classify(report.status or 500, report, report.status)
    error.status = report.status
    return error


def _classify(status: int | None, report: _Report, shown: int | None) -> PenstockError:
    text = _describe(status, report, shown)
    if status is None:
        return MalformedResponse(f"{text}; check the url", retryable=False)
    if status >= 500 or status in (408, 409):
        return ProviderUnavailable(text, retryable=status != 501)
    if status in (402, 429):
        return RateLimited(text, retryable=status == 429)
    if status in (401, 403):
        return AuthenticationFailed(text)
    if status == 404:
        if report.own:
            return ModelNotFound(f"{text}; fetch it on the server with `ollama pull <name>`")
        return MalformedResponse(
            f"{text}; check the url, or the age of the server", retryable=False
        )
    return InvalidRequest(text, problems=[Problem("", report.message)])


def _describe(status: int | None, report: _Report, shown: int | None) -> str:
    message = _KEY.sub("[key]", report.message)
    if status in (401, 403):
        message = _LONG_WORD.sub("[key]", message)
    what = "with an error" if shown is None else str(shown)
    return f"the provider answered {what}: {message}"


def _read(body: bytes) -> _Report:
    try:
        value: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        text = body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace").strip()
        if not text:
            return _Report("an empty body")
        # The page of a proxy says nothing that its status has not said.
        return _Report("an HTML page instead of JSON" if text.startswith("<") else _shorten(text))
    found = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    said: Any = found.get("error")
    if isinstance(said, dict):
        # The form of the compatible endpoints, which proxies before Ollama use too.
        inner = cast(dict[str, Any], said)
        said = inner.get("message") or inner
    code: Any = found.get("StatusCode")
    status = code if type(code) is int and 400 <= code <= 599 else None
    if not said:
        return _Report(_shorten(_text(found or value)), status=status)
    return _Report(_shorten(_text(said)), own=True, status=status)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten(text: str) -> str:
    text = _SPACE.sub(" ", text[: 4 * _MESSAGE_LIMIT]).strip()
    return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 1] + "…"
