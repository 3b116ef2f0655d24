"""Statuses, headers and bodies in, typed errors out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    Problem,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from penstock.providers.openai_wire.errors import map_error, map_inline_error


def mapped(status: int, body: Any = b"", **headers: str) -> PenstockError:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    error = map_error(status, names, data)
    assert error.status == status
    return error


def openai(message: str = "msg", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": None, "param": None, "code": None, **fields}}


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
        (415, InvalidRequest, False),
        (422, InvalidRequest, False),
        (429, RateLimited, True),
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
    ("status", "fields", "kind"),
    [
        (400, {"code": "context_length_exceeded"}, ContextLengthExceeded),
        (400, {"type": "exceed_context_size_error", "code": 400}, ContextLengthExceeded),
        (500, {"type": "exceed_context_size_error", "code": 500}, ContextLengthExceeded),
        (400, {"type": "BadRequestError", "param": "input_tokens"}, ContextLengthExceeded),
        (400, {"type": "BadRequestError", "param": "max_tokens"}, InvalidRequest),
        (400, {"code": "content_filter"}, ContentRejected),
        (400, {"code": "content_policy_violation"}, ContentRejected),
        (404, {"code": "model_not_found"}, ModelNotFound),
        (403, {"code": "model_not_found"}, ModelNotFound),
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, RateLimited),
        (429, {"code": "billing_hard_limit_reached"}, RateLimited),
        (403, {"type": "insufficient_quota"}, RateLimited),
        (429, {"code": "rate_limit_exceeded", "type": "tokens"}, RateLimited),
        (413, {"code": "rate_limit_exceeded", "type": "tokens"}, InvalidRequest),
        (401, {"code": "invalid_api_key"}, AuthenticationFailed),
        (503, {"type": "unavailable_error", "code": 503}, ProviderUnavailable),
    ],
)
def test_structured_names_refine_the_status(
    status: int, fields: dict[str, Any], kind: type[PenstockError]
) -> None:
    assert type(mapped(status, openai(**fields))) is kind


@pytest.mark.parametrize(
    ("fields", "retryable"),
    [
        ({"code": "insufficient_quota"}, False),
        ({"type": "billing_not_active"}, False),
        ({"code": "rate_limit_exceeded"}, True),
        ({}, True),
    ],
)
def test_waiting_does_not_fill_an_account(fields: dict[str, Any], retryable: bool) -> None:
    assert mapped(429, openai(**fields)).retryable is retryable


def test_the_wording_of_a_message_decides_nothing() -> None:
    words = "context_length_exceeded content_filter model_not_found insufficient_quota rate limit"
    assert type(mapped(400, openai(words))) is InvalidRequest
    assert mapped(429, openai(words)).retryable


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (openai("No such thing"), "No such thing"),
        ({"error": {"code": 400, "message": "Too bad", "type": "x"}}, "Too bad"),
        ({"error": "just text"}, "just text"),
        ({"error": {"detail": "deep"}}, "deep"),
        ({"detail": "Not allowed"}, "Not allowed"),
        ({"detail": {"message": "inner"}}, "inner"),
        (
            {"object": "error", "message": "Mistral says", "type": "x", "code": "1500"},
            "Mistral says",
        ),
        (
            {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "bad"}]}},
            "n: bad",
        ),
        ([{"error": {"code": 400, "message": "Gemini says", "status": "INVALID"}}], "Gemini says"),
        ({"error": {"message": {"a": 1}}}, '{"a":1}'),
        ({"unknown": 1}, '{"unknown":1}'),
        ({"error": None, "message": "here"}, "here"),
        ([], "no message"),
        (b"null", "no message"),
        (b"12", "12"),
        (b"upstream connect error", "upstream connect error"),
        (b"\xff\xfe", "\ufffd"),
        (b"  ", "an empty body"),
        (b"<html><h1>502 Bad Gateway</h1></html>", "an HTML page instead of JSON"),
    ],
)
def test_the_message_is_found_in_every_shape(body: Any, message: str) -> None:
    assert message in mapped(400, body).message


def test_the_code_is_named_before_the_message() -> None:
    error = mapped(400, openai("Bad value", type="invalid_request_error", code="bad_value"))
    assert str(error) == "the provider answered 400 (bad_value): Bad value"
    error = mapped(400, {"error": {"code": 400, "message": "Bad", "type": "t"}})
    assert str(error) == "the provider answered 400 (t): Bad"


def test_a_missing_path_names_the_remedy() -> None:
    error = mapped(
        404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
    )
    assert str(error).endswith("File Not Found; check the url and the model's name")
    assert "check the url" not in str(mapped(404, openai(code="model_not_found")))
    assert (
        type(mapped(400, {"message": "Invalid model: x", "type": "invalid_model"})) is ModelNotFound
    )


def test_fastapis_list_becomes_problems() -> None:
    detail = [
        {"loc": ["body", "max_tokens"], "msg": "must be positive", "type": "value_error"},
        {"loc": ["body", "messages", 0, "role"], "msg": "unknown role"},
        "stray",
    ]
    error = mapped(422, {"detail": detail})
    assert isinstance(error, InvalidRequest)
    assert error.problems == (
        Problem("max_tokens", "must be positive"),
        Problem("messages.0.role", "unknown role"),
    )


def test_the_parameter_becomes_the_path_of_the_problem() -> None:
    error = mapped(400, openai("too hot", param="temperature"))
    assert isinstance(error, InvalidRequest)
    assert error.problems == (Problem("temperature", "too hot"),)


def test_a_long_message_is_cut() -> None:
    error = mapped(400, openai("x " * 100_000))
    assert len(str(error)) < 600
    assert str(error).endswith("…")
    assert len(str(mapped(400, b"y" * 100_000))) < 600


@pytest.mark.parametrize(
    ("status", "message", "secret"),
    [
        (401, "Incorrect API key provided: sk-proj-abcdef1234567890.", "abcdef"),
        (400, "Bad header 'Authorization: Bearer top.secret.token'", "top.secret"),
        (403, "key 0123456789abcdefghijABCDEFGHIJ is not allowed", "0123456789"),
        (500, "gsk_abcdefghijklmnop leaked", "abcdefghijklmnop"),
    ],
)
def test_keys_that_a_provider_echoes_are_not_repeated(
    status: int, message: str, secret: str
) -> None:
    error = mapped(status, openai(message))
    assert secret not in str(error)
    assert "[key]" in str(error)


def test_ordinary_words_stay() -> None:
    message = "the hf-inference provider has no model sk-learn, see request-id"
    assert message in str(mapped(400, openai(message)))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry_after": "7"}, 7.0), ({"retry_after_ms": "250"}, 0.25), ({}, None)],
)
def test_a_rate_limit_keeps_the_pause(headers: dict[str, str], seconds: float | None) -> None:
    error = mapped(429, openai(), **headers)
    assert isinstance(error, RateLimited)
    assert error.retry_after == seconds


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_the_provider_may_forbid_a_retry(status: int) -> None:
    assert not mapped(status, x_should_retry="false").retryable
    assert mapped(status, x_should_retry="true").retryable


@pytest.mark.parametrize(
    ("value", "kind", "status"),
    [
        ({"message": "x", "code": 503}, ProviderUnavailable, 503),
        ({"message": "x", "code": 429, "type": "y"}, RateLimited, 429),
        ({"message": "x", "code": "429"}, ProviderUnavailable, None),
        ({"message": "x", "code": 3001}, ProviderUnavailable, None),
        ({"message": "x", "code": True}, ProviderUnavailable, None),
        ({"message": "x", "type": "rate_limit_error"}, RateLimited, None),
        ({"message": "x", "type": "authentication_error"}, AuthenticationFailed, None),
        ({"message": "x", "type": "NotFoundError"}, ModelNotFound, None),
        ({"message": "x", "type": "InternalServerError"}, ProviderUnavailable, None),
        ({"message": "x", "code": "model_not_found"}, ModelNotFound, None),
        ({"message": "x", "code": "insufficient_quota"}, RateLimited, None),
        ({"message": "x", "type": "something new"}, ProviderUnavailable, None),
        ("x", ProviderUnavailable, None),
        (["x"], ProviderUnavailable, None),
        (True, ProviderUnavailable, None),
    ],
)
def test_an_error_without_a_status_of_its_own(
    value: Any, kind: type[PenstockError], status: int | None
) -> None:
    error = map_inline_error(value)
    assert (type(error), error.status) == (kind, status)


NEVER = (InvalidRequest, AuthenticationFailed, ModelNotFound, ContentRejected, MalformedResponse)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "detail", "message", "code", "type", "param", "loc", "msg"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
bodies = st.binary() | st.text().map(str.encode) | json_values.map(msgspec.json.encode)
header_names = st.sampled_from(
    ["retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-should-retry", "other"]
)


@given(st.integers(-1, 1000), st.dictionaries(header_names, st.text() | st.just("false")), bodies)
def test_anything_at_all_becomes_a_typed_error(
    status: int, headers: dict[str, str], body: bytes
) -> None:
    error = map_error(status, headers, body)
    assert error.status == status
    assert 0 < len(error.message) < 800
    if isinstance(error, NEVER) or headers.get("x-should-retry") == "false":
        assert not error.retryable
    elif type(error) is ProviderUnavailable and "x-should-retry" not in headers and status >= 400:
        assert error.retryable is (status != 501)


@given(json_values)
def test_any_value_inside_a_200_becomes_a_typed_error(value: Any) -> None:
    assert map_inline_error(value).message


def test_deeply_nested_bodies_do_no_harm() -> None:
    assert type(mapped(400, b"[" * 100_000)) is InvalidRequest
    assert type(mapped(400, b'{"error":' * 100 + b"1" + b"}" * 100)) is InvalidRequest


def test_whatever_is_retryable_carries_the_pause_that_was_asked_for() -> None:
    unavailable = map_error(503, {"retry-after": "7"}, b"")
    assert (unavailable.retryable, unavailable.retry_after) == (True, 7.0)
    refused = map_error(401, {"retry-after": "7"}, b"")
    assert (refused.retryable, refused.retry_after) == (False, None)
