"""What cannot be written or read as JSON is a typed error."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.providers.wire.json_body import read_json, write_json


class Point(msgspec.Struct):
    x: int


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


@pytest.mark.parametrize("body", [{"x": object()}, {"x": "\ud800"}, {1.5j: 2}, endless()])
def test_a_value_without_a_json_form_is_the_callers_mistake(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="the request cannot be written as JSON: ") as caught:
        write_json(body)
    assert caught.value.problems == (Problem("", str(caught.value)),)
    assert caught.value.__cause__ is not None


def test_a_body_is_written_and_read() -> None:
    decode = msgspec.json.Decoder(Point).decode
    assert read_json(decode, write_json({"x": 1}), "no point") == Point(1)


@pytest.mark.parametrize("body", [b"", b"{", b'{"x": "1"}', b"\xff", b"[" * 100_000])
def test_a_body_of_another_shape_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponse, match=r"^no point: .") as caught:
        read_json(msgspec.json.Decoder(Point).decode, body, "no point")
    assert caught.value.__cause__ is not None
