"""A Python type as a model is asked for it, and as its answer is read.

What pydantic knows (models, dataclasses, TypedDict, lists, unions, ...) is described and validated
by pydantic; what only msgspec knows (its structs) by msgspec. Every wire wants an object at the
root, so any other type is asked for as `{"answer": ...}` and taken out again.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import pydantic
import pydantic_core

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject
from penstock.contract.options import OutputSchema
from penstock.generators.nulls import without_added_nulls

T = TypeVar("T")
_WRAPPER = "answer"
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_LIMIT = 64
_VALUE_LIMIT = 80
_LITERALS = frozenset({"default", "enum", "const", "examples"})
"""Keywords that hold values, not schemas."""
_BYTE_ORDER_MARK = "\ufeff"
_UNKNOWN_TYPE = (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError)
_REFUSALS = (
    *_UNKNOWN_TYPE,
    pydantic_core.SchemaError,
    TypeError,
    ValueError,
    NameError,  # what an annotation names is not there
    RecursionError,
)
"""How the libraries say that they cannot describe a type."""


class AnswerMismatch(Exception):
    """The text is no value of the type; `problems` says why, each with its place."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        """Keep the problems for the model, which is asked to mend them."""
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class _Reader(Protocol):
    """What a library of types does for us."""

    def schema(self) -> JSONObject: ...

    def read(self, data: bytes) -> Any: ...


class AnswerType(Generic[T]):
    """What the answer must be; raises InvalidRequest at once when no schema can be made of it."""

    def __init__(self, kind: type[T] | Any) -> None:
        """`kind` is a class, or any form that annotations take, such as `list[int]`."""
        self._reader = _reader(kind)
        schema = _rooted(self._reader.schema())
        _require_tags(schema)
        self.wrapped = schema.get("type") != "object" or bool(schema.keys() & {"anyOf", "oneOf"})
        name: str = getattr(kind, "__name__", "") or _WRAPPER
        self.output = OutputSchema(
            _wrapped(schema) if self.wrapped else schema,
            _NO_NAME.sub("_", name)[:_NAME_LIMIT],
            prompted=True,
        )

    def read(self, text: str) -> T:
        """The value that the text holds; raises AnswerMismatch.

        Where words or code fences stand around the JSON, the first JSON that fits is taken. Null is
        what strict schemas make of a property that may be left out. Where the type takes no null,
        such a property counts as left out.
        """
        mismatch: AnswerMismatch | None = None
        broken: Exception | None = None
        for candidate in _candidates(text):
            try:
                return self.value(msgspec.json.decode(candidate))
            except AnswerMismatch as error:
                mismatch = mismatch or error
            except (ValueError, RecursionError) as error:
                broken = broken or error
        reason = f"is not JSON: {broken}" if text.strip() else "is empty"
        raise mismatch or AnswerMismatch((Problem("", reason),))

    def value(self, given: Any) -> T:
        """The same for JSON that has been parsed already."""
        try:
            return self._read(given)
        except AnswerMismatch:
            mended = without_added_nulls(given, self.output.schema)
            if mended == given:
                raise
            return self._read(mended)

    def _read(self, given: Any) -> T:
        if self.wrapped and isinstance(given, dict) and _WRAPPER in given:
            given = cast(JSONObject, given)[_WRAPPER]
        return cast(T, self._reader.read(msgspec.json.encode(given)))


class _Pydantic:
    def __init__(self, kind: Any) -> None:
        self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)

    def schema(self) -> JSONObject:
        return self._adapter.json_schema()

    def read(self, data: bytes) -> Any:
        try:
            return self._adapter.validate_json(data)
        except pydantic.ValidationError as error:
            raise AnswerMismatch(
                tuple(
                    Problem(
                        value_path(each["loc"]),
                        _complaint(each["type"], each["msg"], each["input"]),
                    )
                    for each in error.errors(include_url=False, include_context=False)
                )
            ) from error


class _Msgspec:
    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def schema(self) -> JSONObject:
        return msgspec.json.schema(self._kind)

    def read(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            path = place.rstrip("`").removeprefix(".")
            raise AnswerMismatch((Problem(path, message),)) from error


def _reader(kind: Any) -> _Reader:
    if inspect.isroutine(kind):
        # Pydantic would take it, and call it with what the model says.
        raise _no_schema(kind, "it is a function, not a type")
    try:
        reader: _Reader = _Pydantic(kind)
        reader.schema()
    except _REFUSALS as refused:
        known = isinstance(refused, _UNKNOWN_TYPE) and _msgspec_reader(kind)
        if not known:
            raise _no_schema(kind, str(refused).partition("\n")[0]) from refused
        reader = known
    return reader


def _msgspec_reader(kind: Any) -> _Reader | None:
    """For its own structs, and for what `typing.TypedDict` is to pydantic before Python 3.12."""
    try:
        reader = _Msgspec(kind)
        reader.schema()
    except _REFUSALS:
        return None
    return reader


def _no_schema(kind: Any, reason: str) -> InvalidRequest:
    problem = Problem("output", f"no JSON Schema can be made of {kind!r}: {reason}")
    return InvalidRequest.of([problem])


def _require_tags(schema: Any) -> None:
    """Have the model say each property that has one value only, though it has a default.

    It tells the variants of a union apart, and there is nothing to think about it.
    """
    if isinstance(schema, list):
        for each in cast(list[Any], schema):
            _require_tags(each)
    elif isinstance(schema, dict):
        node = cast(JSONObject, schema)
        for key in node.keys() - _LITERALS:
            _require_tags(node[key])
        if isinstance(properties := node.get("properties"), dict):
            required: list[str] = node.get("required", [])
            tags = [
                name
                for name, inner in cast(JSONObject, properties).items()
                if isinstance(inner, dict) and "const" in inner and name not in required
            ]
            if tags:
                node["required"] = [*required, *tags]


def _rooted(schema: JSONObject) -> JSONObject:
    """The schema with its root written out where it is a mere reference."""
    definitions: JSONObject = schema.get("$defs", {})
    seen: set[str] = set()
    while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        target: Any = definitions.get(reference.removeprefix("#/$defs/"))
        if not isinstance(target, dict):
            break
        schema = {**cast(JSONObject, target), **_without(schema, "$ref")}
    if seen and not any(name.encode() in msgspec.json.encode(schema) for name in seen):
        # The definition that has become the root is not needed twice.
        rest = {key: value for key, value in definitions.items() if f"#/$defs/{key}" not in seen}
        schema = {**schema, "$defs": rest} if rest else _without(schema, "$defs")
    return schema


def _without(schema: JSONObject, key: str) -> JSONObject:
    return {name: value for name, value in schema.items() if name != key}


def _wrapped(schema: JSONObject) -> JSONObject:
    wrapper: JSONObject = {
        "type": "object",
        "properties": {_WRAPPER: _without(schema, "$defs")},
        "required": [_WRAPPER],
        "additionalProperties": False,
    }
    return wrapper | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _candidates(text: str) -> Iterator[str]:
    """The text itself; else what stands in a code fence, or between words of courtesy."""
    yield text.lstrip(_BYTE_ORDER_MARK)
    yield from (match[1] for match in _FENCE.finditer(text))
    spans = [(text.find(start), text.rfind(end)) for start, end in ("{}", "[]")]
    yield from (text[start : end + 1] for start, end in sorted(spans) if 0 <= start < end)


def value_path(place: tuple[int | str, ...]) -> str:
    """The place of a value: `days[0].hour`."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")


def _complaint(rule: str, message: str, value: Any) -> str:
    if rule in ("missing", "json_invalid"):
        # The value is then the whole object around the gap, or the whole answer.
        return message
    try:
        shown = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        shown = type(value).__name__
    return f"{message}, not {shown if len(shown) <= _VALUE_LIMIT else shown[:_VALUE_LIMIT] + '…'}"
