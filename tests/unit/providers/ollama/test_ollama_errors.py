"""Statuses and bodies in, typed errors out."""

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
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.providers.ollama import relax
from penstock.providers.ollama.errors import map_error, map_inline_error


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (400, b'{"error": "\\"m\\" does not support tools"}', InvalidRequest, False),
        (400, b'{"error": "invalid option"}', InvalidRequest, False),
        (413, b"too large", InvalidRequest, False),
        (401, b'{"error": "unauthorized"}', AuthenticationFailed, False),
        (403, b'{"error": "this model requires a subscription"}', AuthenticationFailed, False),
        (402, b'{"error": "pay"}', RateLimited, False),
        (429, b'{"StatusCode": 429, "error": "hourly limit"}', RateLimited, True),
        (404, b'{"error": "model \'x\' not found"}', ModelNotFound, False),
        (404, b"404 page not found", MalformedResponse, False),
        (404, b"", MalformedResponse, False),
        (404, b"{}", MalformedResponse, False),
        (405, b"405 method not allowed", InvalidRequest, False),
        (408, b"", ProviderUnavailable, True),
        (409, b"", ProviderUnavailable, True),
        (499, b'{"error": "request cancelled"}', InvalidRequest, False),
        (500, b'{"error": "llama runner process has terminated"}', ProviderUnavailable, True),
        (501, b'{"error": "this model does not support embeddings"}', ProviderUnavailable, False),
        (502, b"<html>Bad Gateway</html>", ProviderUnavailable, True),
        (503, b'{"error": "server busy, please try again."}', ProviderUnavailable, True),
        (302, b"", MalformedResponse, False),
        (204, b"", MalformedResponse, False),
    ],
)
def test_the_status_decides(
    status: int, body: bytes, kind: type[PenstockError], retryable: bool
) -> None:
    error = map_error(status, {}, body)
    assert type(error) is kind
    assert (error.status, error.retryable) == (status, retryable)
    assert "<html" not in str(error)
    assert str(status) in str(error)


def test_an_unknown_model_comes_with_the_remedy() -> None:
    error = map_error(404, {}, b'{"error": "model \'qwen3\' not found"}')
    assert "model 'qwen3' not found" in str(error)
    assert "`ollama pull <name>`" in str(error)


@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_that_is_asked_for(status: int) -> None:
    assert map_error(status, {"retry-after": "7"}, b"").retry_after == 7
    assert map_error(400, {"retry-after": "7"}, b"").retry_after is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "one\\n  two"}', "one two"),
        (b'{"error": {"message": "as OpenAI says it", "type": "api_error"}}', "as OpenAI says it"),
        (b'{"error": {"code": 1}}', '{"code":1}'),
        (b'{"error": ["a"]}', '["a"]'),
        (b'{"detail": "no"}', '{"detail":"no"}'),
        (b'"text"', "text"),
        (b"null", "no message"),
        (b"  \n", "an empty body"),
        (b"<html>", "an HTML page instead of JSON"),
    ],
)
def test_what_is_shown(body: bytes, message: str) -> None:
    assert str(map_error(500, {}, body)) == f"the provider answered 500: {message}"


def test_long_messages_are_cut() -> None:
    assert len(str(map_error(500, {}, b'{"error": "%s"}' % (b"x" * 10_000)))) < 600


def test_keys_are_not_shown() -> None:
    key = "0123456789abcdef0123456789abcdef.Zz_9"
    body = f'{{"error": "bad key {key}, Bearer {key}"}}'.encode()
    for status in (401, 403):
        assert key not in str(map_error(status, {}, body))
    assert f"Bearer {key}" not in str(map_error(500, {}, body))


def test_inline_errors_have_the_status_that_they_name() -> None:
    error = map_inline_error(b'{"StatusCode": 404, "error": "gone"}')
    assert (type(error), error.status) == (ModelNotFound, 404)
    error = map_inline_error(b'{"StatusCode": 7, "error": "gone"}')
    assert (type(error), error.status) == (ProviderUnavailable, None)


@given(st.integers(100, 599), st.binary(max_size=100))
def test_any_answer_becomes_an_error_and_never_raises(status: int, body: bytes) -> None:
    assert isinstance(map_error(status, {}, body), PenstockError)
    assert isinstance(map_inline_error(body), PenstockError)


@pytest.mark.parametrize(
    ("level", "ignore", "status", "relaxed"),
    [
        ("high", True, 400, True),
        ("high", False, 400, False),
        ("high", True, 404, False),
        ("none", True, 400, False),
        (None, True, 400, False),
    ],
)
def test_a_refused_level_of_thinking_is_dropped_where_that_is_allowed(
    level: str | None, ignore: bool, status: int, relaxed: bool
) -> None:
    request = SamplingRequest(
        messages=(user("Hi"),),
        max_tokens=5,
        reasoning_level=level,  # pyright: ignore[reportArgumentType]
        ignore_invalid_options=ignore,
    )
    again = relax(request, InvalidRequest("does not support thinking", status=status))
    assert (again is not None) is relaxed
    if again is not None:
        assert (again[0].reasoning_level, again[1]) == (None, "reasoning_level")
