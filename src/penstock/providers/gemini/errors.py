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
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

import msgspec

from penstock.contract.errors import AuthenticationFailed, PenstockError, Problem
from penstock.contract.messages import JSONObject
from penstock.providers.redaction.body import without_named_keys
from penstock.providers.wire import error_text

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
# Google reports a call that the caller gave up as a 499.
_PASSING = (408, 409, 499)


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


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that an answer with this status stands for; header names are lower-case."""
    report = _read_body(body)
    return _build(report, status if status >= 400 else _implied_status(report), headers, status)


def map_inline_error(value: Any) -> PenstockError:
    """The error inside a stream or inside the body of a 200: a decoded `error` value, or raw bytes.

    One that tells nothing counts as a failure on the provider's side.
    """
    report = (
        _read_body(value) if isinstance(value, bytes) else _read_error(without_named_keys(value))
    )
    return _build(report, _implied_status(report) or 500, {}, report.status)


def _build(
    report: Report, status: int | None, headers: Mapping[str, str], came: int | None
) -> PenstockError:
    """`status` classifies and `came` is told; they differ when only the body has a status."""
    error = error_text.answered(_classify(report, status, came), came, headers)
    if error.retryable and report.delay is not None:
        error.retry_after = report.delay
    return error


def _classify(report: Report, status: int | None, came: int | None) -> PenstockError:
    about_key = not report.reasons.isdisjoint(_KEY_REASONS)
    message = error_text.shown(report.message, refused=about_key or error_text.is_refusal(status))
    text = error_text.sentence(message, came, name=report.name)
    if about_key or report.name == "FAILED_PRECONDITION":
        return AuthenticationFailed(text)
    error = error_text.by_status(
        status,
        text,
        report.problems or (Problem("", message),),
        passing=_PASSING,
        not_found="check the url, the api_version and the model's name",
    )
    if status == 429 and report.daily:
        error.retryable = False
    return error


def _implied_status(report: Report) -> int | None:
    return report.status or _STATUS_OF_NAME.get(report.name)


def _read_body(body: bytes) -> Report:
    value = error_text.read_body(body)
    if isinstance(value, list):
        values = cast(list[Any], value)
        value = values[0] if values else None
    return _read_error(error_text.object_of(value).get("error") or value)


def _read_error(value: Any) -> Report:
    found = error_text.object_of(value)
    details = list(_objects(found.get("details")))
    return Report(
        error_text.text_of(found.get("message") or value),
        error_text.name_of(found.get("status")),
        error_text.status_of(found.get("code")),
        frozenset(error_text.name_of(detail.get("reason")) for detail in details),
        next((delay for delay in map(_delay, details) if delay is not None), None),
        any(
            "PerDay" in error_text.name_of(each.get("quotaId"))
            for each in _violations(details, "violations")
        ),
        tuple(
            Problem(
                error_text.name_of(each.get("field")),
                error_text.shown(error_text.text_of(each.get("description") or "")),
            )
            for each in islice(_violations(details, "fieldViolations"), _LIST_LIMIT)
        ),
    )


def _violations(details: list[JSONObject], key: str) -> Iterator[JSONObject]:
    for detail in details:
        yield from _objects(detail.get(key))


def _delay(detail: JSONObject) -> float | None:
    value: Any = detail.get("retryDelay")
    match = _DELAY.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) if match else None


def _objects(value: Any) -> Iterator[JSONObject]:
    if isinstance(value, list):
        yield from filter(None, map(error_text.object_of, cast(list[Any], value)[:_LIST_LIMIT]))
