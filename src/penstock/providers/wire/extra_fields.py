"""Fields of a dialect that Penstock has no name for: out as they are, and in as they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject

_decode = msgspec.json.Decoder().decode


def add_extra(
    body: JSONObject, request: SamplingRequest, dialect: str, own: Collection[str]
) -> None:
    """Put the caller's fields of this dialect beside what is in the body already.

    `own` are the fields that Penstock writes when there is something to write, or that would make
    another answer than it can read. Raises InvalidRequest for a field that is one of them, or that
    the body has: of an optional one, the body's stays.
    """
    place_fields(body, request)
    extra = request.extra
    if extra is None or not extra.fields or extra.dialect != dialect:
        return
    taken = [name for name in extra.fields if name in own or name in body]
    if wrong := [name for name in taken if name not in extra.optional]:
        raise InvalidRequest.of(
            [Problem(f"extra.fields.{name}", "Penstock writes it itself") for name in wrong]
        )
    for name, value in extra.fields.items():
        if name not in taken:
            body[name] = value


def place_fields(body: JSONObject, request: SamplingRequest) -> None:
    """Put the caller's options that have a place in this body there; what is there stays."""
    if request.extra is None:
        return
    for path, value in request.extra.placed.items():
        *parents, name = path.split(".")
        table = body
        for parent in parents:
            table = table.setdefault(parent, {})
        table.setdefault(name, value)


def other_fields(data: bytes, known: Collection[str]) -> JSONObject:
    """The fields of an object that are not known, as they are; none of what is no object."""
    return beyond(read_object(data), known)


def read_object(data: bytes) -> object:
    """The JSON value, or None if it is none."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        return None


def beyond(value: object, known: Collection[str]) -> JSONObject:
    """What an object holds that is not known."""
    if not isinstance(value, dict):
        return {}
    found = cast(JSONObject, value)
    return {name: each for name, each in found.items() if name not in known}
