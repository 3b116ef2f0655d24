"""Anthropic's shape of saying what failed: `{"type": "error", "error": {"type", "message"}}`.

It has no field for the parameter that is at fault, so that stands in front of the message, by the
name that it has on this wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.server.errors import Failure

_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
NO_THREADS = "thread_unsupported_request"
"""The code that makes Anthropic's clients send whole conversations instead of threads."""
_OUR_FAULT = 500
_EMPTY_ACCOUNT = "insufficient_quota"
_NAMES: Mapping[str, str] = {
    "audio": "messages",
    "images": "messages",
    "images by url": "messages",
    "output_schema": "output_config.format",
    "parallel_tools": "tool_choice.disable_parallel_tool_use",
    "reasoning_level": "thinking",
    "system_prompt": "system",
}
_FIRST_NAME = re.compile(r"[^.\[]*")


def wire_path(path: str) -> str:
    """The path of a problem with this wire's name of the parameter."""
    return _FIRST_NAME.sub(lambda match: _NAMES.get(match[0], match[0]), path, count=1)


class AnthropicErrors:
    """One document for both: a body, or the data of an `error` event."""

    def body(self, failure: Failure) -> bytes:
        """The JSON body of an error response."""
        return msgspec.json.encode(_document(failure))

    def event(self, failure: Failure) -> bytes:
        """An `error` event; no `message_stop` follows, so that no client takes it for whole."""
        return b"event: error\ndata: " + self.body(failure) + b"\n\n"


ANTHROPIC_ERRORS = AnthropicErrors()


def _document(failure: Failure) -> dict[str, Any]:
    error: dict[str, Any] = {"type": _type(failure), "message": _message(failure)}
    if failure.code == NO_THREADS:
        error["details"] = {"error_code": NO_THREADS}
    return {"type": "error", "error": error, "request_id": failure.request_id}


def _type(failure: Failure) -> str:
    if failure.code == _EMPTY_ACCOUNT:
        return "billing_error"
    usual = "api_error" if failure.status >= _OUR_FAULT else "invalid_request_error"
    return _TYPES.get(failure.status, usual)


def _message(failure: Failure) -> str:
    path = failure.param and wire_path(failure.param)
    return failure.message if not path or path in failure.message else f"{path}: {failure.message}"
