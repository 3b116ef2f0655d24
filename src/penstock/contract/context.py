"""What `includeContext` asks for, and who gives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Text, user

CONTEXT_TIMEOUT_S = 30.0


class ContextQuery(msgspec.Struct, frozen=True):
    """A request that asks for context."""

    scope: Literal["thisServer", "allServers"]
    request: SamplingRequest
    key: str | None = None
    """The name of the caller's key, at a gateway."""


class ContextResource(msgspec.Struct, frozen=True):
    """One text to attach, and where it comes from."""

    text: str
    uri: str = ""
    server: str = ""

    def told(self) -> str:
        """The resource as a model reads it."""
        place = f'server="{escape(self.server)}" uri="{escape(self.uri)}"'
        return f"<resource {place}>\n{self.text}\n</resource>"


ContextProvider: TypeAlias = Callable[[ContextQuery], Awaitable[Sequence[ContextResource | str]]]
"""Gives what is attached to a request; an error ends the request."""


def with_context(
    request: SamplingRequest, resources: Sequence[ContextResource], head: str
) -> SamplingRequest:
    """The request with these in front of it, as a user's turn: they are data, and no orders."""
    if not resources:
        return request
    texts = "\n\n".join((head, *(each.told() for each in resources)))
    return msgspec.structs.replace(request, messages=(user(Text(texts)), *request.messages))
