"""What the dialects' readers of errors share: taking a body apart, and saying what was found.

Which codes there are, and what they mean, is a matter of the dialect; what a bare HTTP status means
is the same on every wire:

| status | error |
|---|---|
| 408, 409, 5xx | ProviderUnavailable; 501 is not retryable, the server lacks the feature |
| 402 | RateLimited that is not retryable: waiting earns no money |
| 429 | RateLimited |
| 401, 403 | AuthenticationFailed |
| 404 | ModelNotFound |
| any other 4xx | InvalidRequest |
| none | MalformedResponse, not retryable: the url leads somewhere else |
"""

from __future__ import annotations

import re
import string
import time
from collections.abc import Collection, Mapping, Sequence
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
from penstock.providers.redaction.body import without_named_keys
from penstock.providers.redaction.text import without_keys
from penstock.providers.wire.retry_after import retry_after

_MESSAGE_LIMIT = 500
_NAME_LIMIT = 100
_READ_LIMIT = 4 * _MESSAGE_LIMIT
_IN_WORDS = string.ascii_letters + string.digits + "+/=.~%*_-"
_SPACE = re.compile(r"\s+")


class _Listed(msgspec.Struct):
    error: Any = None


_decode_list = msgspec.json.Decoder(list[_Listed]).decode


def read_body(body: bytes) -> Any:
    """The JSON of a body without named keys, or the words that stand for a body that is none."""
    try:
        return without_named_keys(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        text = body[:_READ_LIMIT].decode("utf-8", "replace").strip()
        if not text:
            return "an empty body"
        # The page of a proxy says nothing that its status has not said.
        return "an HTML page instead of JSON" if text.startswith("<") else text


def listed_error(data: bytes) -> Any:
    """The error in a list of one, as Google's JSON streams carry it; None for anything else."""
    if not data.lstrip().startswith(b"["):
        return None
    try:
        items = _decode_list(data)
    except (ValueError, RecursionError):
        return None
    return items[0].error or None if items else None


def object_of(value: Any) -> JSONObject:
    """The value if it is an object; an empty one otherwise."""
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """A string as it is, and anything else as the JSON that it was; not yet fit to be shown."""
    if value is None:
        return "no message"
    return (value if isinstance(value, str) else msgspec.json.encode(value).decode())[:_READ_LIMIT]


def name_of(value: Any) -> str:
    """A code, a type or a field, if the value can be one."""
    return shown(value, limit=_NAME_LIMIT) if isinstance(value, str) else ""


def status_of(value: Any) -> int | None:
    """The status of a failure, if the value is one."""
    return value if type(value) is int and 400 <= value <= 599 else None


def is_refusal(status: int | None) -> bool:
    """Whether the credentials are the matter, so that more of the message may be a key."""
    return status in (401, 403)


def shown(text: str, *, refused: bool = False, limit: int = _MESSAGE_LIMIT) -> str:
    """The text for people: without keys, in one line, of limited length."""
    # Keys go first: of one that is cut through, the beginning would stay.
    read = without_keys(text[:_READ_LIMIT], refused=refused)
    if len(text) >= _READ_LIMIT and len(read) <= limit:
        # The word that the reading limit has cut may be the beginning of a key.
        read = read.rstrip(_IN_WORDS)
    text = _SPACE.sub(" ", read).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def sentence(message: str, status: int | None, *, name: str = "", who: str = "the provider") -> str:
    """Who answered what: the status if there is one, the error's name, the shown message."""
    what = "with an error" if status is None else str(status)
    return f"{who} answered {what}{f' ({name})' if name else ''}: {message or 'no message'}"


def by_status(
    status: int | None,
    text: str,
    problems: Sequence[Problem],
    *,
    passing: Collection[int] = (408, 409),
    not_found: str = "check the url and the model's name",
) -> PenstockError:
    """The error that a status stands for; `passing` are the 4xx that are the provider's fault."""
    if status is None:
        return MalformedResponse(f"{text}; check the url", retryable=False)
    if status >= 500 or status in passing:
        return ProviderUnavailable(text, retryable=status != 501)
    if status in (402, 429):
        return RateLimited(text, retryable=status == 429)
    if is_refusal(status):
        return AuthenticationFailed(text)
    if status == 404:
        return ModelNotFound(f"{text}; {not_found}")
    return InvalidRequest(text, problems=problems)


def answered(error: PenstockError, status: int | None, headers: Mapping[str, str]) -> PenstockError:
    """The same error with the status that came, and the pause that was asked for if it helps."""
    error.status = status
    if error.retryable:
        error.retry_after = retry_after(headers, time.time())
    return error


def error_of_response(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that a response stands for, on a wire without codes of its own.

    Its message is the body's `error`, `message` or `detail`, or the `message` in one of these.
    """
    found = object_of(read_body(body))
    said = next((found[name] for name in ("error", "message", "detail") if found.get(name)), None)
    said = object_of(said).get("message") or said or found or read_body(body)
    message = shown(text_of(said), refused=is_refusal(status))
    error = by_status(status, sentence(message, status), [Problem("", message)])
    return answered(error, status, headers)
