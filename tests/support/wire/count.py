"""Counting calls: a generation in another envelope, and a number for an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tests.support.wire.seen import Seen, WireRequest


def as_generation(
    request: WireRequest,
    *,
    takes: Collection[str],
    inside: Sequence[str] = (),
    added: Mapping[str, Any] | None = None,
) -> WireRequest:
    """The call as the generation it stands for, so that the same reader reads both.

    Raises ValueError for fields that the counting endpoint does not take.
    """
    body: Any = msgspec.json.decode(request.body)
    for key in inside:
        if body.keys() != {key}:
            raise ValueError(f"only {key} is expected, not {sorted(body)}")
        body = body[key]
    if foreign := body.keys() - set(takes):
        raise ValueError(f"counting takes no {sorted(foreign)}")
    return replace(request, body=msgspec.json.encode({**body, **(added or {})}))


def words_of(seen: Seen) -> int:
    """What upstreams count: the words that a model reads, and a tool as one."""
    texts = [message.text for message in seen.messages]
    return sum(len(text.split()) for text in (*texts, seen.system or "")) + len(seen.tools)
