"""Random pydantic models, of the kinds that people ask a language model to fill.

Limits that some wires cannot carry (lengths, bounds) are wide enough for what a model says that has
not read them; whether they are carried where they can be is for each dialect's own tests.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import uuid
from typing import Annotated, Any, Literal, cast

import pydantic
from hypothesis import strategies as st
from pydantic import Field


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Cat(pydantic.BaseModel):
    """A pet with a tag."""

    kind: Literal["cat"]
    lives: int = Field(default=9, description="How many are left")


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Tree(pydantic.BaseModel):
    """Holds itself where it may be left out."""

    label: str
    left: Tree | None = None
    children: list[Tree] = []


class Chain(pydantic.BaseModel):
    """Holds itself where it must be there."""

    links: list[Chain]


LEAVES: tuple[Any, ...] = (
    *(str, int, float, bool, dt.date, dt.datetime, uuid.UUID),
    # No literal of a boolean: Gemini takes it in words only, which no server has to obey.
    *(Colour, Level, Literal["a"], Literal["a", "b"], Literal[1, 2]),
    *(Annotated[int, Field(ge=0, le=100)], Annotated[int, Field(gt=-5, lt=1000)]),
    Annotated[float, Field(ge=0)],
    *(Annotated[str, Field(min_length=1, max_length=20)], Annotated[str, Field(description="?")]),
)
MODELS: tuple[Any, ...] = (Cat, Dog, Tree, Chain)

_numbers = itertools.count()


def _model(fields: dict[str, tuple[Any, Any]]) -> type[pydantic.BaseModel]:
    made: Any = pydantic.create_model(f"Model{next(_numbers)}", **cast(Any, fields))
    return made


def _fields(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, tuple[Any, Any]]]:
    def field(kind: Any, how: str) -> tuple[Any, Any]:
        match how:
            case "absent":
                # May be left out, and may not be null.
                return kind, Field(default_factory=tuple)
            case "null":
                return kind | None, None
            case "described":
                return kind, Field(description="In words.")
            case _:
                return kind, ...

    names = st.sampled_from(("name", "size", "items", "type", "answer", "the $key", "ünïcode"))
    ways = st.sampled_from(("required", "required", "absent", "null", "described"))
    made = st.builds(field, kinds, ways)
    return st.dictionaries(names, made, min_size=1, max_size=4).map(
        # A field's name must be an identifier; what the wire calls it need not be.
        lambda fields: {
            f"field_{at}": (
                Annotated[kind, Field(alias=name)] if default is ... else kind,
                default,
            )
            for at, (name, (kind, default)) in enumerate(fields.items())
        }
    )


def _around(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = kinds.map(lambda kind: list[kind])
    return st.one_of(
        lists,
        kinds.map(lambda kind: Annotated[list[kind], Field(min_length=1, max_length=5)]),
        kinds.map(lambda kind: dict[str, kind]),
        kinds.map(lambda kind: kind | None),
        st.tuples(kinds, kinds).map(lambda two: two[0] | two[1]),
        st.just(Annotated[Cat | Dog, Field(discriminator="kind")]),
        st.just(set[int]),
        _fields(kinds).map(_model),
    )


kinds: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from((*LEAVES, *MODELS)), _around, max_leaves=4
)
models: st.SearchStrategy[type[pydantic.BaseModel]] = _fields(kinds).map(_model)
