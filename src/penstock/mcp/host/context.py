"""Resources of MCP servers for `includeContext`, within limits; what cannot be read is left out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from html import escape
from typing import Protocol

import msgspec
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, PaginatedRequestParams, TextResourceContents

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Text, user

_HEAD = "Resources of MCP servers, added by the host because the server asked for context:"
_logger = logging.getLogger(__name__)


class Peer(Protocol):
    """A client that is connected to a server: the official one, or fastmcp's."""

    @property
    def session(self) -> ClientSession:
        """Its session; raises RuntimeError while it is not connected."""
        ...


class ContextLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is attached to one request."""

    resources: int = 20
    """Of each server."""
    characters: int = 100_000
    """Of all servers together, shared out evenly."""
    timeout_s: float = 5.0
    """For each server, all of which are asked at once."""


class Resource(msgspec.Struct, frozen=True):
    """The text of one resource."""

    server: str
    uri: str
    text: str

    def told(self) -> str:
        """The resource as a model reads it."""
        place = f'server="{escape(self.server)}" uri="{escape(self.uri)}"'
        return f"<resource {place}>\n{self.text}\n</resource>"


async def gather(
    sessions: Sequence[tuple[str, ClientSession]], limits: ContextLimits
) -> list[Resource]:
    """What these servers have to read, each within its share of the limits."""
    share = limits.characters // max(1, len(sessions))
    found = await asyncio.gather(
        *(_within(name, session, limits, share) for name, session in sessions)
    )
    return [resource for several in found for resource in several]


def with_context(request: SamplingRequest, resources: Sequence[Resource]) -> SamplingRequest:
    """The request with these in front of it, as a user's turn: they are data, and no orders."""
    if not resources:
        return request
    texts = "\n\n".join((_HEAD, *(each.told() for each in resources)))
    return msgspec.structs.replace(request, messages=(user(Text(texts)), *request.messages))


async def _within(
    name: str, session: ClientSession, limits: ContextLimits, characters: int
) -> list[Resource]:
    found: list[Resource] = []
    left = characters
    clock = asyncio.timeout(limits.timeout_s)
    try:
        async with clock, aclosing(_texts(session, limits.resources)) as texts:
            async for uri, text in texts:
                found.append(Resource(name, uri, text[:left]))
                left -= len(text)
                if left <= 0:
                    break
    except TimeoutError:
        if not clock.expired():
            raise
        # It may answer nothing while it waits for us; what it has given so far is used.
        _logger.warning("the MCP server %r gave no more resources in time", name)
    except Exception as error:  # noqa: BLE001 - no server may stop the request of another
        if not (isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND):
            kind = type(error).__name__
            _logger.warning("the resources of the MCP server %r cannot be read: %s", name, kind)
    return found


async def _texts(session: ClientSession, most: int) -> AsyncGenerator[tuple[str, str]]:
    uris: list[str] = []
    cursor: str | None = None
    while len(uris) < most:
        params = PaginatedRequestParams(cursor=cursor) if cursor else None
        page = await session.list_resources(params=params)
        uris += [str(resource.uri) for resource in page.resources]
        cursor = page.next_cursor
        if not cursor or not page.resources:
            break
    for uri in uris[:most]:
        read = await session.read_resource(uri)
        for content in read.contents:
            if isinstance(content, TextResourceContents):
                yield str(content.uri), content.text
