"""From Penstock's errors to HTTP: which status each has, and OpenAI's shape of saying it.

```
400  InvalidRequest  UnsupportedOption  ContextLengthExceeded  ContentRejected
403  SamplingRejected
404  ModelNotFound
429  RateLimited (with Retry-After)  BudgetExceeded
499  RequestCancelled
500  ConfigurationError  PromptContextFailed  ToolFailed, and whatever was not foreseen
502  AuthenticationFailed (ours, at the provider)  ProviderUnavailable  StreamInterrupted
     MalformedResponse  StructuredOutputInvalid  AllTargetsFailed
503  ProviderUnavailable, when the provider itself said 503 or 529
     StorageUnavailable (with Retry-After)
504  ProviderTimeout
```

AllTargetsFailed is told as its attempts' own error when they all failed alike. `x-should-retry`
tells the official SDKs not to repeat a call that cannot succeed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.contract.checks.lengths import MESSAGE, cut
from penstock.contract.errors import (
    AllTargetsFailed,
    AuthenticationFailed,
    BudgetExceeded,
    ConfigurationError,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    Problem,
    PromptContextFailed,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestCancelled,
    SamplingRejected,
    StorageUnavailable,
    StreamInterrupted,
    StructuredOutputInvalid,
    ToolFailed,
    UnsupportedOption,
)
from penstock.contract.metadata import ErrorMetadata, nanos_to_text

_OVERLOADED = (503, 529)
STORE_UNAVAILABLE = (
    "the gateway cannot use its ledger or its keys now: try again later; the reason is in its log"
)
"""For callers: the error itself names files of the server."""
_SDKS_RETRY_FROM = 500


class _Rule(NamedTuple):
    status: int
    type: str
    code: str | None


_WRONG, _UPSTREAM = "invalid_request_error", "upstream_error"

RULES: Mapping[type[PenstockError], _Rule] = {
    PenstockError: _Rule(500, "server_error", "internal_error"),
    InvalidRequest: _Rule(400, _WRONG, None),
    UnsupportedOption: _Rule(400, _WRONG, "unsupported_parameter"),
    ContextLengthExceeded: _Rule(400, _WRONG, "context_length_exceeded"),
    ContentRejected: _Rule(400, _WRONG, "content_filter"),
    SamplingRejected: _Rule(403, "permission_error", "sampling_rejected"),
    ModelNotFound: _Rule(404, _WRONG, "model_not_found"),
    RateLimited: _Rule(429, "rate_limit_error", "rate_limit_exceeded"),
    BudgetExceeded: _Rule(429, "insufficient_quota", "insufficient_quota"),
    RequestCancelled: _Rule(499, _WRONG, "request_cancelled"),
    ConfigurationError: _Rule(500, "server_error", "configuration_error"),
    PromptContextFailed: _Rule(500, "server_error", "prompt_context_failed"),
    ToolFailed: _Rule(500, "server_error", "tool_failed"),
    AuthenticationFailed: _Rule(502, _UPSTREAM, "upstream_authentication_failed"),
    ProviderUnavailable: _Rule(502, _UPSTREAM, "upstream_unavailable"),
    StreamInterrupted: _Rule(502, _UPSTREAM, "upstream_stream_interrupted"),
    MalformedResponse: _Rule(502, _UPSTREAM, "upstream_malformed_response"),
    StructuredOutputInvalid: _Rule(502, _UPSTREAM, "structured_output_invalid"),
    AllTargetsFailed: _Rule(502, _UPSTREAM, "all_targets_failed"),
    StorageUnavailable: _Rule(503, "server_error", "storage_unavailable"),
    ProviderTimeout: _Rule(504, _UPSTREAM, "upstream_timeout"),
}


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failed request as every door can tell it, each in its own shape."""

    status: int
    message: str
    type: str = _WRONG
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    retryable: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()
    request_id: str | None = None
    """For the doors that repeat it in the body."""
    problems: tuple[Problem, ...] = ()
    """Everything that is wrong with the request, for doors that can tell more than one thing."""
    metadata: ErrorMetadata | None = None
    """What is known of the request, once there was one."""

    def __post_init__(self) -> None:
        """Cut what a caller or a provider has made too long to show."""
        msgspec.structs.force_setattr(self, "message", cut(self.message, MESSAGE))
        if self.param is not None:
            msgspec.structs.force_setattr(self, "param", cut(self.param))


class HttpProblem(Exception):
    """A request that fails before it is one for the engine: a wrong path, a body too large."""

    def __init__(self, failure: Failure) -> None:
        """Raised by the server's own parts; the door puts it into its shape."""
        super().__init__(failure.message)
        self.failure = failure


def unsupported(param: str, message: str) -> HttpProblem:
    """The error for a parameter that is understood and cannot be honoured."""
    return HttpProblem(Failure(400, message, code="unsupported_parameter", param=param))


def failure_of(error: Exception) -> Failure:
    """What to tell the caller; of an error that nobody foresaw, nothing but that there was one."""
    if isinstance(error, HttpProblem):
        return error.failure
    if not isinstance(error, PenstockError):
        rule = RULES[PenstockError]
        return Failure(rule.status, "internal error; see the gateway's log", rule.type, rule.code)
    told = _told_as(error)
    rule = next(RULES[kind] for kind in type(told).__mro__ if kind in RULES)
    overloaded = rule.status == 502 and told.status in _OVERLOADED
    return Failure(
        503 if overloaded else rule.status,
        STORE_UNAVAILABLE if isinstance(told, StorageUnavailable) else error.message,
        rule.type,
        rule.code,
        _param(told),
        _pause(error),
        error.retryable,
        request_id=error.request_id,
        problems=told.problems if isinstance(told, InvalidRequest) else (),
        metadata=error.metadata,
    )


def headers_of(failure: Failure) -> Sequence[tuple[bytes, bytes]]:
    """The headers that tell machines what the body tells people."""
    headers = list(failure.headers)
    if failure.retry_after is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(failure.retry_after)))
    if failure.status == 429 or failure.status >= _SDKS_RETRY_FROM:
        headers.append((b"x-should-retry", b"true" if failure.retryable else b"false"))
    if (metadata := failure.metadata) is not None and metadata.attempts:
        headers.append((b"x-penstock-attempts", b"%d" % metadata.attempts))
        if metadata.cost_nanos is not None:
            cost = nanos_to_text(metadata.cost_nanos).encode()
            headers.append((b"x-penstock-cost-usd", cost))
    return headers


class ErrorShape(Protocol):
    """How one door words a failure."""

    def body(self, failure: Failure) -> bytes:
        """The JSON body of an error response."""
        ...

    def event(self, failure: Failure) -> bytes:
        """The last event of a stream that has already begun."""
        ...


_OPENAI_NAMES: Mapping[str, str] = {
    "audio": "messages",
    "images": "messages",
    "images by url": "messages",
    "mcp_tools": "tools",
    "output_schema": "response_format",
    "parallel_tools": "parallel_tool_calls",
    "reasoning_level": "reasoning_effort",
    "stop_sequences": "stop",
    "texts": "input",
}
_FIRST_NAME = re.compile(r"[^.\[]*")


class OpenAIErrors:
    """`{"error": {"message", "type", "param", "code"}}`, with that wire's names of parameters."""

    names: Mapping[str, str] = _OPENAI_NAMES
    """Ours, where the wire has others."""

    def body(self, failure: Failure) -> bytes:
        """The JSON body of an error response."""
        return msgspec.json.encode(self._document(failure))

    def event(self, failure: Failure) -> bytes:
        """One `data:` line; no `[DONE]` follows, so that no client takes the answer for whole."""
        return b"data: " + self.body(failure) + b"\n\n"

    def param(self, failure: Failure) -> str | None:
        """The parameter at fault, by its name on this wire."""
        if not failure.param:
            return None
        return _FIRST_NAME.sub(
            lambda match: self.names.get(match[0], match[0]), failure.param, count=1
        )

    def _document(self, failure: Failure) -> dict[str, Any]:
        return {
            "error": {
                "message": failure.message,
                "type": failure.type,
                "param": self.param(failure),
                "code": failure.code,
            }
        }


OPENAI_ERRORS = OpenAIErrors()


def _told_as(error: PenstockError) -> PenstockError:
    if isinstance(error, AllTargetsFailed) and len({type(item) for item in error.attempts}) == 1:
        return error.attempts[0]
    return error


def _param(error: PenstockError) -> str | None:
    if isinstance(error, UnsupportedOption) and error.options:
        return error.options[0]
    if isinstance(error, InvalidRequest) and error.problems:
        return error.problems[0].path or None
    if isinstance(error, ModelNotFound):
        return "model"
    return None


def _pause(error: PenstockError) -> float | None:
    """The shortest pause after which one of the targets may answer."""
    attempts = error.attempts if isinstance(error, AllTargetsFailed) else (error,)
    known = [item.retry_after for item in attempts if item.retry_after is not None]
    return min(known) if known and len(known) == len(attempts) else None
