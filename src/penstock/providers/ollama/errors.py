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

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse, ModelNotFound, PenstockError, Problem
from penstock.providers.wire import error_text


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
    return error_text.answered(error, status, headers)


def map_inline_error(body: bytes) -> PenstockError:
    """The error inside a line of a stream, or inside the body of a 200."""
    report = _read(body)
    return error_text.answered(
        _classify(report.status or 500, report, report.status), report.status, {}
    )


def _classify(status: int | None, report: _Report, came: int | None) -> PenstockError:
    """`status` classifies and `came` is told; they differ when only the body has a status."""
    message = error_text.shown(report.message, refused=error_text.is_refusal(status))
    text = error_text.sentence(message, came)
    if status == 404:
        if report.own:
            return ModelNotFound(f"{text}; fetch it on the server with `ollama pull <name>`")
        return MalformedResponse(
            f"{text}; check the url, or the age of the server", retryable=False
        )
    return error_text.by_status(status, text, [Problem("", message)])


def _read(body: bytes) -> _Report:
    value = error_text.read_body(body)
    found = error_text.object_of(value)
    said: Any = found.get("error")
    if inner := error_text.object_of(said):
        # The form of the compatible endpoints, which proxies before Ollama use too.
        said = inner.get("message") or inner
    status = error_text.status_of(found.get("StatusCode"))
    if not said:
        return _Report(error_text.text_of(found or value), status=status)
    return _Report(error_text.text_of(said), own=True, status=status)
