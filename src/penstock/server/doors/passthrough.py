"""Fields that a door has no name for: they go to targets of its own dialect, and come back.

A request's are those at the top of the body that are no part of the door's shape. A target of the
same dialect gets them as they are. Any other refuses them by name, unless the answer is the same
without them: then they are left out. An answer's are those that the provider has put at the top of
a whole one, and for Chat Completions into its choice and that one's message. Streams bring none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import Result
from penstock.contract.messages import JSONObject
from penstock.contract.options import Extra
from penstock.server.errors import unsupported

Body = TypeVar("Body", bound=msgspec.Struct)

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class OwnFields(Generic[Body]):
    """Reads the bodies of one door, and keeps what is not in their shape."""

    def __init__(
        self,
        shape: type[Body],
        strict: type[Body],
        dialect: str,
        *,
        hints: Collection[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """`strict` is the same shape without room for other fields.

        The answer is the same without a field that is one of `hints`, is null, or holds its
        default.
        """
        self._strict = msgspec.json.Decoder(strict).decode
        self._lenient = msgspec.json.Decoder(shape).decode
        self._known = frozenset(shape.__struct_fields__)
        self._nothing = Extra(dialect)
        self._hints = hints
        self._defaults = defaults or {}

    def read(self, data: bytes) -> tuple[Body, Extra]:
        """The typed body and the rest; raises InvalidRequest naming the field that does not fit."""
        try:
            # Most bodies hold nothing else, and are read but once.
            return self._strict(data), self._nothing
        except (ValueError, RecursionError):
            body = read_json(data, self._lenient)
        fields: JSONObject = read_json(data, self._others)
        optional = frozenset(filter(lambda name: self._is_optional(name, fields[name]), fields))
        return body, Extra(self._nothing.dialect, fields, optional)

    def _others(self, data: bytes) -> JSONObject:
        # What is known may be large, and was read already.
        return {
            name: msgspec.json.decode(raw)
            for name, raw in _read_fields(data).items()
            if name not in self._known
        }

    def _is_optional(self, name: str, value: object) -> bool:
        if value is None or name in self._hints:
            return True
        return name in self._defaults and value == self._defaults[name]


def refuse(body: msgspec.Struct, names: Mapping[str, Any], remedies: Mapping[str, str]) -> None:
    """Raise HttpProblem for the first of these fields that asks for more than its default."""
    for name, default in names.items():
        value = getattr(body, name)
        if value is not None and value != default:
            remedy = remedies.get(name, "leave it out")
            raise unsupported(name, f"`{name}` cannot be honoured here; {remedy}")


def read_json(data: bytes, decoder: Callable[[bytes], Any]) -> Any:
    """The typed body; raises InvalidRequest naming the field that does not fit."""
    try:
        return decoder(data)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        path = place.strip("`").removeprefix("$").removeprefix(".")
        raise InvalidRequest.of([Problem(path, message[:1].lower() + message[1:])]) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest.of([Problem("", f"the body is not JSON: {error}")]) from error


def extra_of(result: Result, dialect: str) -> JSONObject:
    """What the answer said beyond the result, if it was said in this dialect."""
    extra = result.extra
    return {} if extra is None or extra.dialect != dialect else extra.fields


def filled(own: JSONObject, further: Mapping[str, Any]) -> JSONObject:
    """The door's own object with what it leaves out, or has nothing for."""
    return {**own, **{name: value for name, value in further.items() if own.get(name) is None}}


def appended(document: bytes, further: Mapping[str, Any], own: Collection[str]) -> bytes:
    """The JSON object with those of the fields that it does not have itself."""
    added = {name: value for name, value in further.items() if name not in own}
    return document[:-1] + b"," + _encode(added)[1:] if added else document
