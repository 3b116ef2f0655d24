"""What the dialects' readers of errors share."""

from typing import Any

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
from penstock.providers.wire.error_text import (
    answered,
    by_status,
    listed_error,
    name_of,
    object_of,
    read_body,
    sentence,
    shown,
    status_of,
    text_of,
)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'["a"]', ["a"]),
        (b'"a"', "a"),
        (b"null", None),
        (b"", "an empty body"),
        (b" \n", "an empty body"),
        (b" <!doctype html>", "an HTML page instead of JSON"),
        (b"upstream failed", "upstream failed"),
        (b"\xff", "\ufffd"),
        (b"[" * 100_000, "[" * 2000),
    ],
)
def test_a_body_is_its_json_or_the_words_for_it(body: bytes, value: Any) -> None:
    assert read_body(body) == value


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'[{"error": {"code": 1}}]', {"code": 1}),
        (b' \n[{"error": "a"}, {"error": "b"}]', "a"),
        (b"[]", None),
        (b"[1]", None),
        (b'[{"error": null}]', None),
        (b'[{"candidates": []}]', None),
        (b'{"error": "a"}', None),
        (b'[{"error": "a"', None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_only_a_list_that_begins_with_an_error_is_one(data: bytes, error: Any) -> None:
    assert listed_error(data) == error


def test_values_of_the_wrong_kind_are_none_at_all() -> None:
    assert object_of(["a"]) == object_of(None) == {}
    assert object_of({"a": 1}) == {"a": 1}
    assert name_of(7) == name_of(None) == ""
    assert name_of(" a\n b ") == "a b"
    assert [status_of(value) for value in (400, 599, 399, 600, True, "429", None)] == [
        *(400, 599),
        *[None] * 5,
    ]
    assert text_of(None) == "no message"
    assert text_of({"a": 1}) == '{"a":1}'
    assert text_of("a") == "a"


@given(st.text(), st.integers(2, 200), st.booleans())
def test_what_is_shown_is_one_line_of_limited_length(text: str, limit: int, refused: bool) -> None:
    line = shown(text, limit=limit, refused=refused)
    assert len(line) <= limit
    assert "\n" not in line


def test_a_key_is_gone_before_the_text_is_cut() -> None:
    assert shown("a sk-0123456789 b", limit=8) == "a [key]…"


def test_the_sentence_names_what_is_known() -> None:
    assert sentence("no", 400, name="bad") == "the provider answered 400 (bad): no"
    assert sentence("", None) == "the provider answered with an error: no message"
    assert sentence("no", 500, who="Bedrock") == "Bedrock answered 500: no"


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (None, MalformedResponse, False),
        (400, InvalidRequest, False),
        (401, AuthenticationFailed, False),
        (402, RateLimited, False),
        (403, AuthenticationFailed, False),
        (404, ModelNotFound, False),
        (408, ProviderUnavailable, True),
        (409, ProviderUnavailable, True),
        (413, InvalidRequest, False),
        (424, InvalidRequest, False),
        (429, RateLimited, True),
        (500, ProviderUnavailable, True),
        (501, ProviderUnavailable, False),
        (529, ProviderUnavailable, True),
    ],
)
def test_what_a_bare_status_means(
    status: int | None, kind: type[PenstockError], retryable: bool
) -> None:
    error = by_status(status, "no", [Problem("a", "b")])
    assert (type(error), error.retryable) == (kind, retryable)
    assert str(error).startswith("no")
    if isinstance(error, InvalidRequest):
        assert error.problems == (Problem("a", "b"),)


def test_a_dialect_adds_what_passes_and_what_to_do() -> None:
    assert isinstance(by_status(424, "no", (), passing=(424,)), ProviderUnavailable)
    assert isinstance(by_status(408, "no", (), passing=(424,)), InvalidRequest)
    assert str(by_status(404, "no", (), not_found="look it up")) == "no; look it up"


def test_the_pause_is_kept_only_where_waiting_helps() -> None:
    headers = {"retry-after": "7"}
    limited = answered(RateLimited("x"), 429, headers)
    assert (limited.status, limited.retry_after) == (429, 7.0)
    empty = answered(RateLimited("x", retryable=False), 402, headers)
    assert (empty.status, empty.retry_after) == (402, None)
    assert answered(RateLimited("x"), None, {}).retry_after is None
