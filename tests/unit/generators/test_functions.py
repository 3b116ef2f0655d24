"""Functions as tools: what the model is told, and how they are called."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from pydantic import Field

from penstock import InvalidRequest, Tool, tool
from penstock.generators.answer_type import AnswerMismatch


class Order(pydantic.BaseModel):
    city: str
    count: int = 1


class Leaf(msgspec.Struct):
    size: int


def plain(city: str, days: int = 3, *, unit: Literal["C", "F"] = "C") -> str:
    """The weather in a city.

    It may be wrong.

    Args:
        city: Where to look.
        days: How far to look ahead.
    """
    return f"{city} {days} {unit}"


async def waiting(city: str, days: int = 3) -> str:
    """The weather."""
    await asyncio.sleep(0)
    return f"{city} {days}"


class Station:
    """A weather station."""

    def __init__(self, town: str) -> None:
        self.town = town

    def measure(self, depth: int) -> str:
        """Look."""
        return f"{self.town} {depth}"

    @classmethod
    def found(cls, town: str) -> str:
        return cls(town).town

    @staticmethod
    def double(number: int) -> int:
        return 2 * number

    async def later(self, depth: int) -> str:
        return self.measure(depth)

    def __call__(self, hour: int) -> str:
        """Ask the station.

        :param hour: When.
        """
        return f"{self.town} {hour}"


class Waiter:
    """Serves."""

    async def __call__(self, dish: str) -> str:
        return dish


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def in_a_task(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(function, *args, **kwargs)

    return call


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(function(*args, **kwargs))

    return call


@pytest.mark.parametrize(
    ("function", "name", "arguments", "result"),
    [
        pytest.param(plain, "plain", {"city": "Rome"}, "Rome 3 C", id="a function"),
        pytest.param(plain, "plain", {"city": "Rome", "unit": "F"}, "Rome 3 F", id="by name only"),
        pytest.param(waiting, "waiting", {"city": "Rome", "days": 1}, "Rome 1", id="async"),
        pytest.param(Station("Oslo").measure, "measure", {"depth": 1}, "Oslo 1", id="a method"),
        pytest.param(Station("Oslo").later, "later", {"depth": 1}, "Oslo 1", id="async method"),
        pytest.param(Station.found, "found", {"town": "Bonn"}, "Bonn", id="a class method"),
        pytest.param(Station.double, "double", {"number": 2}, 4, id="a static method"),
        pytest.param(Station("Oslo"), "Station", {"hour": 9}, "Oslo 9", id="a callable object"),
        pytest.param(Waiter(), "Waiter", {"dish": "soup"}, "soup", id="an async callable object"),
        pytest.param(
            functools.partial(plain, days=9), "plain", {"city": "Rome"}, "Rome 9 C", id="a partial"
        ),
        pytest.param(
            functools.partial(plain, "Rome"), "plain", {"days": 1}, "Rome 1 C", id="by position"
        ),
        pytest.param(
            functools.partial(waiting, days=9), "waiting", {"city": "Rome"}, "Rome 9", id="async 2"
        ),
        pytest.param(logged(plain), "plain", {"city": "Rome"}, "Rome 3 C", id="decorated"),
        pytest.param(logged(waiting), "waiting", {"city": "Rome"}, "Rome 3", id="plain over async"),
        pytest.param(in_a_task(plain), "plain", {"city": "Rome"}, "Rome 3 C", id="made async"),
        pytest.param(blocking(waiting), "waiting", {"city": "Rome"}, "Rome 3", id="made plain"),
    ],
)
async def test_whatever_can_be_called_by_names_can_be_a_tool(
    function: Callable[..., Any], name: str, arguments: dict[str, Any], result: Any
) -> None:
    made = tool(function)
    assert made.name == made.definition.name == name
    assert made.definition.input_schema["additionalProperties"] is False
    assert await made.run(arguments) == result


def test_the_model_is_told_what_the_signature_and_the_docstring_say() -> None:
    definition = tool(plain).definition
    assert definition.description == "The weather in a city.\n\nIt may be wrong."
    schema = definition.input_schema
    assert schema["required"] == ["city"]
    assert schema["properties"]["city"]["description"] == "Where to look."
    days = schema["properties"]["days"]
    assert (days["type"], days["default"]) == ("integer", 3)
    assert schema["properties"]["unit"]["enum"] == ["C", "F"]


def test_a_callable_object_is_described_by_its_call() -> None:
    definition = tool(Station("Oslo")).definition
    assert definition.description == "Ask the station."
    assert definition.input_schema["properties"]["hour"]["description"] == "When."
    assert tool(Waiter()).definition.description == "Serves."


def google(city: str) -> None:
    """Look.

    Args:
        city (str): Where.
    """


def numpy(city: str) -> None:
    """Look.

    Parameters
    ----------
    city : str
        Where.
    """


def sphinx(city: str) -> None:
    """Look.

    :param city: Where.
    """


def epydoc(city: str) -> None:
    """Look.

    @param city: Where.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx, epydoc])
def test_docstrings_of_every_style_are_understood(function: Callable[..., Any]) -> None:
    definition = tool(function).definition
    assert definition.description == "Look."
    assert definition.input_schema["properties"]["city"]["description"] == "Where."


def test_what_a_partial_has_set_is_not_shown_to_the_model() -> None:
    """It may be whose data is asked for, or a connection."""
    made = tool(functools.partial(plain, days=9))
    assert made.definition.input_schema["properties"].keys() == {"city", "unit"}


async def test_the_model_cannot_change_what_a_partial_has_set() -> None:
    with pytest.raises(AnswerMismatch, match="days"):
        await tool(functools.partial(plain, days=9)).run({"city": "Rome", "days": 1})


def test_name_description_and_limits_can_be_given() -> None:
    @tool(name="look", description="Look around.", strict=True, timeout=3)
    def see(city: str) -> str:
        """Ignored."""
        return city

    assert isinstance(see, Tool)
    assert (see.name, see.timeout, see.definition.strict) == ("look", 3, True)
    assert see.definition.description == "Look around."
    assert see("Rome") == "Rome"
    again = tool(see, name="glance")
    assert (again.name, see.name) == ("glance", "look")
    assert tool(see) is see
    assert tool(lambda: 1, name="same").name == "same"
    assert repr(see) == "Tool('look')"


def test_a_tool_looks_like_its_function() -> None:
    made = tool(plain)
    assert made.__doc__ == plain.__doc__
    assert made.__name__ == "plain"  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert made("Rome", unit="F") == "Rome 3 F"


async def test_without_hints_anything_is_taken() -> None:
    unannotated: Callable[..., Any] = eval("lambda a, b=2: [a, b]")
    assert await tool(unannotated, name="pair").run({"a": {"x": None}}) == [{"x": None}, 2]


async def test_arguments_are_validated_and_made_what_the_hints_say() -> None:
    def order(what: Order, hot: Annotated[int, Field(le=9)] = 1) -> list[Any]:
        return [what, hot]

    def rake(leaves: list[Leaf], wet: bool = True) -> list[Any]:
        return [*leaves, wet]

    assert await tool(order).run({"what": {"city": "Rome"}}) == [Order(city="Rome"), 1]
    assert await tool(rake).run({"leaves": [{"size": 1}]}) == [Leaf(1), True]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({}, "city: "),
        ({"city": 3}, "city: "),
        ({"city": "Rome", "unit": "K"}, "unit: "),
        ({"city": "Rome", "zone": 1}, "zone: "),
        ({"city": None}, "city: "),
    ],
)
async def test_wrong_arguments_are_a_mismatch(arguments: dict[str, Any], place: str) -> None:
    with pytest.raises(AnswerMismatch, match=place):
        await tool(plain).run(arguments)


async def test_null_for_an_argument_with_a_default_means_the_default() -> None:
    assert await tool(plain).run({"city": "Rome", "days": None}) == "Rome 3 C"


def test_defaults_without_a_word_in_json_are_not_shown() -> None:
    def odd(a: Any = object(), b: float = float("nan"), c: list[int] = [1]) -> None:  # noqa: B006, B008
        """Odd."""

    properties = tool(odd).definition.input_schema["properties"]
    assert ["default" in properties[name] for name in "abc"] == [False, False, True]
    assert properties["c"]["default"] == [1]


def positional(a: int, /) -> None: ...
def several(*a: int) -> None: ...
def named(**a: int) -> None: ...
def unresolved(a: Missing) -> None: ...  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType] # noqa: F821
def indescribable(a: range) -> None: ...


REFUSED: list[Any] = [
    (positional, "the parameter a: "),
    (several, r"the parameter \*a"),
    (named, r"the parameter \*\*a"),
    (unresolved, "Missing"),
    (indescribable, "'indescribable' cannot be a tool: .*range"),
    (Station.measure, "no 'self' yet"),
    (lambda: 1, "give name="),
    (3, "'int' cannot be a tool"),
    (max, "'max' cannot be a tool"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_what_a_model_cannot_call_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        tool(function)
    assert [problem.path for problem in caught.value.problems] == ["tools"]


@pytest.mark.parametrize("name", ["two words", "größe", "9lives", "x" * 65, "a.b"])
def test_names_that_some_api_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="give name="):
        tool(plain, name=name)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_must_leave_some_time(timeout: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout"):
        tool(plain, timeout=timeout)


async def test_a_plain_function_runs_in_a_thread_and_keeps_the_context() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def where() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), variable.get()]

    async def here() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), variable.get()]

    variable.set("set")
    assert await tool(where).run({}) == [False, "set"]
    assert await tool(here).run({}) == [True, "set"]


async def test_functions_that_never_return_leave_threads_for_others() -> None:
    """More of them than an event loop has threads of its own."""
    free = threading.Event()

    def stuck() -> None:
        free.wait()

    hung = [asyncio.create_task(tool(stuck).run({})) for _ in range(40)]
    try:
        assert await asyncio.wait_for(tool(plain).run({"city": "Oslo"}), 20) == plain("Oslo")
    finally:
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        free.set()


async def test_what_a_function_raises_in_its_thread_is_raised_here() -> None:
    def fails() -> None:
        raise LookupError("no such city")

    def ends() -> None:
        raise StopIteration

    with pytest.raises(LookupError, match="no such city"):
        await tool(fails).run({})
    with pytest.raises(RuntimeError, match="StopIteration"):
        await tool(ends).run({})


SCRIPT = """
import asyncio, threading
import penstock
from penstock.testing import FakeProvider, FakeReply, engine_with

def stuck() -> None:
    threading.Event().wait()

async def main() -> None:
    uses = (penstock.ToolUse("1", "stuck", {}),)
    async with engine_with(FakeProvider([FakeReply(tool_uses=uses), "Done."])) as engine:
        generator = engine.string_generator("Go.", tools=[stuck], tool_timeout=0.1)
        print((await generator.generate())[0])

asyncio.run(main())
"""


def test_a_program_ends_although_a_function_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("Done.\n", "", 0)
