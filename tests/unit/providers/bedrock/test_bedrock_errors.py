"""What goes wrong, as typed errors."""

from __future__ import annotations

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
    ProviderUnavailable,
    RateLimited,
)
from penstock.providers.bedrock.errors import map_error, map_stream_error

BY_NAME: list[tuple[str, int, type[PenstockError], bool]] = [
    ("ThrottlingException", 429, RateLimited, True),
    ("TooManyRequestsException", 429, RateLimited, True),
    ("ServiceQuotaExceededException", 400, RateLimited, False),
    ("AccessDeniedException", 403, AuthenticationFailed, False),
    ("UnrecognizedClientException", 403, AuthenticationFailed, False),
    ("InvalidSignatureException", 403, AuthenticationFailed, False),
    ("ExpiredTokenException", 403, AuthenticationFailed, False),
    ("ExpiredTokenException", 400, AuthenticationFailed, False),
    ("ResourceNotFoundException", 404, ModelNotFound, False),
    ("ValidationException", 400, InvalidRequest, False),
    ("ModelNotReadyException", 429, ProviderUnavailable, True),
    ("ModelTimeoutException", 408, ProviderUnavailable, True),
    ("ModelErrorException", 424, ProviderUnavailable, True),
    ("InternalServerException", 500, ProviderUnavailable, True),
    ("ServiceUnavailableException", 503, ProviderUnavailable, True),
]


@pytest.mark.parametrize(("name", "status", "kind", "retryable"), BY_NAME)
def test_the_name_decides_wherever_it_stands(
    name: str, status: int, kind: type[PenstockError], retryable: bool
) -> None:
    said = b'{"message": "It broke."}'
    for error in (
        map_error(status, {"x-amzn-errortype": f"{name}:http://internal.amazon.com/"}, said),
        map_error(
            status, {}, msgspec.json.encode({"__type": f"a.b#{name}", "Message": "It broke."})
        ),
        map_error(status, {}, msgspec.json.encode({"code": name, "message": "It broke."})),
        map_error(200, {}, msgspec.json.encode({"__type": name, "message": "It broke."})),
    ):
        assert type(error) is kind
        assert error.retryable is retryable
        assert f"({name}): It broke." in str(error)
    assert map_error(status, {}, b"").status == status


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, InvalidRequest, False),
        (401, AuthenticationFailed, False),
        (402, RateLimited, False),
        (403, AuthenticationFailed, False),
        (404, ModelNotFound, False),
        (408, ProviderUnavailable, True),
        (409, ProviderUnavailable, True),
        (413, InvalidRequest, False),
        (424, ProviderUnavailable, True),
        (429, RateLimited, True),
        (500, ProviderUnavailable, True),
        (501, ProviderUnavailable, False),
        (503, ProviderUnavailable, True),
        (529, ProviderUnavailable, True),
        (302, MalformedResponse, False),
        (200, MalformedResponse, False),
    ],
)
def test_without_a_name_the_status_decides(
    status: int, kind: type[PenstockError], retryable: bool
) -> None:
    for body in (b"", b"{}", b"[1]", b"null", b"plain words", b"<html>no</html>", b"\xff\xfe"):
        for headers in ({}, {"x-amzn-errortype": "SomethingNew"}):
            error = map_error(status, headers, body)
            assert (type(error), error.retryable, error.status) == (kind, retryable, status)
            assert "<html" not in str(error)


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"x-amz-retry-after": "1500"}, 1.5),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "7", "x-amz-retry-after": "100"}, 0.1),
        ({"x-amz-retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_pause_that_is_asked_for(headers: dict[str, str], pause: float | None) -> None:
    assert map_error(429, headers, b"").retry_after == pause
    assert map_error(400, headers, b"").retry_after is None


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "ABSKQmVkcm9ja0FQSUtleS1hYmNkZWY=",
        "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3M",
        "IQoJb3JpZ2luX2VjEJr//////////wEaCXVzLWVhc3QtMSJH",
        "sk-conformance-0123456789abcdef",
    ],
)
def test_secrets_that_aws_repeats_are_not_shown(secret: str) -> None:
    """A refused signature is answered with the request as it should have been signed."""
    said = f"The Canonical String should have been 'x-amz-security-token:{secret}' Bearer {secret}"
    body = msgspec.json.encode({"message": said})
    error = map_error(403, {"x-amzn-errortype": "InvalidSignatureException"}, body)
    assert secret not in f"{error} {error!r} {error.__dict__}"


def test_a_message_is_one_line_of_limited_length() -> None:
    error = map_error(400, {}, msgspec.json.encode({"message": "a\nb " * 5000}))
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    assert isinstance(error, InvalidRequest)
    assert error.problems[0].message.startswith("a b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["message", "__type"]), inner),
)


@given(
    st.integers(100, 599),
    st.binary() | JSON.map(lambda value: msgspec.json.encode(value)),
    st.dictionaries(st.sampled_from(["x-amzn-errortype", "x-amz-retry-after"]), st.text()),
)
def test_no_answer_raises_anything_else(status: int, body: bytes, headers: dict[str, str]) -> None:
    assert isinstance(map_error(status, headers, body), PenstockError)
    assert isinstance(map_stream_error(headers, body), PenstockError)


@given(st.text(), st.text(), st.binary())
def test_no_message_of_a_stream_raises_anything_else(name: str, said: str, body: bytes) -> None:
    headers = {":exception-type": name, ":error-message": said}
    assert map_stream_error(headers, body).status is None
