"""Resources of MCP servers for `includeContext`, within limits; what cannot be read is left out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, PaginatedRequestParams, TextResourceContents

from penstock.contract.context import ContextResource

HEAD = "Resources of MCP servers, added by the host because the server asked for context:"
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


async def gather(
    sessions: Sequence[tuple[str, ClientSession]], limits: ContextLimits
) -> list[ContextResource]:
    """What these servers have to read, each within its share of the limits."""
    share = limits.characters // max(1, len(sessions))
    found = await asyncio.gather(
        *(_within(name, session, limits, share) for name, session in sessions)
    )
    return [resource for several in found for resource in several]


async def read_resources(
    name: str, session: ClientSession, limits: ContextLimits
) -> list[ContextResource]:
    """What one server has to read; raises TimeoutError, or what the session raises."""
    found: list[ContextResource] = []
    async with asyncio.timeout(limits.timeout_s):
        await _read(found, name, session, limits, limits.characters)
    return found


async def _read(
    found: list[ContextResource],
    name: str,
    session: ClientSession,
    limits: ContextLimits,
    characters: int,
) -> None:
    left = characters
    async with aclosing(_texts(session, limits.resources)) as texts:
        async for uri, text in texts:
            found.append(ContextResource(text[:left], uri, name))
            left -= len(text)
            if left <= 0:
                break


async def _within(
    name: str, session: ClientSession, limits: ContextLimits, characters: int
) -> list[ContextResource]:
    found: list[ContextResource] = []
    clock = asyncio.timeout(limits.timeout_s)
    try:
        async with clock:
            await _read(found, name, session, limits, characters)
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
