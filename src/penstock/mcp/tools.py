"""The tools of an MCP server, for the tool loop of the generators.

```python
async with ToolAdapter(MCPTool(url="https://example.com/mcp", name="docs")) as docs:
    text, metadata = await engine.string_generator("...", mcp_tools=[docs]).generate()
```
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from types import TracebackType
from typing import TypeVar

import mcp_types
import pydantic
from mcp import Client, StdioServerParameters
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from penstock._version import __version__
from penstock.contract.checks.lengths import PROBLEM, cut
from penstock.contract.context import ContextResource
from penstock.contract.errors import ToolFailed
from penstock.contract.messages import JSONObject, ToolResult
from penstock.contract.options import MCPTool, ToolDefinition
from penstock.contract.tools import Report
from penstock.mcp.connection import Connection, ServerLost
from penstock.mcp.connection_limit import ConnectionLimit
from penstock.mcp.host.context import ContextLimits, read_resources
from penstock.mcp.host.options import ClientOptions
from penstock.mcp.http import over_http
from penstock.mcp.results import result_of

T = TypeVar("T")
LIST_TTL_S = 60.0
"""How long a list of tools is good when the server says nothing about it."""
MOST_PAGES = 100
MOST_TOOLS = 4096
"""Most tools of one server; every one is sent with each request of a tool loop."""
MOST_LISTED_BYTES = 16 * 2**20
"""The largest list of one server's tools, as JSON."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
"""Before a server that no longer tells of changes is asked to do so again."""
_logger = logging.getLogger(__name__)


class ToolAdapter:
    """Connects to one MCP server, lists its tools and calls them.

    `async with` connects on entry and raises ToolFailed there; otherwise the first use connects. It
    connects again when the server was restarted. The list is kept as long as the server says, and
    fetched again when the server reports a change.
    """

    def __init__(
        self,
        server: MCPTool | StdioServerParameters,
        *,
        name: str = "",
        allowed_tools: Sequence[str] | None = None,
        timeout: float = 30.0,
        idle: float = 300.0,
        era: str = "auto",
        sampling: ClientOptions | None = None,
        connections: ConnectionLimit | None = None,
        owner: str | None = None,
    ) -> None:
        """A server by its address, or by the command that starts it; then give it a `name`.

        `timeout` limits connecting, and listing the tools, in seconds; a connection that was not
        used for `idle` seconds is closed. `era` is "auto", "legacy" or a protocol version: "auto"
        finds out. `sampling` are the `options` of a callback, for a server that asks for answers
        itself; without them it is told that nobody gives any. The open connection counts towards
        the limit of `connections`, as one of the `owner`.
        """
        self._server = server
        if isinstance(server, StdioServerParameters):
            # Bytes that are no text would end the reading, and no answer would come any more.
            self._server = server.model_copy(update={"encoding_error_handler": "replace"})
        if isinstance(server, MCPTool):
            name = name or server.name
            allowed_tools = server.allowed_tools if allowed_tools is None else allowed_tools
        self.name = name or "mcp"
        self._allowed = None if allowed_tools is None else frozenset(allowed_tools)
        self._timeout = timeout
        self._era = era
        self._sampling = sampling
        self._connection = Connection(
            self._client,
            timeout_s=timeout,
            idle_s=idle,
            watch=self._watch,
            limit=connections,
            owner=owner,
        )
        self._listed: tuple[ServerTool, ...] = ()
        self._good_until = 0.0
        self._changes = 0
        self._listing = asyncio.Lock()

    async def tools(self) -> tuple[ServerTool, ...]:
        """The tools on offer, as far as they are allowed; raises ToolFailed."""
        if time.monotonic() >= self._good_until:
            async with self._listing:
                # Others who waited here find what the first one has fetched.
                if time.monotonic() >= self._good_until:
                    return await self._failing(self._list())
        return self._listed

    async def call(
        self, name: str, arguments: JSONObject, report: Report | None = None
    ) -> ToolResult:
        """What the tool answers; raises ToolFailed when there is no answer.

        A tool that fails answers with `is_error`, and is not an exception. A call that was under
        way when the server went away is not repeated, for it may have had effects.
        """

        async def noted(progress: float, total: float | None, message: str | None) -> None:
            if report is not None:
                report(progress, total, message)

        async def call(client: Client) -> mcp_types.CallToolResult:
            return await client.call_tool(name, arguments, progress_callback=noted)

        return result_of(await self._failing(self._connection.run(call)))

    async def resources(
        self, most: int, characters: int, timeout_s: float
    ) -> list[ContextResource]:
        """The texts of at most so many resources; raises ToolFailed when they cannot be read."""
        limits = ContextLimits(resources=most, characters=characters, timeout_s=timeout_s)

        async def read(client: Client) -> list[ContextResource]:
            if client.server_capabilities.resources is None:
                return []
            return await read_resources(self.name, client.session, limits)

        try:
            return await self._failing(self._connection.run(read, repeatable=True))
        except TimeoutError as error:
            raise ToolFailed(
                f"the MCP server {self.name!r} gives no resources within {timeout_s:g} s"
            ) from error

    async def aclose(self) -> None:
        """End the connection, and the server where we started it; it opens again when needed."""
        self._good_until = 0.0
        await self._connection.aclose()

    async def __aenter__(self) -> ToolAdapter:
        """Connect and list, so that a server that is not there is noticed here."""
        await self.tools()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the connection."""
        await self.aclose()

    async def _failing(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ServerLost as error:
            raise ToolFailed(
                f"the MCP server {self.name!r} cannot be reached: {cut(str(error), PROBLEM)}"
            ) from error
        except MCPError as error:
            raise ToolFailed(
                f"the MCP server {self.name!r} refuses: {cut(str(error), PROBLEM)}"
            ) from error
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ToolFailed(
                f"the MCP server {self.name!r} breaks the protocol in {place}: {first['msg']}"
            ) from error

    def _client(self) -> Client:
        server = self._server
        sampling = self._sampling
        return Client(
            over_http(server) if isinstance(server, MCPTool) else server,
            mode=self._era,
            client_info=mcp_types.Implementation(name="penstock", version=__version__),
            message_handler=self._notice,
            cache=None,
            # Without a callback the client declares no sampling at all.
            sampling_callback=None if sampling is None else sampling["sampling_callback"],
            sampling_capabilities=None if sampling is None else sampling["sampling_capabilities"],
        )

    async def _list(self) -> tuple[ServerTool, ...]:
        changes, fresh_until, found = await self._connection.run(self._fetch, repeatable=True)
        listed = tuple(
            ServerTool(self, tool)
            for tool in found
            if self._allowed is None or tool.name in self._allowed
        )[:MOST_TOOLS]
        if changes == self._changes:
            self._listed, self._good_until = listed, fresh_until
        return listed

    async def _fetch(self, client: Client) -> tuple[int, float, list[mcp_types.Tool]]:
        """As of which change, until when it is good, and the tools."""
        started, changes = time.monotonic(), self._changes
        found: dict[str, mcp_types.Tool] = {}
        size = 0
        hints: list[float] = []
        try:
            async with asyncio.timeout(self._timeout):
                async for page in self._pages(client):
                    for tool in page.tools:
                        found.setdefault(tool.name, tool)
                        size += len(tool.model_dump_json())
                    if len(found) > MOST_TOOLS or size > MOST_LISTED_BYTES:
                        raise ToolFailed(
                            f"the MCP server {self.name!r} lists more than {MOST_TOOLS} tools, or "
                            f"more than {MOST_LISTED_BYTES:,} bytes of them"
                        )
                    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        hints.append(page.ttl_ms / 1000)
        except TimeoutError as error:
            raise ToolFailed(
                f"the MCP server {self.name!r} lists no tools within {self._timeout:g} s"
            ) from error
        return changes, started + min(hints, default=LIST_TTL_S), list(found.values())

    async def _pages(self, client: Client) -> AsyncGenerator[mcp_types.ListToolsResult, None]:
        cursor: str | None = None
        listed = 0
        for _ in range(MOST_PAGES):
            page = await client.session.list_tools(
                params=mcp_types.PaginatedRequestParams(cursor=cursor)
            )
            yield page
            listed += len(page.tools)
            if not page.next_cursor or page.next_cursor == cursor:
                return
            if listed >= MOST_TOOLS:
                break
            cursor = page.next_cursor
        _logger.warning(
            "%r has more tools than are read: %d, on at most %d pages",
            self.name,
            MOST_TOOLS,
            MOST_PAGES,
        )

    async def _notice(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._note_change()

    def _note_change(self) -> None:
        """What is known is old, and so is what is being fetched."""
        self._changes += 1
        self._good_until = 0.0

    async def _watch(self, client: Client) -> None:
        """Keep the list up to date while the connection lives, and no longer."""
        self._note_change()  # for this may be another server than before
        try:
            await self._listen(client)
            await asyncio.get_running_loop().create_future()
        finally:
            self._note_change()  # for nobody will hear of the next one
            self._listed = ()

    async def _listen(self, client: Client) -> None:
        """Listen for changes where a server tells of them only to those who ask."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return  # It tells everybody; `_notice` hears it.
        clock = asyncio.get_running_loop().time
        pause_s = _SHORTEST_PAUSE_S
        while True:
            began = clock()
            with contextlib.suppress(SubscriptionLost, MCPError, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    # What was listed before may be another server's, or has changed meanwhile.
                    self._note_change()
                    async for _ in changes:
                        self._note_change()
            if clock() - began > pause_s:
                pause_s = _SHORTEST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class ServerTool:
    """One tool of a server, as the tool loop runs it."""

    timeout: float | None = None

    def __init__(self, adapter: ToolAdapter, tool: mcp_types.Tool) -> None:
        """Takes over what the server says of it."""
        self._adapter = adapter
        self.server = adapter.name
        self.definition = ToolDefinition(
            tool.name, tool.description or tool.title or "", tool.input_schema
        )

    def __repr__(self) -> str:
        """Where it is and what it is called there."""
        return f"ServerTool({self.server!r}, {self.definition.name!r})"

    async def run(self, arguments: JSONObject, report: Report) -> ToolResult:
        """What the tool answers; raises ToolFailed when there is no answer."""
        return await self._adapter.call(self.definition.name, arguments, report)
