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

import re
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
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
_NAME_LIMIT = 80
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

# Keys that providers echo back: those with a well-known beginning, and whatever follows "Bearer".
_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|csk|xai|nvapi|pplx)-|(?:gsk|hf|r8|fw|tgp)_)[\w*.-]{12,}|\bbearer\s+\S+",
    re.IGNORECASE,
)
# A refused key may have no beginning to know it by, so there any long word with a digit goes.
_LONG_WORD = re.compile(r"\b(?=[\w*-]*\d)[\w*-]{20,}")
_SPACE = re.compile(r"\s+")


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
    report = _read_body(value) if isinstance(value, bytes) else _read_value({"error": value})
    return _build(report, _implied_status(report) or 500, {}, report.status)


def _build(
    report: Report, status: int | None, headers: Mapping[str, str], shown: int | None
) -> PenstockError:
    """`status` classifies and `shown` is reported; they differ when only the body has a status."""
    text = _describe(report, status, shown)
    error = _classify(report, status, headers, text)
    error.status = shown
    if error.retryable:
        error.retry_after = retry_after(headers, time.time())
    if headers.get("x-should-retry", "").strip().lower() == "false":
        error.retryable = False
    return error


def _classify(
    report: Report, status: int | None, headers: Mapping[str, str], text: str
) -> PenstockError:
    names = report.names
    if not _CONTEXT_CODES.isdisjoint(names) or (report.param in _CONTEXT_PARAMS and status == 400):
        return ContextLengthExceeded(text, problems=_problems(report))
    if not _FILTER_CODES.isdisjoint(names):
        return ContentRejected(text)
    if not _MODEL_CODES.isdisjoint(names):
        return ModelNotFound(text)
    if status is None:
        return MalformedResponse(f"{text}; check the url", retryable=False)
    if status >= 500 or status in (408, 409):
        return ProviderUnavailable(text, retryable=status != 501)
    if status == 402 or any(map(_is_quota, names)):
        return RateLimited(text, retryable=False)
    if status == 429:
        return RateLimited(text)
    if status in (401, 403):
        return AuthenticationFailed(text)
    if status == 404:
        return ModelNotFound(f"{text}; check the url and the model's name")
    return InvalidRequest(text, problems=_problems(report))


def _is_quota(name: str) -> bool:
    return name in _QUOTA_CODES or name.startswith(_QUOTA_PREFIX)


def _problems(report: Report) -> tuple[Problem, ...]:
    return report.problems or (Problem(report.param, _without_keys(report.message)),)


def _without_keys(text: str) -> str:
    return _KEY.sub("[key]", text)


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


def _describe(report: Report, status: int | None, shown: int | None) -> str:
    name = report.code or report.type
    message = _without_keys(report.message)
    if status in (401, 403):
        message = _LONG_WORD.sub("[key]", message)
    what = "with an error" if shown is None else str(shown)
    return f"the provider answered {what}{f' ({name})' if name else ''}: {message}"


def _read_body(body: bytes) -> Report:
    try:
        value: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        text = body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace").strip()
        if not text:
            return Report("an empty body")
        # The page of a proxy says nothing that its status has not said.
        return Report("an HTML page instead of JSON" if text.startswith("<") else _shorten(text))
    return _read_value(value)


def _read_value(value: Any, depth: int = 0) -> Report:
    """Find the error in `{error: ...}`, `{detail: ...}`, `{message: ...}`, or a list of them."""
    if isinstance(value, list):
        return _read_list(cast(list[Any], value), depth)
    if not isinstance(value, dict):
        return Report("no message" if value is None else _shorten(_text(value)))
    found = cast(dict[str, Any], value)
    if depth < _DEPTH_LIMIT:
        # FastAPI says more in `detail` than Mistral's proxy of it says in `message`.
        for key in ("error", "detail", "message"):
            inner = found.get(key)
            if inner and (key != "message" or not isinstance(inner, str)):
                return _merge(_read_value(inner, depth + 1), found)
    message = found.get("message") or found.get("msg")
    return _merge(Report(_shorten(_text(message or found))), found)


def _read_list(values: list[Any], depth: int) -> Report:
    """FastAPI's list of problems, or a list that wraps one error (Gemini's Chat endpoint)."""
    problems: list[Problem] = []
    for value in values[:20]:
        item = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        place: Any = item.get("loc")
        if isinstance(place, list) and isinstance(item.get("msg"), str):
            steps = [_text(step) for step in cast(list[Any], place) if step != "body"]
            said = _without_keys(_shorten(item["msg"]))
            problems.append(Problem(_shorten(".".join(steps), _NAME_LIMIT), said))
    if problems:
        message = _shorten("; ".join(map(str, problems)))
        return Report(message, param=problems[0].path, problems=tuple(problems))
    return (
        _read_value(values[0], depth + 1)
        if values and depth < _DEPTH_LIMIT
        else Report("no message")
    )


def _merge(report: Report, outer: dict[str, Any]) -> Report:
    """Add the names that stand beside the message; the inner ones are the more exact."""
    code: Any = outer.get("code")
    status = code if type(code) is int and 400 <= code <= 599 else None
    kind: Any = outer.get("type") or outer.get("status")
    return msgspec.structs.replace(
        report,
        code=report.code or _name(code if isinstance(code, str) else None),
        type=report.type or _name(kind),
        param=report.param or _name(outer.get("param")),
        status=report.status or status,
    )


def _name(value: Any) -> str:
    return _shorten(value, _NAME_LIMIT) if isinstance(value, str) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shorten(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    text = _SPACE.sub(" ", text[: 4 * limit]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
