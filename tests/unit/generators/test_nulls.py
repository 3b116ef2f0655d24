"""Nulls that strict schemas put in are taken out again; the type's own stay."""

from __future__ import annotations

import time
from random import Random
from typing import Annotated, Any, Literal, cast

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from penstock.generators.answer_type import AnswerType
from penstock.generators.nulls import without_added_nulls
from tests.support.families import models
from tests.support.instances import instance


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int | None
    name: str = ""


class Rose(msgspec.Struct, tag=True):
    size: int = 0


class Oak(msgspec.Struct, tag=True):
    size: int | None = None


class Sum(pydantic.BaseModel):
    left: Sum | Product | int
    right: Sum | Product | int
    note: str = ""


class Product(pydantic.BaseModel):
    left: Sum | Product | int
    right: Sum | Product | int
    name: str = ""


EMPTY: dict[str, Any] = {}
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def _schema(kind: Any) -> dict[str, Any]:
    return AnswerType(kind).output.schema


@pytest.mark.parametrize(
    ("kind", "given", "left"),
    [
        pytest.param(Cat, {"lives": None}, {}, id="optional, not nullable"),
        pytest.param(Dog, {"lives": None, "name": None}, {"lives": None}, id="nullable"),
        pytest.param(
            dict[str, Cat], {"a": {"lives": None}, "b": None}, {"a": {}, "b": None}, id="a map"
        ),
        pytest.param(
            list[Pet],
            {"answer": [{"kind": "cat", "lives": None}, {"kind": "dog", "lives": None}]},
            {"answer": [{"kind": "cat"}, {"kind": "dog", "lives": None}]},
            id="tags decide",
        ),
        pytest.param(
            list[Rose | Oak],
            {"answer": [{"type": "Rose", "size": None}, {"type": "Oak", "size": None}]},
            {"answer": [{"type": "Rose"}, {"type": "Oak", "size": None}]},
            id="tags of structs decide",
        ),
        pytest.param(
            tuple[Cat, int, Cat],
            {"answer": [{"lives": None}, None, {"lives": None, "kind": "cat"}]},
            {"answer": [EMPTY, None, {"kind": "cat"}]},
            id="a tuple",
        ),
        pytest.param(Any, {"answer": {"a": None}}, {"answer": {"a": None}}, id="anything"),
        pytest.param(Cat, {"unknown": None}, {"unknown": None}, id="an unknown property"),
        pytest.param(Cat, None, None, id="null itself"),
        pytest.param(Cat, [None], [None], id="another type"),
        pytest.param(Cat, {"lives": [None]}, {"lives": [None]}, id="nonsense"),
    ],
)
def test_only_added_nulls_are_taken_out(kind: Any, given: Any, left: Any) -> None:
    assert without_added_nulls(given, _schema(kind)) == left


def test_a_tag_that_may_be_left_out_may_be_null_too() -> None:
    tag = {"const": "cat", "type": "string"}
    schema = {"type": "object", "properties": {"kind": tag, "lives": {"type": "integer"}}}
    assert without_added_nulls({"kind": None, "lives": 1}, schema) == {"lives": 1}


def _with_nulls(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """Say null for each absent property that is optional and not nullable, as strict mode does."""
    if not isinstance(schema, dict):
        return value
    node = cast(dict[str, Any], schema)
    if "$ref" in node:
        return _with_nulls(value, root["$defs"][node["$ref"].removeprefix("#/$defs/")], root)
    if isinstance(value, list):
        items = cast(list[Any], value)
        return [_with_nulls(each, node.get("items"), root) for each in items]
    if not isinstance(value, dict):
        return value
    said = cast(dict[str, Any], value)
    properties: dict[str, Any] = node.get("properties", {})
    others: Any = node.get("additionalProperties")
    filled = {
        name: _with_nulls(inner, properties.get(name, others), root) for name, inner in said.items()
    }
    absent = {
        name
        for name, inner in properties.items()
        if name not in said and name not in node.get("required", ()) and "type" in inner
    }
    return filled | dict.fromkeys(absent)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(kind=models, seed=st.integers(0, 2**32))
def test_added_nulls_are_taken_out_exactly(kind: Any, seed: int) -> None:
    schema = _schema(kind)
    value = instance(schema, Random(seed))
    assert without_added_nulls(value, schema) == value, "a null of the type's own was taken out"
    filled = _with_nulls(value, schema, schema)
    assert without_added_nulls(filled, schema) == value


def _tree(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = {"left": made, "right": 2, "note": None}
    return made


def test_unions_of_types_that_hold_themselves_do_not_grow_with_the_depth() -> None:
    """Every level once had twice the candidates of the level above."""
    schema = _schema(Sum)
    started = time.perf_counter()
    cleaned = without_added_nulls(_tree(60), schema)
    assert time.perf_counter() - started < 30, "2 ** 60 candidates would take for ever"
    # What may be a product has no rule about the notes of sums.
    assert cleaned["left"]["left"].keys() == {"left", "right"}


def test_a_hostile_depth_ends() -> None:
    deep: Any = {}
    for _ in range(10_000):
        deep = {"left": deep, "note": None}
    cleaned = without_added_nulls(deep, _schema(Sum))
    assert "note" not in cleaned


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        {"$ref": "#/$defs/missing"},
        {"anyOf": [True, False, 3]},
        {"type": "object", "properties": {"a": True}},
        {},
    ],
)
def test_a_schema_that_leads_nowhere_takes_nothing_out(schema: dict[str, Any]) -> None:
    assert without_added_nulls({"a": None, "b": [None]}, schema) == {"a": None, "b": [None]}
