"""What goes wrong on this wire, as errors of Penstock.

An error is a `google.rpc.Status`: `{error: {code, message, status, details}}`, in streams sometimes
in a list of one. The HTTP status, `status` and the typed `details` decide; a message's wording is
shown to people and never searched. The rows are tried from the top:

| answer | error |
|---|---|
| `ErrorInfo.reason` about the key (`API_KEY_INVALID` is a 400, ...) | AuthenticationFailed |
| `FAILED_PRECONDITION` (no free tier in this country, no billing) | AuthenticationFailed |
| 408, 409, 499, 5xx | ProviderUnavailable; 501 is not retryable, the server lacks the feature |
| 402; 429 with a `QuotaFailure` of a day | RateLimited that is not retryable: it lasts |
| 429 | RateLimited |
| 401, 403 | AuthenticationFailed |
| 404 | ModelNotFound |
| any other 4xx | InvalidRequest, with the `fieldViolations` as problems |
| any other status | MalformedResponse, not retryable: the url leads somewhere else |

Too long a prompt is a plain `INVALID_ARGUMENT` without any detail, and so InvalidRequest. Whatever
is retryable carries the pause of `RetryInfo.retryDelay`, or of the usual headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
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
from penstock.contract.messages import JSONObject
from penstock.providers.retry_after import retry_after

_MESSAGE_LIMIT = 500
_NAME_LIMIT = 100
_LIST_LIMIT = 20

_STATUS_OF_NAME: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The status that an error inside a 200 would have had, as Google's API design guide maps them."""

_KEY_REASONS = frozenset(
    {
        "API_KEY_INVALID",
        "API_KEY_EXPIRED",
        "API_KEY_SERVICE_BLOCKED",
        "API_KEY_HTTP_REFERRER_BLOCKED",
        "API_KEY_IP_ADDRESS_BLOCKED",
        "ACCESS_TOKEN_EXPIRED",
        "CREDENTIALS_MISSING",
        "SERVICE_DISABLED",
        "BILLING_DISABLED",
        "CONSUMER_INVALID",
        "CONSUMER_SUSPENDED",
    }
)
_DELAY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")
# Keys as Google makes them, whatever follows "key=" or "Bearer", and keys of other makers.
_KEY = re.compile(
    r"\b(?:AIza|AQ\.|ya29\.|sk-)[\w*.-]{8,}|\bbearer\s+\S+|(?<=\bkey=)[^\s&\"']+", re.IGNORECASE
)
# A refused key may have no beginning to know it by, so there any long word with a digit goes.
_LONG_WORD = re.compile(r"\b(?=[\w*-]*\d)[\w*-]{20,}")
_SPACE = re.compile(r"\s+")


class Report(msgspec.Struct, frozen=True):
    """What a failure says about itself."""

    message: str = ""
    name: str = ""
    """`error.status`, such as RESOURCE_EXHAUSTED."""
    status: int | None = None
    """The HTTP status that the body itself names."""
    reasons: frozenset[str] = frozenset()
    delay: float | None = None
    daily: bool = False
    problems: tuple[Problem, ...] = ()


class _Item(msgspec.Struct):
    error: Any = None


_decode_list = msgspec.json.Decoder(list[_Item]).decode


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that an answer with this status stands for; header names are lower-case."""
    report = _read_body(body)
    return _build(report, status if status >= 400 else _implied_status(report), headers, status)


def map_inline_error(value: Any) -> PenstockError:
    """The error inside a stream or inside the body of a 200: a decoded `error` value, or raw bytes.

    One that tells nothing counts as a failure on the provider's side.
    """
    report = _read_body(value) if isinstance(value, bytes) else _read_error(value)
    return _build(report, _implied_status(report) or 500, {}, report.status)


def listed_error(data: bytes) -> PenstockError | None:
    """The error in a list of one, as Google's JSON streams carry it; None for anything else."""
    try:
        items = _decode_list(data)
    except (ValueError, RecursionError):
        return None
    return map_inline_error(items[0].error) if items and items[0].error else None


def _build(
    report: Report, status: int | None, headers: Mapping[str, str], shown: int | None
) -> PenstockError:
    """`status` classifies and `shown` is reported; they differ when only the body has a status."""
    error = _classify(report, status, _describe(report, status, shown))
    error.status = shown
    if error.retryable:
        error.retry_after = report.delay
        if report.delay is None:
            error.retry_after = retry_after(headers, time.time())
    return error


def _classify(report: Report, status: int | None, text: str) -> PenstockError:
    if report.reasons & _KEY_REASONS or report.name == "FAILED_PRECONDITION":
        return AuthenticationFailed(text)
    if status is None:
        return MalformedResponse(f"{text}; check the url", retryable=False)
    if status >= 500 or status in (408, 409, 499):
        return ProviderUnavailable(text, retryable=status != 501)
    if status in (402, 429):
        return RateLimited(text, retryable=status == 429 and not report.daily)
    if status in (401, 403):
        return AuthenticationFailed(text)
    if status == 404:
        return ModelNotFound(f"{text}; check the url, the api_version and the model's name")
    return InvalidRequest(text, problems=report.problems or (Problem("", report.message),))


def _implied_status(report: Report) -> int | None:
    return report.status or _STATUS_OF_NAME.get(report.name)


def _describe(report: Report, status: int | None, shown: int | None) -> str:
    message = _KEY.sub("[key]", report.message)
    if status in (401, 403) or report.reasons & _KEY_REASONS:
        message = _LONG_WORD.sub("[key]", message)
    what = "with an error" if shown is None else str(shown)
    return f"the provider answered {what}{f' ({report.name})' if report.name else ''}: {message}"


def _read_body(body: bytes) -> Report:
    try:
        value: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        text = body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace").strip()
        if not text:
            return Report("an empty body")
        # The page of a proxy says nothing that its status has not said.
        return Report("an HTML page instead of JSON" if text.startswith("<") else _shorten(text))
    if isinstance(value, list):
        values = cast(list[Any], value)
        value = values[0] if values else None
    found = _object(value)
    return _read_error(found.get("error") or value)


def _read_error(value: Any) -> Report:
    found = _object(value)
    if not found:
        return Report("no message" if value is None else _shorten(_text(value)))
    code: Any = found.get("code")
    details = list(_objects(found.get("details")))
    message: Any = found.get("message") or found
    return Report(
        _shorten(_text(message)),
        _name(found.get("status")),
        code if type(code) is int and 400 <= code <= 599 else None,
        frozenset(_name(detail.get("reason")) for detail in details),
        next((delay for delay in map(_delay, details) if delay is not None), None),
        any("PerDay" in _name(each.get("quotaId")) for each in _violations(details, "violations")),
        tuple(
            Problem(_name(each.get("field")), _shorten(_text(each.get("description") or "")))
            for each in _violations(details, "fieldViolations")
        ),
    )


def _violations(details: list[JSONObject], key: str) -> Iterator[JSONObject]:
    for detail in details:
        yield from _objects(detail.get(key))


def _delay(detail: JSONObject) -> float | None:
    value: Any = detail.get("retryDelay")
    match = _DELAY.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) if match else None


def _object(value: Any) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[JSONObject]:
    if isinstance(value, list):
        yield from filter(None, map(_object, cast(list[Any], value)[:_LIST_LIMIT]))


def _name(value: Any) -> str:
    return _shorten(value, _NAME_LIMIT) if isinstance(value, str) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    text = _SPACE.sub(" ", text[: 4 * limit]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
