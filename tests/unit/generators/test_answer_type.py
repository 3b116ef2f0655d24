"""Python types as models are asked for them, and their answers as values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import typing
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from penstock.contract.errors import InvalidRequest, Problem
from penstock.generators.answer_type import AnswerMismatch, AnswerType

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Zoo(pydantic.BaseModel):
    pets: list[Pet]
    by_name: dict[str, Pet] = {}


class Node(pydantic.BaseModel):
    value: int
    children: list[Node] = []


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Sale(pydantic.BaseModel):
    price: Decimal
    at: dt.datetime
    colour: Colour
    pieces: Annotated[int, Field(gt=0, le=9)]
    buyer: str = Field(alias="theBuyer")

    @pydantic.computed_field
    @property
    def dear(self) -> bool:
        return self.price > 5


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Book(typing.TypedDict):
    title: str
    year: NotRequired[int]


class Leaf(msgspec.Struct):
    size: int


class Rose(msgspec.Struct, tag=True):
    leaves: list[Leaf] = []


class Oak(msgspec.Struct, tag=True):
    age: int


@dataclasses.dataclass
class Garden:
    plants: list[Rose | Oak]
    leaf: Leaf | None = None


class Chain(msgspec.Struct):
    value: int
    rest: Chain | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Strict(pydantic.BaseModel, extra="forbid"):
    age: int = 18


SALE = {
    "price": 9.5,
    "at": "2024-02-29T12:00:00Z",
    "colour": "blue",
    "pieces": 3,
    "theBuyer": "Ada",
}


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        pytest.param(Cat, {"lives": 7}, Cat(lives=7), id="a model"),
        pytest.param(
            Zoo,
            {"pets": [{"kind": "dog", "name": "Rex"}], "by_name": {"Tom": {"kind": "cat"}}},
            Zoo(pets=[Dog(name="Rex")], by_name={"Tom": Cat()}),
            id="tagged unions in lists and maps",
        ),
        pytest.param(
            Node,
            {"value": 1, "children": [{"value": 2}]},
            Node(value=1, children=[Node(value=2)]),
            id="a model that holds itself",
        ),
        pytest.param(Box[int], {"item": 3}, Box[int](item=3), id="a generic model"),
        pytest.param(Box[Cat], {"item": {}}, Box[Cat](item=Cat()), id="a model of models"),
        pytest.param(
            Sale,
            SALE,
            Sale(
                price=Decimal("9.5"),
                at=dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
                colour=Colour.BLUE,
                pieces=3,
                theBuyer="Ada",
            ),
            id="dates, decimals, enums, limits, aliases",
        ),
        pytest.param(Point, {"x": 1}, Point(1), id="a dataclass"),
        pytest.param(Book, {"title": "T"}, {"title": "T"}, id="a TypedDict"),
        pytest.param(Leaf, {"size": 2}, Leaf(2), id="a struct"),
        pytest.param(
            Rose,
            {"type": "Rose", "leaves": [{"size": 1}]},
            Rose([Leaf(1)]),
            id="a tagged struct",
        ),
        pytest.param(
            Garden,
            {"plants": [{"type": "Oak", "age": 9}, {"type": "Rose"}]},
            Garden([Oak(9), Rose()]),
            id="structs in a dataclass",
        ),
        pytest.param(
            Chain,
            {"value": 1, "rest": {"value": 2}},
            Chain(1, Chain(2)),
            id="a struct that holds itself",
        ),
        pytest.param(dict[str, Leaf], {"a": {"size": 1}}, {"a": Leaf(1)}, id="a map of structs"),
        pytest.param(dict[str, int], {"a": 1}, {"a": 1}, id="a map"),
        pytest.param(list[int], {"answer": [1]}, [1], id="a list"),
        pytest.param(list[Leaf], {"answer": [{"size": 1}]}, [Leaf(1)], id="a list of structs"),
        pytest.param(Rose | Oak, {"answer": {"type": "Oak", "age": 1}}, Oak(1), id="tags"),
        pytest.param(tuple[int, str], {"answer": [1, "a"]}, (1, "a"), id="a tuple"),
        pytest.param(set[int], {"answer": [1, 1]}, {1}, id="a set"),
        pytest.param(Numbers, {"answer": [1]}, Numbers([1]), id="a root model"),
        pytest.param(Pair, {"answer": [1, "a"]}, Pair(1, "a"), id="a named tuple"),
        pytest.param(str, {"answer": "a"}, "a", id="text"),
        pytest.param(bool, {"answer": True}, True, id="a truth"),
        pytest.param(None, {"answer": None}, None, id="nothing"),
        pytest.param(int | str, {"answer": "a"}, "a", id="a union"),
        pytest.param(Cat | None, {"answer": None}, None, id="an optional"),
        pytest.param(Pet, {"answer": {"kind": "cat"}}, Cat(), id="a tagged union"),
        pytest.param(Literal["a", "b"], {"answer": "b"}, "b", id="literals"),
        pytest.param(Colour, {"answer": "red"}, Colour.RED, id="an enum"),
        pytest.param(Any, {"answer": {"x": [1]}}, {"x": [1]}, id="anything"),
    ],
)
def test_a_type_is_asked_for_as_an_object_and_read_back(kind: Any, answer: Any, value: Any) -> None:
    answer_type: AnswerType[Any] = AnswerType(kind)
    schema = answer_type.output.schema
    assert schema["type"] == "object"
    assert not schema.keys() & {"$ref", "anyOf", "oneOf"}
    assert answer_type.read(json.dumps(answer)) == value


def test_a_wrapped_answer_may_come_bare() -> None:
    assert AnswerType(list[int]).read("[1, 2]") == [1, 2]
    assert AnswerType(int).read("3") == 3


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Cat, "Cat"),
        (Box[Cat], "Box_Cat_"),
        (list[int], "list"),
        (int | str, "answer"),
        (None, "answer"),
        (pydantic.create_model("Ünïcode " + "x" * 99, a=(int, ...)), "_n_code_" + "x" * 56),
    ],
)
def test_the_name_is_legal_everywhere(kind: Any, name: str) -> None:
    assert AnswerType(kind).output.name == name


def test_a_reference_at_the_root_is_written_out_and_kept_only_if_needed() -> None:
    assert "$defs" not in AnswerType(Leaf).output.schema
    assert AnswerType(Node).output.schema["$defs"].keys() == {"Node"}
    assert AnswerType(Chain).output.schema["$defs"].keys() == {"Chain"}


def test_a_property_of_one_value_must_be_said_for_it_tells_variants_apart() -> None:
    schema = AnswerType(Zoo).output.schema
    assert schema["$defs"]["Dog"]["required"] == ["name", "kind"]
    assert schema["$defs"]["Cat"]["required"] == ["kind"]
    assert schema["required"] == ["pets"]
    # The type itself takes an answer without it.
    assert AnswerType(Dog).read('{"name": "Rex"}') == Dog(name="Rex")


def _local() -> Any:
    class Inner(pydantic.BaseModel):
        size: int

    class Outer(pydantic.BaseModel):
        inner: list[Inner]

    return Outer


def test_classes_inside_functions_can_be_asked_for() -> None:
    assert AnswerType(_local()).read('{"inner": [{"size": 1}]}').inner[0].size == 1


class Unknown:
    """No library can describe it."""


class Unresolved(msgspec.Struct):
    other: Missing  # pyright: ignore[reportUndefinedVariable] # noqa: F821


@dataclasses.dataclass
class Half:
    other: Missing  # pyright: ignore[reportUndefinedVariable] # noqa: F821


def _function(x: int) -> int:
    raise AssertionError("a model must not call it")


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Unknown, "Unknown"),
        (list[Unknown], "Unknown"),
        (Unresolved, "Unresolved"),
        (Half, "Half"),
        ("Nowhere", "Nowhere"),
        (3, "3"),
        (typing.Callable, "Callable"),
        (_function, "_function"),
        (len, "len"),
        (Annotated[str, Field(pattern="(")], "str"),
        (Annotated[Cat | int, Field(discriminator="kind")], "Cat"),
    ],
)
def test_what_has_no_schema_is_refused_by_name(kind: Any, named: str) -> None:
    with pytest.raises(InvalidRequest, match=r"no JSON Schema can be made of") as caught:
        AnswerType(kind)
    (problem,) = caught.value.problems
    assert problem.path == "output"
    assert named in problem.message


POINT = '{"x": 1, "y": 2}'


@pytest.mark.parametrize(
    "text",
    [
        POINT,
        f"  \n{POINT}\n",
        f"\ufeff{POINT}",
        f"```json\n{POINT}\n```",
        f"```\n{POINT}```",
        f"Here you are:\n```json\n{POINT}\n```\nAnything else?",
        f"Sure! {POINT} I hope that helps.",
        f"As in [1], the point is {POINT}.",
        f"The point {POINT} (see [2]).",
        f"```python\nprint({{}})\n```\nso\n```json\n{POINT}\n```",
        f'```json\n{{"x": "wrong"}}\n```\nNo, rather:\n```json\n{POINT}\n```',
    ],
)
def test_words_and_fences_around_the_json_are_no_trouble(text: str) -> None:
    assert AnswerType(Point).read(text) == Point(1, 2)


def test_arrays_between_words_are_found_too() -> None:
    assert AnswerType(list[int]).read("It is [1, 2].") == [1, 2]
    assert AnswerType(list[Point]).read(f"Two: [{POINT}, {POINT}]!") == [Point(1, 2)] * 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("I will not.", "is not JSON"),
        ('{"x": 1,}', "is not JSON"),
        ('{"x": NaN}', "is not JSON"),
        ('{"x": 1e999}', "is not JSON"),
        ('{"x": "\ud800"}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[" * 100_000 + "]" * 100_000, "is not JSON"),
        ("```json\n" * 10_000, "is not JSON"),
        ("{" * 10_000 + "}" * 10_000, "is not JSON"),
    ],
)
def test_what_is_no_json_is_said_so(text: str, problem: str) -> None:
    with pytest.raises(AnswerMismatch, match=problem) as caught:
        AnswerType(Point).read(text)
    assert [each.path for each in caught.value.problems] == [""]


def test_a_deep_answer_is_a_mismatch_without_the_answer_in_it() -> None:
    deep = '{"children":[' * 150 + "]}" * 150
    with pytest.raises(AnswerMismatch) as caught:
        AnswerType(Node).read(deep)
    assert len(str(caught.value)) < 1000


def test_a_megabyte_of_text_is_read() -> None:
    many = json.dumps(list(range(150_000)))
    assert AnswerType(list[int]).read(f"Here: {many}!") == list(range(150_000))


@pytest.mark.parametrize(
    ("kind", "answer", "problems"),
    [
        (Point, {}, ["x: Field required"]),
        (Point, {"x": "a"}, ['x: *, not "a"']),
        (Zoo, {"pets": [{"kind": "dog", "name": 3}]}, ["pets[0].dog.name: *, not 3"]),
        (Sale, SALE | {"pieces": 10, "colour": "x"}, ['colour: *, not "x"', "pieces: *, not 10"]),
        (list[int], {"answer": [1, None]}, ["[1]: *, not null"]),
        (Leaf, {"size": "a"}, ["size: Expected `int`, got `str`"]),
        (Garden, {"plants": [{"type": "Oak"}]}, ["plants[0]: *`age`"]),
        (Point, {"x": "y" * 999}, ['x: *, not "' + "y" * 79 + "…"]),
    ],
)
def test_problems_say_where_and_what(kind: Any, answer: Any, problems: list[str]) -> None:
    with pytest.raises(AnswerMismatch) as caught:
        AnswerType(kind).read(json.dumps(answer))
    found = list(map(str, caught.value.problems))
    assert len(found) == len(problems)
    for problem, expected in zip(found, problems, strict=True):
        start, _, end = expected.partition("*")
        assert problem.startswith(start)
        assert problem.endswith(end)


def test_the_problem_of_the_likeliest_json_is_told() -> None:
    with pytest.raises(AnswerMismatch, match="x: "):
        AnswerType(Point).read('```json\n{"x": "a"}\n```\nor perhaps [1]')


def test_null_counts_as_left_out_where_the_type_takes_no_null() -> None:
    assert AnswerType(Strict).read('{"age": null}') == Strict()
    assert AnswerType(Cat).read('{"kind": "cat", "lives": null}') == Cat()
    assert AnswerType(list[Cat]).read('{"answer": [{"lives": null}]}') == [Cat()]
    with pytest.raises(AnswerMismatch, match="x: "):
        AnswerType(Point).read('{"x": null}')


TYPES: tuple[Any, ...] = (Zoo, Node, Sale, Point, Book, Garden, Chain, list[int], Pet, str, Any)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("answer", "kind", "type", "pets", "value", "children", "x", "a")),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(kind=st.sampled_from(TYPES), text=st.text() | json_values.map(json.dumps))
def test_reading_gives_a_value_or_a_mismatch_and_nothing_else(kind: Any, text: str) -> None:
    answer_type: AnswerType[Any] = AnswerType(kind)
    problems: tuple[Problem, ...] | None = None
    try:
        answer_type.read(text)
    except AnswerMismatch as mismatch:
        problems = mismatch.problems
    assert problems != ()
