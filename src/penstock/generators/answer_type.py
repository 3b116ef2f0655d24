"""A Python type as a model is asked for it, and as its answer is read.

What pydantic knows (models, dataclasses, TypedDict, lists, unions, ...) is described and validated
by pydantic; what only msgspec knows (its structs) by msgspec. Every wire wants an object at the
root, so any other type is asked for as `{"answer": ...}` and taken out again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import pydantic

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
        self.wrapped = schema.get("type") != "object" or bool(schema.keys() & {"anyOf", "oneOf"})
        name: str = getattr(kind, "__name__", "") or _WRAPPER
        self.output = OutputSchema(
            _wrapped(schema) if self.wrapped else schema,
            _NO_NAME.sub("_", name)[:_NAME_LIMIT],
            prompted=True,
        )

    def read(self, text: str) -> T:
        """The value that the text holds; raises AnswerMismatch.

        Null is what strict schemas make of a property that may be left out. Where the type takes no
        null, such a property counts as left out.
        """
        return self.value(_parse(text))

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
                        _path(each["loc"]), _complaint(each["type"], each["msg"], each["input"])
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
    try:
        reader: _Reader = _Pydantic(kind)
        reader.schema()
    except (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError) as refused:
        # Its own structs, and what the standard library's TypedDict is to pydantic before 3.12.
        try:
            reader = _Msgspec(kind)
            reader.schema()
        except TypeError:
            reason = str(refused).partition("\n")[0]
            raise InvalidRequest.of(
                [Problem("output", f"no JSON Schema can be made of {kind!r}: {reason}")]
            ) from refused
    return reader


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


def _parse(text: str) -> Any:
    problem = "is empty" if not text.strip() else ""
    for candidate in _candidates(text):
        try:
            return msgspec.json.decode(candidate)
        except (ValueError, RecursionError) as error:
            problem = problem or f"is not JSON: {error}"
    raise AnswerMismatch((Problem("", problem),))


def _candidates(text: str) -> Iterator[str]:
    """The text itself; else what stands in a code fence, or between words of courtesy."""
    yield text
    yield from (match[1] for match in _FENCE.finditer(text))
    starts = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    end = max(text.rfind("}"), text.rfind("]"))
    if starts and min(starts) < end:
        yield text[min(starts) : end + 1]


def _path(place: tuple[int | str, ...]) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")


def _complaint(rule: str, message: str, value: Any) -> str:
    if rule == "missing":
        # The value is then the whole object around the gap.
        return message
    try:
        shown = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        shown = repr(value)
    return f"{message}, not {shown if len(shown) <= _VALUE_LIMIT else shown[:_VALUE_LIMIT] + '…'}"
