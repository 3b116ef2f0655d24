"""Every error of the tree has its status, and none says more than it should."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

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
from penstock.server.errors import (
    OPENAI_ERRORS,
    RULES,
    Failure,
    failure_of,
    headers_of,
    unsupported,
)


def unsupported_option(*options: str) -> UnsupportedOption:
    return UnsupportedOption("no", options=options, provider="p", model="m")


CASES: list[tuple[Exception, int, str, str | None, str | None]] = [
    (InvalidRequest("no"), 400, "invalid_request_error", None, None),
    (
        InvalidRequest.of([Problem("messages[2].content", "is empty"), Problem("x", "y")]),
        400,
        "invalid_request_error",
        None,
        "messages[2].content",
    ),
    (
        InvalidRequest.of([Problem("stop_sequences[1]", "is empty")]),
        400,
        "invalid_request_error",
        None,
        "stop[1]",
    ),
    (
        unsupported_option("reasoning_level", "tools"),
        400,
        "invalid_request_error",
        "unsupported_parameter",
        "reasoning_effort",
    ),
    (unsupported("n", "no"), 400, "invalid_request_error", "unsupported_parameter", "n"),
    (ContextLengthExceeded("no"), 400, "invalid_request_error", "context_length_exceeded", None),
    (ContentRejected("no"), 400, "invalid_request_error", "content_filter", None),
    (SamplingRejected("no"), 403, "permission_error", "sampling_rejected", None),
    (ModelNotFound("no"), 404, "invalid_request_error", "model_not_found", "model"),
    (RateLimited("no"), 429, "rate_limit_error", "rate_limit_exceeded", None),
    (BudgetExceeded("no"), 429, "insufficient_quota", "insufficient_quota", None),
    (RequestCancelled("no"), 499, "invalid_request_error", "request_cancelled", None),
    (ConfigurationError("no"), 500, "server_error", "configuration_error", None),
    (PromptContextFailed("no"), 500, "server_error", "prompt_context_failed", None),
    (ToolFailed("no"), 500, "server_error", "tool_failed", None),
    (AuthenticationFailed("no"), 502, "upstream_error", "upstream_authentication_failed", None),
    (ProviderUnavailable("no"), 502, "upstream_error", "upstream_unavailable", None),
    (ProviderUnavailable("no", status=503), 503, "upstream_error", "upstream_unavailable", None),
    (ProviderUnavailable("no", status=529), 503, "upstream_error", "upstream_unavailable", None),
    (StreamInterrupted("no"), 502, "upstream_error", "upstream_stream_interrupted", None),
    (MalformedResponse("no"), 502, "upstream_error", "upstream_malformed_response", None),
    (
        StructuredOutputInvalid("no", raw="x"),
        502,
        "upstream_error",
        "structured_output_invalid",
        None,
    ),
    (ProviderTimeout("no"), 504, "upstream_error", "upstream_timeout", None),
    (
        AllTargetsFailed("no", attempts=[RateLimited("a"), ProviderTimeout("b")]),
        502,
        "upstream_error",
        "all_targets_failed",
        None,
    ),
    (
        AllTargetsFailed("no", attempts=[ProviderTimeout("a"), ProviderTimeout("b")]),
        504,
        "upstream_error",
        "upstream_timeout",
        None,
    ),
    (PenstockError("no"), 500, "server_error", "internal_error", None),
]


@pytest.mark.parametrize(("error", "status", "kind", "code", "param"), CASES)
def test_an_error_on_the_openai_wire(
    error: Exception, status: int, kind: str, code: str | None, param: str | None
) -> None:
    failure = failure_of(error)
    assert failure.status == status
    document = json.loads(OPENAI_ERRORS.body(failure))
    assert document == {
        "error": {"message": str(error), "type": kind, "param": param, "code": code}
    }
    assert OPENAI_ERRORS.event(failure) == b"data: " + OPENAI_ERRORS.body(failure) + b"\n\n"


def test_a_store_that_fails_is_not_named() -> None:
    """Its message has the path of a file of the server."""
    for error in (
        StorageUnavailable("the ledger /srv/penstock.db is locked", retry_after=5.0),
        AllTargetsFailed("/srv/penstock.db", attempts=[StorageUnavailable("/srv/penstock.db")]),
    ):
        failure = failure_of(error)
        assert (failure.status, failure.code) == (503, "storage_unavailable")
        assert failure.message.endswith("the reason is in its log")


def tree(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


def test_no_public_error_is_without_a_rule() -> None:
    public = {kind for kind in tree(PenstockError) if kind.__module__ == PenstockError.__module__}
    assert public == set(RULES)


def test_an_error_that_nobody_foresaw_tells_nothing() -> None:
    failure = failure_of(RuntimeError("password=hunter2"))
    assert failure.status == 500
    assert b"hunter2" not in OPENAI_ERRORS.body(failure)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidRequest("no"), {}),
        (RateLimited("no"), {b"x-should-retry": b"true"}),
        (RateLimited("no", retry_after=1.2), {b"x-should-retry": b"true", b"retry-after": b"2"}),
        (BudgetExceeded("no"), {b"x-should-retry": b"false"}),
        (AuthenticationFailed("no"), {b"x-should-retry": b"false"}),
        (ProviderUnavailable("no"), {b"x-should-retry": b"true"}),
        (
            AllTargetsFailed(
                "no",
                attempts=[RateLimited("a", retry_after=9), RateLimited("b", retry_after=3)],
            ),
            {b"x-should-retry": b"true", b"retry-after": b"3"},
        ),
        (
            AllTargetsFailed(
                "no", attempts=[RateLimited("a", retry_after=9), ProviderTimeout("b")]
            ),
            {b"x-should-retry": b"true"},
        ),
    ],
)
def test_what_the_headers_tell_machines(error: PenstockError, expected: dict[bytes, bytes]) -> None:
    assert dict(headers_of(failure_of(error))) == expected


def test_a_failure_may_bring_headers_of_its_own() -> None:
    headers: Any = ((b"allow", b"GET"),)
    assert list(headers_of(Failure(405, "no", headers=headers))) == [(b"allow", b"GET")]
