"""Statuses, headers and bodies in, typed errors out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    AuthenticationFailed,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from penstock.providers.anthropic.errors import map_error, map_inline_error


def mapped(status: int, body: Any = b"", **headers: str) -> PenstockError:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    error = map_error(status, names, data)
    assert error.status == status
    return error


def said(kind: str, message: str = "msg", code: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, InvalidRequest, False),
        (401, AuthenticationFailed, False),
        (402, RateLimited, False),
        (403, AuthenticationFailed, False),
        (404, ModelNotFound, False),
        (405, InvalidRequest, False),
        (408, ProviderUnavailable, True),
        (409, ProviderUnavailable, True),
        (413, InvalidRequest, False),
        (422, InvalidRequest, False),
        (500, ProviderUnavailable, True),
        (501, ProviderUnavailable, False),
        (502, ProviderUnavailable, True),
        (503, ProviderUnavailable, True),
        (504, ProviderUnavailable, True),
        (529, ProviderUnavailable, True),
        (204, MalformedResponse, False),
        (302, MalformedResponse, False),
    ],
)
def test_each_status(status: int, kind: type[PenstockError], retryable: bool) -> None:
    error = mapped(status)
    assert (type(error), error.retryable) == (kind, retryable)
    assert not isinstance(error, ProviderTimeout)
    assert str(status) in error.message


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, said("invalid_request_error"), InvalidRequest),
        (400, said("invalid_request_error", "prompt is too long: 9 tokens > 8"), InvalidRequest),
        (401, said("authentication_error"), AuthenticationFailed),
        (400, said("billing_error"), RateLimited),
        (403, said("permission_error"), AuthenticationFailed),
        (404, said("not_found_error"), ModelNotFound),
        (413, said("request_too_large"), InvalidRequest),
        (500, said("api_error"), ProviderUnavailable),
        (504, said("timeout_error"), ProviderUnavailable),
        (529, said("overloaded_error"), ProviderUnavailable),
    ],
)
def test_each_type(status: int, body: dict[str, Any], kind: type[PenstockError]) -> None:
    error = mapped(status, body)
    assert type(error) is kind
    assert body["error"]["type"] in error.message
    assert body["error"]["message"] in error.message


@pytest.mark.parametrize(
    ("body", "headers", "retryable", "after"),
    [
        (said("rate_limit_error"), {"retry_after": "7"}, True, 7),
        (said("rate_limit_error"), {"retry_after_ms": "250"}, True, 0.25),
        (said("rate_limit_error", code="ramp_limit_exceeded"), {"retry_after": "3"}, True, 3),
        # Without a time to come back at, it is the cap on spending.
        (said("rate_limit_error"), {}, False, None),
        (said("rate_limit_error"), {"x_should_retry": "true"}, True, None),
        (said("rate_limit_error"), {"retry_after": "7", "x_should_retry": "false"}, False, None),
        (
            said("rate_limit_error", code="enforced_spend_limit_reached"),
            {"retry_after": "7"},
            False,
            None,
        ),
    ],
)
def test_a_429_is_a_pace_or_a_cap(
    body: dict[str, Any], headers: dict[str, str], retryable: bool, after: float | None
) -> None:
    error = mapped(429, body, **headers)
    assert type(error) is RateLimited
    assert (error.retryable, error.retry_after) == (retryable, after)


def test_overload_carries_the_pause_that_is_asked_for() -> None:
    error = mapped(529, said("overloaded_error"), retry_after="4")
    assert (error.retryable, error.retry_after) == (True, 4)
    assert mapped(400, said("invalid_request_error"), retry_after="4").retry_after is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "an empty body"),
        (b"<html><h1>502</h1></html>", "an HTML page instead of JSON"),
        (b"upstream connect error", "upstream connect error"),
        (b"null", "no message"),
        (b'{"error": "plain"}', "plain"),
        (b'{"detail": "of FastAPI"}', "of FastAPI"),
        (b'{"error": {"message": 7, "type": 8, "details": 9}}', "7"),
        (b'{"error": {"message": "two\\n\\n lines"}}', "two lines"),
    ],
)
def test_whatever_a_proxy_says_is_told(body: bytes, told: str) -> None:
    error = mapped(502, body)
    assert error.message == f"the provider answered 502: {told}"


KEY = "sk-ant-api03-abcdefghijklmnop"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, f"key {KEY} is odd"),
        (401, f"invalid x-api-key {KEY}"),
        (403, "token abcdefghijklmnopqrst0123456789 has no scope"),
        (500, "authorization: Bearer some-token leaked"),
    ],
)
def test_keys_are_never_repeated(status: int, message: str) -> None:
    error = mapped(status, said("x", message))
    shown = f"{error} {error!r} {error.__dict__}"
    assert "[key]" in error.message
    for secret in (KEY, "abcdefghijklmnopqrst0123456789", "some-token"):
        assert secret not in shown


def test_messages_are_kept_short() -> None:
    assert len(mapped(400, said("x" * 9000, "y" * 9000)).message) < 700


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"type": "overloaded_error"}, ProviderUnavailable),
        ({"type": "not_found_error"}, ModelNotFound),
        ({"details": {"error_code": "enforced_spend_limit_reached"}}, RateLimited),
        ({}, ProviderUnavailable),
        ("x", ProviderUnavailable),
        (None, ProviderUnavailable),
        (b"\xff", ProviderUnavailable),
    ],
)
def test_errors_without_a_status(value: Any, kind: type[PenstockError]) -> None:
    error = map_inline_error(value)
    assert (type(error), error.status) == (kind, None)


@given(st.integers(100, 599), st.binary() | st.text().map(str.encode))
def test_arbitrary_bytes_become_an_error(status: int, body: bytes) -> None:
    assert isinstance(map_error(status, {}, body), PenstockError)
    assert isinstance(map_inline_error(body), PenstockError)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "type", "message", "details", "error_code"]), inner
        )
    ),
    max_leaves=10,
)


@given(values)
def test_arbitrary_json_becomes_an_error(value: Any) -> None:
    assert isinstance(map_error(429, {}, msgspec.json.encode(value)), PenstockError)
    assert isinstance(map_inline_error(value), PenstockError)
