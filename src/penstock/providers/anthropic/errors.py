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

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.errors import PenstockError, Problem, RateLimited
from penstock.providers.redaction.body import without_named_keys
from penstock.providers.wire import error_text

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
    error = error_text.answered(_classify(report, implied, status), status, headers)
    advice = headers.get("x-should-retry", "").strip().lower()
    if status == 429 and error.retry_after is None and advice != "true":
        error.retryable = False
    if advice == "false":
        error.retryable, error.retry_after = False, None
    return error


def map_inline_error(value: Any) -> PenstockError:
    """The error inside a stream or inside the body of a 200: a decoded `error` value, or raw bytes.

    It has no status and no headers; its type tells what the status would have been, and an error
    that tells nothing counts as a failure on the provider's side.
    """
    report = (
        _read_body(value) if isinstance(value, bytes) else _read_value(without_named_keys(value))
    )
    return _classify(report, report.implied_status or 500, None)


def _classify(report: Report, status: int | None, came: int | None) -> PenstockError:
    """`status` classifies and `came` is told; they differ when only the body has a status."""
    message = error_text.shown(report.message, refused=error_text.is_refusal(status))
    text = error_text.sentence(message, came, name=report.code or report.type)
    if report.code in _NO_MONEY or report.type in _NO_MONEY:
        return RateLimited(text, retryable=False)
    return error_text.by_status(status, text, (Problem("", message),))


def _read_body(body: bytes) -> Report:
    value = error_text.read_body(body)
    return _read_value(error_text.object_of(value).get("error", value))


def _read_value(value: Any) -> Report:
    """`{type, message, details: {error_code}}`, or whatever a gateway says instead."""
    found = error_text.object_of(value)
    message = found.get("message") or found.get("detail") or value
    code = error_text.object_of(found.get("details")).get("error_code")
    return Report(
        error_text.text_of(message), error_text.name_of(found.get("type")), error_text.name_of(code)
    )
