"""What the tool loop needs of a tool, wherever it runs: here, or at an MCP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from penstock.contract.checks.spelling import did_you_mean
from penstock.contract.errors import InvalidRequest, Problem, shown
from penstock.contract.messages import JSONObject
from penstock.contract.options import ToolDefinition

Report: TypeAlias = Callable[[float, float | None, str | None], None]
"""Takes a tool's progress: how far, of how much if that is known, and in words."""
_SCHEMAS = ("parameters", "inputSchema", "input_schema")
"""What OpenAI, MCP, and Anthropic and Penstock call the schema of the arguments."""
_TEXTS = ("name", "description")
_OBJECTS = (*_SCHEMAS, "_meta", "meta")
_IGNORED = ("title", "annotations", "outputSchema", "icons", "execution")
"""Fields of MCP that are for people or for the host; models are not shown them."""


class RunnableTool(Protocol):
    """A tool that can be told to a model, and called."""

    @property
    def definition(self) -> ToolDefinition:
        """What the model is told; it may get to know the tool by another name."""
        ...

    @property
    def server(self) -> str:
        """The name of the MCP server that has it; empty for a function."""
        ...

    @property
    def timeout(self) -> float | None:
        """Its own limit in seconds, above that of the loop."""
        ...

    async def run(self, arguments: JSONObject, report: Report, /) -> Any:
        """What it gives: anything that has a JSON form, or a `ToolResult`."""
        ...


class ToolSource(Protocol):
    """Where tools come from that are not known before they are asked for."""

    @property
    def name(self) -> str:
        """What the source is called, in errors and in names of tools."""
        ...

    async def tools(self) -> Sequence[RunnableTool]:
        """The tools on offer now; raises ToolFailed when there is no telling."""
        ...


def tool_from_dict(path: str, given: Mapping[str, Any]) -> ToolDefinition:
    """The tool that a dict describes, in the form of OpenAI (nested or flat), MCP or Anthropic.

    Raises InvalidRequest with every problem, each with its path below `path`.
    """
    fields, place = given, path
    nested = given.get("function")
    if isinstance(nested, Mapping):
        fields, place = cast(Mapping[str, Any], nested), f"{path}.function"
        problems = [*_unknown(path, given, ("type", "function")), *_kind(path, given)]
        problems += _tool_problems(place, fields, _OPENAI)
    else:
        problems = [*_kind(path, given), *_tool_problems(place, fields, _FLAT)]
    if problems:
        raise InvalidRequest.of(problems)
    schema = next((fields[name] for name in _SCHEMAS if fields.get(name) is not None), None)
    return ToolDefinition(
        fields["name"],
        fields.get("description") or "",
        {"type": "object"} if schema is None else {"type": "object", **schema},
        fields.get("strict"),
        meta=fields.get("_meta", fields.get("meta")),
    )


_OPENAI = (*_TEXTS, "parameters", "strict")
_FLAT = ("type", *_TEXTS, *_OBJECTS, "strict", *_IGNORED)


def _kind(path: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    kind = given.get("type", "function")
    if kind not in ("function", "custom"):
        yield Problem(f"{path}.type", f"is {shown(kind)}; only tools of type 'function' are taken")


def _tool_problems(path: str, fields: Mapping[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    yield from _unknown(path, fields, known)
    if "name" not in fields:
        yield Problem(f"{path}.name", "is required")
    for name in _TEXTS:
        value = fields.get(name, "")
        if not isinstance(value, str) and not (name == "description" and value is None):
            yield Problem(f"{path}.{name}", f"is {shown(value)}; give a text")
    for name in _OBJECTS:
        value = fields.get(name)
        if value is not None and not isinstance(value, dict):
            yield Problem(f"{path}.{name}", f"is {shown(value)}; give an object")
    if not isinstance(strict := fields.get("strict"), bool | None):
        yield Problem(f"{path}.strict", f"is {shown(strict)}; give true or false")
    schemas = [name for name in _SCHEMAS if fields.get(name) is not None]
    if len(schemas) > 1:
        yield Problem(path, f"has {' and '.join(schemas)}; give one schema")


def _unknown(path: str, fields: Mapping[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    for name in fields:
        if name not in known:
            hint = did_you_mean(str(name), known)
            yield Problem(f"{path}.{name}", f"there is no such field{hint}")
