"""Plain Python functions as tools: what the model is told of them, and how they are called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import (
    TYPE_CHECKING,
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

from penstock.contract.checks.spelling import suggests_names
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject
from penstock.contract.options import ToolDefinition
from penstock.contract.tools import Report, RunnableTool, tool_from_dict
from penstock.generators.answer_type import AnswerType
from penstock.generators.threads import in_own_thread

if TYPE_CHECKING:
    from penstock.generators.schema_arguments import SchemaArguments

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G")
_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What every API takes as the name of a tool."""
_UNNAMEABLE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


class Tool(Generic[P, R]):
    """A function that a model may call; it can still be called like the function it was."""

    server = ""
    """A function belongs to no server."""

    @overload
    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        strict: bool | None = None,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Tool[[JSONObject], G],
        *,
        name: str,
        description: str = "",
        input_schema: JSONObject,
        handler: Callable[[JSONObject], G],
        strict: bool | None = None,
        timeout: float | None = None,
    ) -> None: ...
    @suggests_names
    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        input_schema: JSONObject | None = None,
        handler: Callable[[JSONObject], Any] | None = None,
        strict: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """A tool of a function, or of an `input_schema` (JSON Schema) and a `handler`.

        Of a function, the name, the description and the schema come from its name, docstring and
        type hints; what a `functools.partial` has set is not shown to the model. A handler is async
        or plain and receives the validated arguments as one dict. `timeout` is in seconds and goes
        before that of the generator. Raises InvalidRequest when no tool can be made of it.
        """
        if function is None or handler is not None or input_schema is not None:
            function = _handler(function, name, input_schema, handler)
        update_wrapper(self, function)
        self.function: Callable[P, R] = function
        self.timeout = timeout
        self.name = name or _name(function)
        if not _LEGAL_NAME.fullmatch(self.name):
            raise _unusable(
                self.name,
                "APIs want a name of at most 64 letters, digits, _ and -; give name=",
            )
        if timeout is not None and not timeout > 0:
            raise _unusable(self.name, f"its timeout is {timeout!r}; it must be more than 0")
        if input_schema is None:
            docs = docstring_parser.parse(_docs(function))
            described = (docs.description or "").strip()
            self._arguments = _arguments(function, self.name, docs)
            schema = self._arguments.output.schema
        else:
            described = ""
            self._arguments = _checked_schema(self.name, input_schema)
            schema = self._arguments.schema
        self.definition = ToolDefinition(
            self.name, described if description is None else description, schema, strict
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """The name, as the model knows it."""
        return f"Tool({self.name!r})"

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop; any other function runs in a thread."""
        return inspect.iscoroutinefunction(_called(self.function))

    async def run(self, arguments: JSONObject, _report: Report | None = None, /) -> Any:
        """What the function gives; raises AnswerMismatch when the arguments do not fit.

        A function that is not async runs in a thread. Cancelling stops the wait for it, not it.
        """
        function = cast(Callable[..., Any], self.function)
        if isinstance(self._arguments, AnswerType):
            call = partial(function, **self._arguments.value(arguments))
        else:
            call = partial(function, self._arguments.value(arguments))
        given = call() if self.is_async else await in_own_thread(call)
        # A plain function may hand on what an async one gave it, as many decorators do.
        return await given if inspect.isawaitable(given) else given


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """A tool out of a function: `@tool`, `@tool(name="...")`, or `tool(function)`.

    The options are `name`, `description`, `strict` (whether the API enforces the schema; as it sees
    fit unless you say) and `timeout` in seconds. Without any, a plain function in `tools=[...]`
    does as well.
    """
    if function is None:
        return partial(Tool, **options)
    if isinstance(function, Tool):
        made = cast(Tool[..., Any], function)
        return Tool(made.function, **options) if options else made
    return Tool(function, **options)


def runnable(given: Any, path: str) -> RunnableTool:
    """The tool that this is: a tool, a function, or a dict of OpenAI's or MCP's form.

    A dict has its `handler` beside the schema. Raises InvalidRequest.
    """
    if isinstance(given, Mapping):
        entry = dict(cast(Mapping[str, Any], given))
        handler = entry.pop("handler", None)
        found = tool_from_dict(path, entry)
        if handler is None:
            text = f"{found.name!r} has no handler to run it; add one: 'handler': function"
            raise InvalidRequest.of([Problem(path, text)])
        return Tool(
            name=found.name,
            description=found.description,
            input_schema=found.input_schema,
            handler=handler,
            strict=found.strict,
        )
    if isinstance(given, ToolDefinition):
        text = f"{given.name!r} has no handler to run it; give penstock.Tool(..., handler=function)"
        raise InvalidRequest.of([Problem(path, text)])
    return cast(RunnableTool, given) if hasattr(given, "definition") else tool(given)


def _handler(
    function: object, name: str | None, schema: JSONObject | None, handler: object
) -> Callable[..., Any]:
    called = name or "a tool without a name"
    if function is not None:
        raise _unusable(called, "give a function, or input_schema and handler, and not both")
    if name is None:
        raise _unusable(called, "a handler takes its name from name=")
    if handler is None or schema is None:
        missing = "handler" if handler is None else "input_schema"
        raise _unusable(called, f"{missing} is missing")
    if not callable(handler):
        raise _unusable(called, f"its handler is {handler!r}; give a function of one dict")
    return handler


def _checked_schema(name: str, schema: JSONObject) -> SchemaArguments:
    # Only here: the library takes 70 ms to load, which few tools need.
    from penstock.generators.schema_arguments import SchemaArguments

    if not isinstance(schema, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _unusable(name, "its input_schema must be a dict")
    try:
        return SchemaArguments(schema)
    except (ValueError, TypeError) as error:
        raise _unusable(name, f"its input_schema cannot be used: {error}") from error
    except RecursionError as error:
        reason = "its input_schema is nested too deeply, or refers to itself alone"
        raise _unusable(name, reason) from error


def _bare(function: Any) -> Any:
    return function.func if isinstance(function, partial) else function


def _called(function: Any) -> Any:
    """The code that a call runs: the function itself, or what makes an object callable."""
    bare = _bare(function)
    if inspect.isclass(bare):
        return bare.__init__
    return bare if inspect.isroutine(bare) else type(bare).__call__


def _name(function: Any) -> str:
    bare = _bare(function)
    return getattr(bare, "__name__", type(bare).__name__)


def _docs(function: Any) -> str:
    bare = _bare(function)
    plain = inspect.isroutine(bare) or inspect.isclass(bare)
    of_the_call = None if plain else type(bare).__call__.__doc__
    return inspect.cleandoc(of_the_call) if of_the_call else inspect.getdoc(bare) or ""


def _arguments(
    function: Callable[..., Any], name: str, docs: docstring_parser.Docstring
) -> AnswerType[JSONObject]:
    try:
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(_called(function), include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise _unusable(name, f"its signature cannot be read: {error}") from error
    about = {each.arg_name: each.description for each in docs.params if each.description}
    decided: Mapping[str, Any] = function.keywords if isinstance(function, partial) else {}
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for each in parameters.values():
        if each.name in decided:
            continue
        _check_nameable(name, each, hints, first=not fields)
        kind: Any = hints.get(each.name, Any)
        if text := about.get(each.name):
            kind = Annotated[kind, Field(description=text)]
        if each.default is not inspect.Parameter.empty:
            kind = NotRequired[kind]
            defaults[each.name] = each.default
        fields[each.name] = kind
    shape: Any = TypedDict(name, fields)  # pyright: ignore[reportArgumentType]
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        arguments: AnswerType[JSONObject] = AnswerType(shape)
    except InvalidRequest as error:
        raise _unusable(name, f"its parameters cannot be described: {error}") from error
    properties: JSONObject = arguments.output.schema.get("properties", {})
    for each, value in defaults.items():
        _show_default(properties.get(each), value)
    return arguments


def _check_nameable(
    name: str, parameter: inspect.Parameter, hints: Mapping[str, Any], *, first: bool
) -> None:
    if parameter.kind in _UNNAMEABLE:
        raise _unusable(
            name, f"the parameter {parameter} has no fixed name; models pass arguments by name"
        )
    if first and parameter.name in ("self", "cls") and parameter.name not in hints:
        raise _unusable(
            name, f"the method has no {parameter.name!r} yet; make a tool of `instance.{name}`"
        )


def _show_default(schema: Any, value: Any) -> None:
    """Tell the model what holds when it says nothing, where JSON has a word for it."""
    try:
        plain: Any = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return
    if plain is None and value is not None:
        # NaN and infinity have no word.
        return
    if isinstance(schema, dict) and "$ref" not in schema:
        cast(JSONObject, schema)["default"] = plain


def _unusable(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest.of([Problem("tools", f"{name!r} cannot be a tool: {reason}")])
