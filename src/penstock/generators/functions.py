"""Plain Python functions as tools: what the model is told of them, and how they are called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import (
    Annotated,
    Any,
    Generic,
    NotRequired,
    ParamSpec,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

import docstring_parser
import msgspec
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject
from penstock.contract.options import ToolDefinition
from penstock.generators.answer_type import AnswerType

P = ParamSpec("P")
R = TypeVar("R")
_UNNAMEABLE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


class Tool(Generic[P, R]):
    """A function that a model may call; it can still be called like the function it was."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        strict: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """Raises InvalidRequest when the signature cannot be told to a model.

        The name, the description and the schema come from the function's name, docstring and type
        hints; `timeout` is in seconds and stands above that of the generator.
        """
        update_wrapper(self, function)
        self.function = function
        self.timeout = timeout
        self.name = name or getattr(function, "__name__", type(function).__name__)
        docs = docstring_parser.parse(inspect.getdoc(function) or "")
        self._arguments = _arguments(function, self.name, docs)
        self.definition = ToolDefinition(
            self.name,
            description if description is not None else (docs.description or "").strip(),
            self._arguments.output.schema,
            strict,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """The name, as the model knows it."""
        return f"Tool({self.name!r})"

    @property
    def is_async(self) -> bool:
        """Whether a call gives something to await; any other function runs in a thread."""
        called = self.function if inspect.isroutine(self.function) else type(self.function).__call__
        return inspect.iscoroutinefunction(inspect.unwrap(_bare(called)))

    async def run(self, arguments: JSONObject) -> Any:
        """What the function gives; raises AnswerMismatch when the arguments do not fit its hints.

        A function that is not async runs in a thread. Cancelling stops the wait for it, not it.
        """
        call = partial(cast(Callable[..., Any], self.function), **self._arguments.value(arguments))
        if self.is_async:
            return await call()
        return await asyncio.to_thread(call)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """A tool out of a function: `@tool`, `@tool(name="...")`, or `tool(function)`."""
    if function is None:
        return partial(Tool, **options)
    if isinstance(function, Tool):
        return cast(Tool[..., Any], function)
    return Tool(function)


def _bare(function: Any) -> Any:
    return function.func if isinstance(function, partial) else function


def _arguments(
    function: Callable[..., Any], name: str, docs: docstring_parser.Docstring
) -> AnswerType[JSONObject]:
    try:
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(
            function if inspect.isroutine(function) else type(function).__call__,
            include_extras=True,
        )
    except (TypeError, ValueError, NameError) as error:
        raise _unusable(name, f"its signature cannot be read: {error}") from error
    about = {each.arg_name: each.description for each in docs.params if each.description}
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for each in parameters.values():
        if each.kind in _UNNAMEABLE:
            raise _unusable(
                name, f"the parameter {each} has no fixed name; models pass arguments by name"
            )
        kind: Any = hints.get(each.name, Any)
        if text := about.get(each.name):
            kind = Annotated[kind, Field(description=text)]
        if each.default is not inspect.Parameter.empty:
            kind = NotRequired[kind]
            defaults[each.name] = each.default
        fields[each.name] = kind
    shape: Any = TypedDict(name, fields)  # pyright: ignore[reportArgumentType]
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    arguments: AnswerType[JSONObject] = AnswerType(shape)
    properties: JSONObject = arguments.output.schema.get("properties", {})
    for each, value in defaults.items():
        _show_default(properties.get(each), value)
    return arguments


def _show_default(schema: Any, value: Any) -> None:
    """Tell the model what holds when it says nothing, where JSON has a word for it."""
    try:
        plain: Any = msgspec.to_builtins(value)
        msgspec.json.encode(plain)
    except (TypeError, ValueError):
        return
    if isinstance(schema, dict) and "$ref" not in schema:
        cast(JSONObject, schema)["default"] = plain


def _unusable(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest.of([Problem("tools", f"{name!r} cannot be a tool: {reason}")])
