"""What goes wrong on this wire, as errors of Penstock.

The status, the error's `type` and its `details.error_code` decide; a message's wording is shown to
people and never searched. The rows are tried from the top:

| answer | error |
|---|---|
| `enforced_spend_limit_reached`, `billing_error`, 402 | RateLimited, not retryable |
| 408, 409, 5xx; `api_error`, `timeout_error`, `overloaded_error` | ProviderUnavailable |
| 429 without a `retry-after` | RateLimited, not retryable: a spend cap, not a pace |
| 429; `rate_limit_error` | RateLimited |
| 401, 403 | AuthenticationFailed |
| 404 | ModelNotFound |
| any other 4xx, 413 among them | InvalidRequest |
| any other status | MalformedResponse, not retryable: the url leads somewhere else |

Whatever is retryable carries the pause that the provider asks for. `x-should-retry` decides against
the table where it is sent. A prompt that is too long for the window is an `invalid_request_error`
like any other: nothing but its wording tells it apart, so it is no ContextLengthExceeded.
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
_NAME_LIMIT = 100

_NO_MONEY = frozenset({"enforced_spend_limit_reached", "billing_error"})
_STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error inside a 200 would have had."""

# Keys that providers and gateways echo back, and whatever follows "Bearer".
_KEY = re.compile(r"\bsk-[\w*.-]{12,}|\bbearer\s+\S+", re.IGNORECASE)
# A refused key may have no beginning to know it by, so there any long word with a digit goes.
_LONG_WORD = re.compile(r"\b(?=[\w*-]*\d)[\w*-]{20,}")
_SPACE = re.compile(r"\s+")


class Report(msgspec.Struct, frozen=True):
    """What the provider says about a failure."""

    message: str = ""
    type: str = ""
    code: str = ""

    @property
    def implied_status(self) -> int | None:
        """The status that stands for its type."""
        if self.code in _NO_MONEY:
            return 402
        return _STATUS_OF_TYPE.get(self.type)


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that an answer with this status stands for; header names are lower-case."""
    report = _read_body(body)
    implied = status if status >= 400 else report.implied_status
    error = _classify(report, implied, status)
    error.status = status
    pause = retry_after(headers, time.time())
    advice = headers.get("x-should-retry", "").strip().lower()
    if status == 429 and pause is None and advice != "true":
        error.retryable = False
    if advice == "false":
        error.retryable = False
    if error.retryable:
        error.retry_after = pause
    return error


def map_inline_error(value: Any) -> PenstockError:
    """The error inside a stream or inside the body of a 200: a decoded `error` value, or raw bytes.

    It has no status and no headers; its type tells what the status would have been, and an error
    that tells nothing counts as a failure on the provider's side.
    """
    report = _read_body(value) if isinstance(value, bytes) else _read_value(value)
    return _classify(report, report.implied_status or 500, None)


def _classify(report: Report, status: int | None, shown: int | None) -> PenstockError:
    """`status` classifies and `shown` is told; they differ when only the body has a status."""
    message = _without_keys(report.message, status)
    name = report.code or report.type
    what = "with an error" if shown is None else str(shown)
    text = f"the provider answered {what}{f' ({name})' if name else ''}: {message}"
    if report.code in _NO_MONEY or report.type in _NO_MONEY or status == 402:
        return RateLimited(text, retryable=False)
    if status is None:
        return MalformedResponse(f"{text}; check the url", retryable=False)
    if status >= 500 or status in (408, 409):
        return ProviderUnavailable(text, retryable=status != 501)
    if status == 429:
        return RateLimited(text)
    if status in (401, 403):
        return AuthenticationFailed(text)
    if status == 404:
        return ModelNotFound(f"{text}; check the url and the model's name")
    return InvalidRequest(text, problems=(Problem("", message),))


def _without_keys(message: str, status: int | None) -> str:
    message = _KEY.sub("[key]", message)
    return _LONG_WORD.sub("[key]", message) if status in (401, 403) else message


def _read_body(body: bytes) -> Report:
    try:
        value: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        text = body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace").strip()
        if not text:
            return Report("an empty body")
        # The page of a proxy says nothing that its status has not said.
        return Report("an HTML page instead of JSON" if text.startswith("<") else _shorten(text))
    if isinstance(value, dict) and "error" in value:
        return _read_value(cast(dict[str, Any], value)["error"])
    return _read_value(value)


def _read_value(value: Any) -> Report:
    """`{type, message, details: {error_code}}`, or whatever a gateway says instead."""
    if not isinstance(value, dict):
        return Report("no message" if value is None else _shorten(_text(value)))
    found = cast(dict[str, Any], value)
    details: Any = found.get("details")
    code: Any = cast(dict[str, Any], details).get("error_code") if isinstance(details, dict) else ""
    message = found.get("message") or found.get("detail")
    return Report(_shorten(_text(message or found)), _name(found.get("type")), _name(code))


def _name(value: Any) -> str:
    return _shorten(value, _NAME_LIMIT) if isinstance(value, str) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    text = _SPACE.sub(" ", text[: 4 * limit]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
