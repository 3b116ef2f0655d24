"""What goes wrong on these wires, as errors of Penstock.

The status and the structured fields `code`, `type` and `param` decide; a message's wording is shown
to people and never searched. The rows are tried from the top:

| answer | error |
|---|---|
| a code for too long a prompt | ContextLengthExceeded |
| a code for filtered content | ContentRejected |
| a code for an unknown model | ModelNotFound |
| 408, 409, 5xx | ProviderUnavailable; 501 is not retryable, the server lacks the feature |
| 402; a code for an empty account | RateLimited that is not retryable: waiting earns no money |
| 429 | RateLimited |
| 401, 403 | AuthenticationFailed |
| 404 | ModelNotFound |
| any other 4xx | InvalidRequest |
| any other status | MalformedResponse, not retryable: the url leads somewhere else |

Whatever is retryable carries the pause that the provider asks for. `x-should-retry: false` makes
any of them not retryable. A 408 or 504 is ProviderUnavailable and not ProviderTimeout, because the
provider did answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import (
    ContentRejected,
    ContextLengthExceeded,
    ModelNotFound,
    PenstockError,
    Problem,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.messages import JSONObject
from penstock.providers.redaction.body import without_named_keys
from penstock.providers.wire import error_text

_DEPTH_LIMIT = 4

_CONTEXT_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Azure, Groq
        "context_window_exceeded",
        "exceed_context_size_error",  # llama.cpp
        "model_context_window_exceeded",
    }
)
_CONTEXT_PARAMS = frozenset({"input_tokens"})  # vLLM's only structured hint
_FILTER_CODES = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "moderation_blocked",
        # Those of a response that failed; OpenAI's `invalid_prompt` is a prompt that was flagged.
        "bio_policy",
        "image_content_policy_violation",
        "invalid_prompt",
        "misalignment_policy_violation",
    }
)
_MODEL_CODES = frozenset({"model_not_found", "invalid_model"})  # OpenAI, Mistral
_QUOTA_CODES = frozenset({"insufficient_quota", "insufficient_balance"})
_QUOTA_PREFIX = "billing_"

_STATUS_OF_NAME: Mapping[str, int] = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "notfounderror": 404,  # vLLM
    "invalid_request_error": 400,
    "badrequesterror": 400,  # vLLM
    "not_supported_error": 501,  # llama.cpp
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "requests": 429,  # OpenAI names the exhausted limit as the type
    "tokens": 429,
    "overloaded_error": 503,
    "unavailable_error": 503,  # llama.cpp
    "server_error": 500,
    "vector_store_timeout": 504,
    "data_residency_mismatch": 400,
    **dict.fromkeys(
        (
            *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"),
            *("invalid_image_mode", "image_too_large", "image_too_small", "image_parse_error"),
            *("image_file_too_large", "image_file_not_found", "empty_image_file"),
            *("unsupported_image_media_type", "failed_to_download_image"),
        ),
        400,
    ),
    "internalservererror": 500,  # vLLM
}
"""The status that an error inside a 200 would have had."""


class Report(msgspec.Struct, frozen=True):
    """What a provider says about a failure, whatever the shape in which it says it."""

    message: str = ""
    code: str = ""
    type: str = ""
    param: str = ""
    status: int | None = None
    """The HTTP status that the body itself names."""
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The code and the type, lower-case, for the tables."""
        return tuple(name.lower() for name in (self.code, self.type) if name)


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that an answer with this status stands for; header names are lower-case."""
    report = _read_body(body)
    return _build(report, status if status >= 400 else _implied_status(report), headers, status)


def map_inline_error(value: Any) -> PenstockError:
    """The error inside a stream or inside the body of a 200: a decoded `error` value, or raw bytes.

    It has no status of its own; the body's code or type tells what the status would have been, and
    an error that tells nothing counts as a failure on the provider's side.
    """
    report = (
        _read_body(value)
        if isinstance(value, bytes)
        else _read_value(without_named_keys({"error": value}))
    )
    return _build(report, _implied_status(report) or 500, {}, report.status)


def _build(
    report: Report, status: int | None, headers: Mapping[str, str], came: int | None
) -> PenstockError:
    """`status` classifies and `came` is told; they differ when only the body has a status."""
    error = error_text.answered(_classify(report, status, came), came, headers)
    if headers.get("x-should-retry", "").strip().lower() == "false":
        error.retryable = False
    return error


def _classify(report: Report, status: int | None, came: int | None) -> PenstockError:
    names = report.names
    message = error_text.shown(report.message, refused=error_text.is_refusal(status))
    text = error_text.sentence(message, came, name=report.code or report.type)
    problems = report.problems or (Problem(report.param, message),)
    if not _CONTEXT_CODES.isdisjoint(names) or (report.param in _CONTEXT_PARAMS and status == 400):
        return ContextLengthExceeded(text, problems=problems)
    if not _FILTER_CODES.isdisjoint(names):
        return ContentRejected(text)
    if not _MODEL_CODES.isdisjoint(names):
        return ModelNotFound(text)
    error = error_text.by_status(status, text, problems)
    # A server that fails is asked again, whatever it says about the account.
    if any(map(_is_quota, names)) and not isinstance(error, ProviderUnavailable):
        return RateLimited(text, retryable=False)
    return error


def _is_quota(name: str) -> bool:
    return name in _QUOTA_CODES or name.startswith(_QUOTA_PREFIX)


def _implied_status(report: Report) -> int | None:
    if report.status is not None:
        return report.status
    known = _CONTEXT_CODES | _FILTER_CODES | _MODEL_CODES
    for name in report.names:
        if name in known:
            return 400
        if _is_quota(name):
            return 429
        if name in _STATUS_OF_NAME:
            return _STATUS_OF_NAME[name]
    return None


def _read_body(body: bytes) -> Report:
    return _read_value(error_text.read_body(body))


def _read_value(value: Any, depth: int = 0) -> Report:
    """Find the error in `{error: ...}`, `{detail: ...}`, `{message: ...}`, or a list of them."""
    if isinstance(value, list):
        return _read_list(cast(list[Any], value), depth)
    found = error_text.object_of(value)
    if depth < _DEPTH_LIMIT:
        # FastAPI says more in `detail` than Mistral's proxy of it says in `message`.
        for key in ("error", "detail", "message"):
            inner = found.get(key)
            if inner and (key != "message" or not isinstance(inner, str)):
                return _merge(_read_value(inner, depth + 1), found)
    message = found.get("message") or found.get("msg")
    return _merge(Report(error_text.text_of(message or value)), found)


def _read_list(values: list[Any], depth: int) -> Report:
    """FastAPI's list of problems, or a list that wraps one error (Gemini's Chat endpoint)."""
    problems: list[Problem] = []
    for value in values[:20]:
        item = error_text.object_of(value)
        place: Any = item.get("loc")
        if isinstance(place, list) and isinstance(item.get("msg"), str):
            steps = [error_text.text_of(step) for step in cast(list[Any], place) if step != "body"]
            problems.append(
                Problem(error_text.name_of(".".join(steps)), error_text.shown(item["msg"]))
            )
    if problems:
        message = "; ".join(map(str, problems))
        return Report(message, param=problems[0].path, problems=tuple(problems))
    return (
        _read_value(values[0], depth + 1)
        if values and depth < _DEPTH_LIMIT
        else Report("no message")
    )


def _merge(report: Report, outer: JSONObject) -> Report:
    """Add the names that stand beside the message; the inner ones are the more exact."""
    return msgspec.structs.replace(
        report,
        code=report.code or error_text.name_of(outer.get("code")),
        type=report.type or error_text.name_of(outer.get("type") or outer.get("status")),
        param=report.param or error_text.name_of(outer.get("param")),
        status=report.status or error_text.status_of(outer.get("code")),
    )
