"""Checks the arguments of our tools, and words what is wrong with them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import jsonschema
import mcp_types
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import ValidationError

from penstock.contract.checks.schema_names import names_in
from penstock.contract.errors import InvalidRequest, Problem, first_problems, shown
from penstock.contract.messages import JSONObject
from penstock.generators.threads import in_own_thread
from penstock.pipeline.limits import Limits, weigh

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LONGEST_COMPARED = 100
_WORDS: Mapping[str, str] = {
    "missing": "is required",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have {min_length} or more items",
}
_OTHERWISE = "does not fit the schema of the tool"


class CheckedTool(Tool):
    """A tool that refuses unknown arguments by name, and reports all problems at once."""

    @classmethod
    def of(
        cls, function: Callable[..., Any], annotations: mcp_types.ToolAnnotations
    ) -> CheckedTool:
        """The tool of a function; its schema allows no other arguments."""
        made = cast(CheckedTool, cls.from_function(function, annotations=annotations))
        made.parameters["additionalProperties"] = False
        return made

    async def run(
        self,
        arguments: dict[str, Any],
        context: Context[Any, Any],
        convert_result: bool = False,
    ) -> Any:
        """Check the arguments and run the tool; raises ToolError."""
        problems = [
            Problem(name, self._unknown((name,)))
            for name in arguments
            if name not in self.parameters.get("properties", {})
        ]
        cause: ValidationError | None = None
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            # The SDK logs the names of the arguments alone, and not their values.
            cause = error
            problems += self._misfits(error)
        if problems:
            raise ToolError(
                f"{self.name} does not take these arguments: "
                f"{'; '.join(map(str, first_problems(problems)))}"
            ) from cause
        return await super().run(arguments, context, convert_result)

    def _misfits(self, error: ValidationError) -> Iterator[Problem]:
        for each in error.errors(include_url=False):
            place = tuple(step for step in each["loc"] if not _is_branch(step))
            if each["type"] == "extra_forbidden":
                words = self._unknown(place)
            else:
                limits = {key: _number(value) for key, value in each.get("ctx", {}).items()}
                words = _WORDS.get(each["type"], _OTHERWISE).format(**limits)
                if each["type"] != "missing":
                    words += f", not {_shown(each['input'])}"
            yield Problem(_path(place), words)

    def _unknown(self, place: tuple[str | int, ...]) -> str:
        """What is wrong with an argument that nothing has, and which it may have been."""
        known = names_in(self.parameters, place[:-1])
        name = str(place[-1])[:_LONGEST_COMPARED]
        spelled = _CAPITAL.sub("_", name).lower()
        if near := difflib.get_close_matches(spelled, known, 1):
            return f"there is no such argument; did you mean {near[0]}?"
        return f"there is no such argument; {_listed(known)}"


def _shown(value: object) -> str:
    """A wrong value, spelled as in JSON where Python spells it differently."""
    return json.dumps(value) if value is None or isinstance(value, bool) else shown(value)


def _number(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value


def _listed(known: list[str]) -> str:
    return f"there are {', '.join(known)}" if known else "it takes none"


def _is_branch(step: str | int) -> bool:
    """Whether pydantic names the branch of a union here, and no place in the arguments."""
    return isinstance(step, str) and ("[" in step or step in ("int", "float", "str", "none"))


def _path(place: tuple[str | int, ...]) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")


async def check_schema(name: str, schema: JSONObject | None) -> None:
    """Raise InvalidRequest when this is no JSON Schema.

    One above the limits of the engine is left to the engine, which refuses it. The rest may take
    a while, so a thread does it.
    """
    if schema is None:
        return
    limits = Limits()
    values, depth = weigh(schema, limits)
    if values > limits.max_schema_values or depth > limits.max_json_depth:
        return
    problem = await in_own_thread(lambda: _schema_problem(name, schema))
    if problem is not None:
        raise InvalidRequest.of([problem])


def _schema_problem(name: str, schema: JSONObject) -> Problem | None:
    library: Any = jsonschema  # has no types
    kind = library.validators.validator_for(schema, default=library.Draft202012Validator)
    try:
        error = library.exceptions.best_match(kind(kind.META_SCHEMA).iter_errors(schema))
    except RecursionError:
        return Problem(name, "is nested too deeply for a JSON Schema")
    if error is None:
        return None
    path = _path((name, *error.absolute_path))
    return Problem(path, f"{shown(error.instance)} is not valid there in a JSON Schema")
