"""Typed endpoints: what a caller may send is a type, and so is what it gets.

The same types read the request, refuse what does not fit, and make the OpenAPI document: so the
document cannot say anything else than what is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.engine.engine import Engine
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import Exchange
from penstock.server.near_paths import filled, suggestion

P = TypeVar("P", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B", bound=msgspec.Struct)
S = TypeVar("S", bound=msgspec.Struct)

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
"""What a table of endpoints answers itself, so that a 405 names what the path takes."""
_MOST_PARAMETERS = 50
_LONGEST_SHOWN = 80
_LARGEST_WHOLE = 2**53


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters, or no body."""


@dataclass(frozen=True, slots=True)
class Call(Generic[P, Q, B]):
    """One call of an endpoint, read and checked."""

    path: P
    query: Q
    body: B
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[P, Q, B]):
    """One method of one path; `{name}` in the path is a field of its type `path`."""

    method: str
    template: str
    run: Callable[[Engine, Call[P, Q, B]], Awaitable[object]]
    path: type[P]
    query: type[Q]
    body: type[B]
    answer: type[msgspec.Struct] | None
    """None: there is nothing to say but yes, with 204; or the handler answers by itself."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """The statuses of failures that only this endpoint has."""
    media_type: str = "application/json"

    @property
    def segments(self) -> tuple[str, ...]:
        """The pieces of the path between its slashes."""
        return tuple(self.template.strip("/").split("/"))


AnyEndpoint = Endpoint[Any, Any, Any]


class EndpointTable:
    """All endpoints below one path; a handler for the application's routes."""

    def __init__(self, endpoints: Iterable[AnyEndpoint]) -> None:
        """Each is found by the pieces of its path."""
        self.endpoints = tuple(endpoints)
        self._readers = {
            kind: TextReader(kind) for each in self.endpoints for kind in (each.path, each.query)
        }

    async def __call__(self, engine: Engine, exchange: Exchange) -> None:
        """Read the call, run it, and answer."""
        endpoint, named = self._find(exchange)
        path = self._readers[endpoint.path].read(named.items())
        query = self._readers[endpoint.query].read(_query(exchange.query))
        body = await read_body(exchange, endpoint.body)
        answer = await endpoint.run(engine, Call(path, query, body, exchange))
        if exchange.ended:
            return
        if answer is None:
            await exchange.reply_nothing()
        else:
            await exchange.reply(msgspec.json.encode(answer), status=endpoint.status)

    def _find(self, exchange: Exchange) -> tuple[AnyEndpoint, Mapping[str, str]]:
        method = "GET" if exchange.method == "HEAD" else exchange.method
        segments = _segments(exchange.raw_path)
        fitting = [
            (each, named)
            for each in self.endpoints
            if (named := _fits(each.segments, segments)) is not None
        ]
        for each, named in fitting:
            if each.method == method:
                return each, named
        where = ascii(exchange.path[:_LONGEST_SHOWN]).strip("'")
        if not fitting:
            near = suggestion(where, filled((each.segments for each in self.endpoints), segments))
            message = f"there is nothing at {where}{near}"
            raise HttpProblem(Failure(404, message, code="not_found"))
        takes = {each.method for each, _ in fitting}
        allow = ", ".join(sorted(takes | ({"HEAD"} if "GET" in takes else set())))
        raise HttpProblem(
            Failure(
                405,
                f"{where} takes {allow}, not {exchange.method}",
                code="method_not_allowed",
                headers=((b"allow", allow.encode()),),
            )
        )


def _fits(template: Sequence[str], segments: Sequence[str]) -> Mapping[str, str] | None:
    if len(template) != len(segments):
        return None
    named: dict[str, str] = {}
    for expected, given in zip(template, segments, strict=True):
        if expected.startswith("{"):
            named[expected[1:-1]] = given
        elif expected != given:
            return None
    return named


def _segments(raw: bytes) -> Sequence[str]:
    try:
        return [unquote_to_bytes(each).decode() for each in raw.removeprefix(b"/").split(b"/")]
    except UnicodeDecodeError:
        raise _wrong(
            "path", "it is not UTF-8 when its %-signs are read; write names in UTF-8"
        ) from None


def _query(raw: bytes) -> Sequence[tuple[str, str]]:
    try:
        return parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except UnicodeError:
        raise _wrong(
            "query", "it is not UTF-8 when its %-signs are read; write it in UTF-8"
        ) from None
    except ValueError:
        raise _wrong("query", f"it has more than {_MOST_PARAMETERS} parameters") from None


async def read_body(exchange: Exchange, kind: type[S]) -> S:
    """The body as this type; raises InvalidRequest with the field, the value and the remedy.

    A type whose fields may all be left out takes an empty body for all of them.
    """
    return kind() if kind is Nothing else await exchange.decoded(partial(decode_body, kind))


def decode_body(kind: type[S], data: bytes) -> S:
    """These bytes as this type; raises InvalidRequest as `read_body` does."""
    if not data and not any(each.required for each in msgspec.structs.fields(kind)):
        return kind()
    if not data:
        raise _wrong("body", "it is empty; send a JSON object")
    try:
        document = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise _wrong("body", f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _wrong("body", f"{_shown(document)} is not an object; send a JSON object")
    given = cast(dict[str, Any], document)
    fields = [each.encode_name for each in msgspec.structs.fields(kind)]
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise InvalidRequest.of(_unknown(name, "field", fields) for name in unknown)
    try:
        return msgspec.convert(_whole(given), kind)
    except RecursionError:
        raise _wrong("body", "it is nested too deeply") from None
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at ")
        path = place.strip("`").removeprefix("$").removeprefix(".")
        value = _at(given, path) if path else msgspec.UNSET
        but = "" if value is msgspec.UNSET else f"{_shown(value)} does not fit: "
        raise _wrong(path or "body", but + said[:1].lower() + said[1:]) from None


class TextReader(Generic[S]):
    """Reads a type whose fields come as texts: the parameters of a query, or names in a path."""

    def __init__(self, kind: type[S]) -> None:
        """Numbers and truth values are written as in JSON, and everything else as it is."""
        self._kind = kind
        self._fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        self._plain = {
            name: _is_text(msgspec.inspect.type_info(each.type))
            for name, each in self._fields.items()
        }

    def read(self, given: Iterable[tuple[str, str]]) -> S:
        """The values; raises InvalidRequest with every name at fault, its value and the remedy."""
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        for name, text in given:
            if name not in self._fields:
                problems.append(_unknown(name, "parameter", self._fields))
            elif name in values:
                problems.append(Problem(name, "it is given twice; give it once"))
            else:
                try:
                    values[name] = self._value(name, text)
                except ValueError:
                    values[name] = None
                    said = f"{_shown(text)} does not fit; give {remedy(self._fields[name].type)}"
                    problems.append(Problem(name, said))
        problems += [
            Problem(name, f"it is missing; give {remedy(each.type)}")
            for name, each in self._fields.items()
            if each.required and name not in values
        ]
        if problems:
            raise InvalidRequest.of(problems)
        return self._kind(**values)

    def _value(self, name: str, text: str) -> object:
        kind = self._fields[name].type
        if self._plain[name]:
            return msgspec.convert(text, kind)
        if text != text.strip():
            raise ValueError(text)
        return msgspec.convert(_whole(msgspec.json.decode(text)), kind)


def remedy(kind: Any) -> str:
    """What to write for a value of this type."""
    schema = msgspec.json.schema(kind)
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "boolean":
        return "true or false"
    if schema.get("type") in ("integer", "number"):
        word = "a whole number" if schema["type"] == "integer" else "a number"
        return f"{word} from {schema.get('minimum', '-')} to {schema.get('maximum', '-')}"
    longest = schema.get("maxLength")
    limit = f" of at most {longest} characters" if longest else ""
    pattern = f" like {schema['pattern']}" if "pattern" in schema else ""
    return f"a text{limit}{pattern}"


def _is_text(info: msgspec.inspect.Type) -> bool:
    if isinstance(info, msgspec.inspect.Metadata):
        return _is_text(info.type)
    if isinstance(info, msgspec.inspect.UnionType):
        return any(map(_is_text, info.types))
    return isinstance(info, msgspec.inspect.StrType | msgspec.inspect.LiteralType)


def _unknown(name: str, what: str, known: Iterable[str]) -> Problem:
    there = ", ".join(known)
    said = f"there are: {there}" if there else "there are none"
    return Problem(name[:_LONGEST_SHOWN], f"there is no such {what}; {said}")


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])


def _at(document: Any, path: str) -> Any:
    """The value at a path such as `budget.period` or `models[2]`; UNSET when there is none."""
    for piece in path.replace("[", ".[").split("."):
        if piece.startswith("[") and isinstance(document, list):
            number = piece.strip("[]")
            items = cast(list[Any], document)
            document = (
                items[int(number)]
                if number.isdigit() and int(number) < len(items)
                else msgspec.UNSET
            )
        elif piece:
            table = cast(dict[str, Any], document) if isinstance(document, dict) else {}
            document = table.get(piece, msgspec.UNSET)
    return document


def _whole(value: Any) -> Any:
    """The same with `5.0` as 5, which to JSON Schema is a whole number too."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _LARGEST_WHOLE else value
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_whole(each) for each in cast(list[Any], value)]
    return value


def _shown(value: object) -> str:
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
