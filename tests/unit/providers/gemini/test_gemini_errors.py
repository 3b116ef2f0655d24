"""Statuses and bodies in, typed errors out."""

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
    Problem,
    ProviderUnavailable,
    RateLimited,
)
from penstock.providers.gemini.errors import map_error, map_inline_error

RPC = "type.googleapis.com/google.rpc."


def status(code: Any, name: str, *details: Any, message: str = "no") -> bytes:
    error = {"code": code, "message": message, "status": name, "details": details}
    return msgspec.json.encode({"error": error})


def quota(id: str) -> dict[str, Any]:
    return {"@type": RPC + "QuotaFailure", "violations": [{"quotaId": id}]}


def pause(delay: Any) -> dict[str, Any]:
    return {"@type": RPC + "RetryInfo", "retryDelay": delay}


def reason(name: str) -> dict[str, Any]:
    return {"@type": RPC + "ErrorInfo", "reason": name, "domain": "googleapis.com"}


@pytest.mark.parametrize(
    ("code", "name", "kind", "retryable"),
    [
        (400, "INVALID_ARGUMENT", InvalidRequest, False),
        (400, "OUT_OF_RANGE", InvalidRequest, False),
        (400, "FAILED_PRECONDITION", AuthenticationFailed, False),
        (401, "UNAUTHENTICATED", AuthenticationFailed, False),
        (402, "", RateLimited, False),
        (403, "PERMISSION_DENIED", AuthenticationFailed, False),
        (404, "NOT_FOUND", ModelNotFound, False),
        (408, "", ProviderUnavailable, True),
        (409, "ABORTED", ProviderUnavailable, True),
        (413, "", InvalidRequest, False),
        (422, "", InvalidRequest, False),
        (429, "RESOURCE_EXHAUSTED", RateLimited, True),
        (499, "CANCELLED", ProviderUnavailable, True),
        (500, "INTERNAL", ProviderUnavailable, True),
        (500, "UNKNOWN", ProviderUnavailable, True),
        (501, "UNIMPLEMENTED", ProviderUnavailable, False),
        (502, "", ProviderUnavailable, True),
        (503, "UNAVAILABLE", ProviderUnavailable, True),
        (504, "DEADLINE_EXCEEDED", ProviderUnavailable, True),
        (529, "", ProviderUnavailable, True),
    ],
)
def test_statuses(code: int, name: str, kind: type[PenstockError], retryable: bool) -> None:
    error = map_error(code, {}, status(code, name))
    assert type(error) is kind
    assert (error.retryable, error.status) == (retryable, code)
    listed = b"[" + status(code, name) + b"]"
    assert type(map_error(code, {}, listed)) is kind
    # The same inside a 200, by the code and by the name alone.
    assert type(map_inline_error(status(code, name))) is kind
    if name:
        inline = map_inline_error({"status": name, "message": "no"})
        assert (type(inline), inline.retryable, inline.status) == (kind, retryable, None)


@pytest.mark.parametrize(
    "name", ["API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "SERVICE_DISABLED", "BILLING_DISABLED"]
)
def test_a_bad_key_is_a_400_here(name: str) -> None:
    error = map_error(400, {}, status(400, "INVALID_ARGUMENT", reason(name)))
    assert type(error) is AuthenticationFailed


@pytest.mark.parametrize(
    ("id", "retryable"),
    [
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", True),
        ("GenerateContentInputTokensPerModelPerMinute", True),
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", False),
    ],
)
def test_a_quota_of_a_day_is_not_worth_waiting_for(id: str, retryable: bool) -> None:
    error = map_error(429, {}, status(429, "RESOURCE_EXHAUSTED", quota(id), pause("7s")))
    assert isinstance(error, RateLimited)
    assert error.retryable is retryable
    assert error.retry_after == (7 if retryable else None)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("3.5s", 3.5), ("0s", 0), ("34.074824224s", 34.074824224), ("x", 9), ("-1s", 9), (3, 9)],
)
def test_the_pause_that_is_asked_for(delay: Any, seconds: float) -> None:
    body = status(429, "RESOURCE_EXHAUSTED", pause(delay))
    assert map_error(429, {"retry-after": "9"}, body).retry_after == seconds
    assert map_error(400, {"retry-after": "9"}, status(400, "")).retry_after is None


def test_violated_fields_are_problems() -> None:
    violation = {"field": "generation_config.temperature", "description": "too hot"}
    detail = {"@type": RPC + "BadRequest", "fieldViolations": [violation]}
    error = map_error(400, {}, status(400, "INVALID_ARGUMENT", detail))
    assert isinstance(error, InvalidRequest)
    assert error.problems == (Problem("generation_config.temperature", "too hot"),)
    plain = map_error(400, {}, status(400, "INVALID_ARGUMENT"))
    assert isinstance(plain, InvalidRequest)
    assert plain.problems == (Problem("", "no"),)


@pytest.mark.parametrize("code", [200, 301, 307])
def test_an_answer_from_somewhere_else(code: int) -> None:
    error = map_error(code, {}, b"")
    assert type(error) is MalformedResponse
    assert not error.retryable


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "an empty body"),
        (b"<html>oops</html>", "an HTML page instead of JSON"),
        (b"upstream\n  timeout", "upstream timeout"),
        (b"null", "no message"),
        (b"[]", "no message"),
        (b'"text"', "text"),
        (b'{"error": "text"}', "text"),
        (b'{"message": "text"}', "text"),
        (b'{"error": {"message": {"a": 1}}}', '{"a":1}'),
        (b'{"error": {"details": [7, {"violations": [3]}], "message": "x"}}', "x"),
    ],
)
def test_other_bodies(body: bytes, said: str) -> None:
    assert str(map_error(500, {}, body)) == f"the provider answered 500: {said}"


@pytest.mark.parametrize(
    "key",
    [
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "AQ.Ab8RN6LabcdefghIJKLmnop",
        "sk-conformance-0123456789abcdef",
        "Bearer abc.def",
    ],
)
@pytest.mark.parametrize("code", [400, 401, 429, 500])
def test_keys_are_never_repeated(key: str, code: int) -> None:
    error = map_error(code, {}, status(code, "", message=f"bad {key} here, key={key[-9:]}&x"))
    assert key not in str(error)
    assert key[-9:] not in str(error)


def test_a_refused_key_of_any_form_is_hidden() -> None:
    error = map_error(403, {}, status(403, "", message="no: 0123456789abcdef0123456789"))
    assert "0123" not in str(error)


@given(
    st.integers(0, 999), st.binary() | st.text().map(lambda text: f'{{"error":"{text}"}}'.encode())
)
def test_anything_is_a_typed_error(code: int, body: bytes) -> None:
    for error in (map_error(code, {}, body), map_inline_error(body)):
        assert isinstance(error, PenstockError)
        assert "\n" not in str(error)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["error", "code", "status", "message", "details", "retryDelay", "reason"]
            )
            | st.text(),
            inner,
        )
    ),
)


@given(ANY)
def test_any_json_is_a_typed_error(value: Any) -> None:
    assert isinstance(map_inline_error(value), PenstockError)
    assert isinstance(map_error(429, {}, msgspec.json.encode({"error": value})), PenstockError)
