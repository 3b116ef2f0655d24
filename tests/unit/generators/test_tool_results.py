"""What a tool gives back, as the model is told of it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Audio, Image, Text, ToolResult
from penstock.generators.tool_results import UnusableResult, failure_of, readable, result_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
LIMIT = 1000


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Leaf(msgspec.Struct):
    size: int


class Model(pydantic.BaseModel):
    a: Leaf | None = None
    b: dt.date = dt.date(2024, 2, 29)

    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("text", "text", None),
        ("", "", None),
        (None, "null", None),
        (3, "3", None),
        (2**100, str(2**100), None),
        (1.5, "1.5", None),
        (float("nan"), '"NaN"', None),
        (True, "true", None),
        ([], "[]", None),
        ([1, "a"], '[1,"a"]', None),
        ((1, 2), "[1,2]", None),
        ({1}, "[1]", None),
        ({}, "{}", {}),
        ({"a": 1}, '{"a":1}', {"a": 1}),
        ({1: 2}, '{"1":2}', {"1": 2}),
        ({"a": float("inf")}, '{"a":"Infinity"}', {"a": "Infinity"}),
        (Point(1), '{"x":1}', {"x": 1}),
        (Leaf(1), '{"size":1}', {"size": 1}),
        ([Leaf(1)], '[{"size":1}]', None),
        (Model(), '{"a":null,"b":"2024-02-29"}', {"a": None, "b": "2024-02-29"}),
        (Colour.RED, '"red"', None),
        (Decimal("1.10"), '"1.10"', None),
        (dt.datetime(2024, 2, 29, tzinfo=dt.UTC), '"2024-02-29T00:00:00Z"', None),
        ("half \ud800 pair", "half ? pair", None),
    ],
)
def test_values_are_told_as_text_or_json(value: Any, text: str, structured: Any) -> None:
    result = result_of("call", value, LIMIT)
    assert result == ToolResult("call", (Text(text),), structured)


@pytest.mark.parametrize("data", [PNG, bytearray(PNG), memoryview(PNG)])
def test_bytes_of_a_picture_are_a_picture(data: Any) -> None:
    (part,) = result_of("call", data, LIMIT).content
    assert isinstance(part, Image)
    assert part.mime_type == "image/png"


def test_parts_go_as_they_are_among_other_values() -> None:
    sound = Audio("c291bmQ=", "audio/wav")
    result = result_of("call", ["a", sound, {"b": 1}, PNG, [Text("c")], None], LIMIT)
    a, b, c, d, e, f = result.content
    assert (a, b, c, e, f) == (Text("a"), sound, Text('{"b":1}'), Text("c"), Text("null"))
    assert isinstance(d, Image)
    assert result_of("call", sound, LIMIT).content == (sound,)


def test_a_result_gets_the_id_of_its_call() -> None:
    given = ToolResult("mine", (Text("no"),), is_error=True)
    assert result_of("call", given, LIMIT) == ToolResult("call", (Text("no"),), is_error=True)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Image("iVBORw0KGgo=", "image/png"), "image/png of 8 bytes"),
        (Image(url="https://host/a.png"), "image at https://host/a.png"),
        (Audio("UklGRgAAAABXQVZF", "audio/wav"), "audio/wav of 12 bytes"),
    ],
)
def test_what_a_model_does_not_take_is_told_in_words(part: Image | Audio, said: str) -> None:
    result = ToolResult("call", (Text("a"), part), {"b": 1})
    told = Text(f"[{said}, which this model cannot be shown]")
    assert readable(result, lambda part: False) == ToolResult("call", (Text("a"), told), {"b": 1})
    assert readable(result, lambda part: True) == result


@pytest.mark.parametrize("part", [Image("", "image/png"), Image("AAEC"), Audio("", "audio/wav")])
def test_a_picture_of_nothing_is_told_in_words(part: Image | Audio) -> None:
    (told,) = readable(ToolResult("call", (part,)), lambda part: True).content
    assert isinstance(told, Text)


def _numbers() -> Iterator[int]:
    while True:
        yield 1


async def _later() -> AsyncIterator[int]:
    yield 1


def _cycle(kind: str) -> Any:
    listed: list[Any] = [Text("a")] if kind == "parts" else []
    mapped: dict[str, Any] = {"inner": listed}
    listed.append(mapped if kind == "map" else listed)
    return mapped if kind == "map" else listed


def _deep() -> Any:
    made: list[Any] = []
    for _ in range(5000):
        made = [made]
    return made


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"abc", "3 bytes that are no picture"),
        (b"", "0 bytes that are no picture"),
        ({"a": b"\xff"}, "no JSON form"),
        (object(), "a object, which has no JSON form"),
        ([object()], "no JSON form"),
        (ValueError("x"), "a ValueError"),
        (len, "no JSON form"),
        (_numbers(), "a generator"),
        (_later(), "a generator"),
        (_cycle("list"), "no JSON form"),
        (_cycle("map"), "no JSON form"),
        (_cycle("parts"), "no end"),
        (_deep(), "no JSON form"),
        (["\ud800"], "no JSON form"),
    ],
)
def test_what_cannot_be_told_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(UnusableResult, match=reason):
        result_of("call", value, LIMIT)


SIZED: dict[str, Callable[[int], Any]] = {
    "text": lambda size: "x" * size,
    "wide text": lambda size: "é" * (size // 2),
    "part": lambda size: Text("x" * size),
    "parts": lambda size: [Text("x"), "é" * ((size - 1) // 2), "y" * ((size - 1) % 2)],
    "json": lambda size: ["x" * (size - 4)],
    "result": lambda size: ToolResult("", (Text("x" * size),)),
    "structured": lambda size: ToolResult("", (), {"a": "x" * (size - 8)}),
    "picture": lambda size: Image("x" * size, "image/png"),
}


@pytest.mark.parametrize("make", SIZED.values(), ids=SIZED)
def test_the_limit_counts_bytes(make: Any) -> None:
    result_of("call", make(LIMIT), LIMIT)
    with pytest.raises(UnusableResult, match=r"1,00[0-9] bytes, and 1,000 are the limit"):
        result_of("call", make(LIMIT + 2), LIMIT)


@pytest.mark.parametrize("make", [lambda: "x" * 10**8, lambda: ["x" * 10**6] * 100])
def test_a_hundred_megabytes_are_refused(make: Any) -> None:
    with pytest.raises(UnusableResult, match="bytes, and 1,000,000 are the limit"):
        result_of("call", make(), 1_000_000)


def test_a_failure_is_marked_and_can_be_sent() -> None:
    result = failure_of("call", "no \ud800")
    assert result == ToolResult("call", (Text("no ?"),), is_error=True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=10,
    )
)
def test_every_value_is_told_or_refused(value: Any) -> None:
    try:
        result = result_of("call", value, 10**6)
    except UnusableResult:
        return
    msgspec.json.encode(result)
    if result.structured_content is not None:
        assert json.loads(result.text) == result.structured_content
