"""Arguments of a tool that is described by a JSON Schema: the check before its handler runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import jsonschema
import msgspec
import pydantic_core
import referencing
from pydantic_core import core_schema
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from penstock.contract.errors import Problem, shown
from penstock.contract.messages import JSONObject
from penstock.generators.answer_type import AnswerMismatch, value_path
from penstock.generators.nulls import without_added_nulls

_LIBRARY: Any = jsonschema  # has no types
_REFERENCES: Any = referencing
_MOST_PROBLEMS = 20
_LONGEST_MESSAGE = 300
_VALUES = frozenset({"const", "default", "enum", "examples"})
"""Keywords that hold values, not schemas."""


class SchemaArguments:
    """The arguments that a JSON Schema describes; raises ValueError for an unusable schema."""

    def __init__(self, schema: JSONObject) -> None:
        """The schema must describe an object, and may refer to nothing outside itself."""
        if schema.get("type", "object") != "object":
            raise ValueError(f"its type is {shown(schema['type'])}, and arguments are an object")
        # A copy, so that a later change of the caller's own dict has no effect here.
        copy: JSONObject = msgspec.json.decode(msgspec.json.encode(schema))
        self.schema: JSONObject = {"type": "object", **copy}
        kind = _LIBRARY.validators.validator_for(self.schema, default=_LIBRARY.Draft202012Validator)
        checker: Any = kind(kind.META_SCHEMA)
        wrong = _LIBRARY.exceptions.best_match(checker.iter_errors(self.schema))
        if wrong is not None:
            place = value_path(tuple(wrong.absolute_path)) or "its root"
            raise ValueError(f"{_short(wrong.message)}, at {place}")
        _check_parts(self.schema)
        own = _LIBRARY.validators.extend(kind, {"pattern": _pattern})
        # An empty registry: nothing is fetched from an address that a schema names.
        self._validator: Any = own(self.schema, registry=_REFERENCES.Registry())
        self._problems({})  # raises RecursionError for a schema that refers to itself alone

    def value(self, arguments: JSONObject) -> JSONObject:
        """The arguments to pass on; raises AnswerMismatch with each problem and its place.

        A null that stands for a property which may be left out is taken out, as for functions.
        """
        try:
            problems = self._problems(arguments)
            if problems:
                arguments = without_added_nulls(arguments, self.schema)
                problems = self._problems(arguments) and problems
        except RecursionError as error:
            raise AnswerMismatch((Problem("", "is nested too deeply"),)) from error
        if problems:
            raise AnswerMismatch(problems)
        return arguments

    def _problems(self, arguments: JSONObject) -> tuple[Problem, ...]:
        errors = self._validator.iter_errors(arguments)
        found = (problem for error in errors for problem in _worded(error))
        return tuple(islice(found, _MOST_PROBLEMS))


def _worded(error: Any) -> Iterator[Problem]:
    """What is wrong, in the words that the arguments of functions are refused with."""
    place: tuple[int | str, ...] = tuple(error.absolute_path)
    if error.validator == "required":
        given = cast(JSONObject, error.instance)
        # One error each: the name is in its message alone.
        name = next((n for n in error.validator_value if repr(n) in error.message), None)
        if name is not None and name not in given:
            yield Problem(value_path((*place, name)), "Field required")
            return
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema.get("properties", {})
        patterns = error.schema.get("patternProperties", {})
        for name in cast(JSONObject, error.instance):
            if name not in known and not any(re.search(each, name) for each in patterns):
                yield Problem(value_path((*place, name)), "Extra inputs are not permitted")
        return
    if error.validator == "type":
        wanted = error.validator_value
        kinds = " or ".join(cast(list[str], wanted)) if isinstance(wanted, list) else wanted
        yield Problem(
            value_path(place), f"Input should be of type {kinds}, not {_json(error.instance)}"
        )
        return
    yield Problem(value_path(place), _short(error.message))


def _json(value: Any) -> str:
    return _short(msgspec.json.encode(value).decode())


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        message = f"{shown(instance)} does not match {shown(pattern)}"
        yield _LIBRARY.ValidationError(message)


def _matches(pattern: str, text: str) -> bool:
    linear = _linear(pattern)
    if linear is None:
        return re.search(pattern, text) is not None
    return linear.isinstance_python(text)


@functools.lru_cache(256)
def _linear(pattern: str) -> pydantic_core.SchemaValidator | None:
    """The pattern in an engine of linear time: the model chooses the text.

    None for a pattern with look-around or back references, which that engine does not have.
    """
    try:
        return pydantic_core.SchemaValidator(
            core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        )
    except pydantic_core.SchemaError:
        return None


def _check_parts(schema: JSONObject) -> None:
    """Raise ValueError for a reference that leads nowhere, and for a broken pattern."""
    resource = DRAFT202012.create_resource(cast(Any, schema))
    resolver = _REFERENCES.Registry().with_resource("", resource).resolver()
    for keyword, value in _texts(schema):
        try:
            if keyword == "$ref":
                resolver.lookup(value)
            elif _linear(value) is None:
                re.compile(value)
        except Unresolvable:
            raise ValueError(
                f"$ref {shown(value)} is not in the schema; put it below $defs"
            ) from None
        except re.error as error:
            raise ValueError(f"the pattern {shown(value)} is broken: {error}") from None


def _texts(schema: JSONObject) -> Iterator[tuple[str, str]]:
    """Every reference and every pattern of the schema, with its keyword."""
    waiting: list[Any] = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += cast(list[Any], each)
        elif isinstance(each, dict):
            node = cast(JSONObject, each)
            for keyword in ("$ref", "pattern"):
                if isinstance(value := node.get(keyword), str):
                    yield keyword, value
            waiting += (inner for key, inner in node.items() if key not in _VALUES)
