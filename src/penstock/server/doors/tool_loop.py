"""A request with MCP servers that its provider cannot connect to: their tools are called from here.

The loop is that of the generators. A caller's own functions stand beside the servers' tools: when
the model calls one of them, the answer ends there and the caller goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

import msgspec

from penstock.contract.errors import PenstockError
from penstock.contract.events import Complete, Error, StreamEvent, ToolProgress, ToolUseDelta
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.options import MCPTool
from penstock.contract.ports import Attempt
from penstock.contract.requests import Caller
from penstock.contract.tools import RunnableTool, ToolSource
from penstock.engine.engine import Engine
from penstock.generators.sources import servers, tools_of
from penstock.generators.tool_loop import Ask, ToolLoop, out_of_time
from penstock.server.answer_headers import stream_facts
from penstock.server.exchange import BatchEncoder, Exchange


class Rounds:
    """One answer that may take several rounds."""

    def __init__(
        self,
        engine: Engine,
        request: SamplingRequest,
        sources: tuple[ToolSource, ...],
        caller: Caller | None,
        *,
        tells_calls: bool = True,
    ) -> None:
        """`sources` are the servers that we connect to; the request names the others.

        `tells_calls`: the door has words for the calls that are made here.
        """
        self._engine = engine
        self._request = request
        self._sources = sources
        self._caller = caller
        self._tells_calls = tells_calls
        self._first: tuple[str, Attempt] | None = None

    @property
    def first(self) -> tuple[str, Attempt]:
        """The id and the target of the first round, once a stream has its first event."""
        if self._first is None:
            raise RuntimeError("nothing has been answered yet")
        return self._first

    async def whole(self) -> Result:
        """The whole answer."""
        tool_loop = await self._tool_loop(self._ask)
        async with contextlib.aclosing(tool_loop.run()) as events:
            async for _ in events:
                pass
        return self._result(tool_loop)

    async def stream(self) -> AsyncGenerator[StreamEvent, None]:
        """The answer while it is made; an error before the first event is raised."""
        tool_loop = await self._tool_loop(self._ask_stream)
        theirs = {tool.name for tool in self._request.tools}
        # Calls of this round that are not for the caller to run: ours, and those of no tool at all.
        hidden: set[int] = set()
        # The others are numbered without a gap, as if there were no more.
        numbers: dict[int, int] = {}
        begun = False
        try:
            async with contextlib.aclosing(tool_loop.run()) as events:
                async for event in events:
                    if isinstance(event, ToolProgress):
                        continue
                    if isinstance(event, ToolUseDelta):
                        if event.name in theirs:
                            hidden.discard(event.index)
                        elif event.name:
                            hidden.add(event.index)
                        if event.index in hidden:
                            continue
                        number = numbers.setdefault(event.index, len(numbers))
                        event = msgspec.structs.replace(event, index=number)  # noqa: PLW2901
                    begun = True
                    yield event
        except PenstockError as error:
            if not begun:
                raise
            yield Error(error)
        else:
            yield Complete(self._result(tool_loop))

    async def _tool_loop(self, ask: Ask) -> ToolLoop:
        """Connect to the servers, once the caller may make the request and has money for it."""
        request, started = self._request, time.perf_counter()
        # The tool that is chosen may be one of those that are not known yet.
        known = msgspec.structs.replace(request, tool_choice=None)
        await self._engine.check_admission(known, caller=self._caller)
        tools, missing = await self._tools(started)
        return ToolLoop(
            ask,
            request,
            tools,
            missing=missing,
            takes=lambda part: self._engine.takes(part, request.model),
            theirs=request.tools,
            tells_calls=self._tells_calls,
            started=started,
        )

    async def _tools(self, started: float) -> tuple[list[RunnableTool], tuple[str, ...]]:
        limit = self._request.timeout
        left = None if limit is None else limit - (time.perf_counter() - started)
        clock = asyncio.timeout(left)
        try:
            async with clock:
                return await tools_of(self._sources)
        except TimeoutError as error:
            if limit is None or not clock.expired():
                raise
            raise out_of_time(limit) from error

    def _result(self, tool_loop: ToolLoop) -> Result:
        result = tool_loop.result
        metadata = result.metadata
        if self._first is not None:
            metadata = msgspec.structs.replace(metadata, request_id=self._first[0])
        return msgspec.structs.replace(result, content=tool_loop.said, metadata=metadata)

    async def _ask(self, request: SamplingRequest) -> AsyncGenerator[StreamEvent, None]:
        yield Complete(await self._engine.create_message(request, caller=self._caller))

    async def _ask_stream(self, request: SamplingRequest) -> AsyncGenerator[StreamEvent, None]:
        async with await self._engine.create_message_stream(request, caller=self._caller) as handle:
            if self._first is None:
                self._first = (handle.request_id, handle.attempt)
            async for event in handle:
                yield event


def rounds_of(
    engine: Engine, request: SamplingRequest, caller: Caller | None, *, tells_calls: bool = True
) -> Rounds | None:
    """The rounds of this request, or None if its provider connects to all of its servers.

    `tells_calls`: the door has words for the calls that are made here. Raises InvalidRequest for a
    server that nobody may connect to.
    """
    if not request.mcp_tools:
        return None

    def natively(tool: MCPTool) -> bool:
        return engine.connects_natively(tool, request.model)

    def source(tool: MCPTool) -> ToolSource:
        return engine.tool_source(tool, owner=None if caller is None else caller.key)

    native, sources = servers(request.mcp_tools, natively=natively, source=source)
    if not sources:
        return None
    request = msgspec.structs.replace(request, mcp_tools=native)
    return Rounds(engine, request, sources, caller, tells_calls=tells_calls)


async def follow(
    exchange: Exchange, rounds: Rounds, encoder_of: Callable[[str, str], BatchEncoder]
) -> None:
    """Send a stream of several rounds; tools take so long that nothing is gained by batches.

    `encoder_of` makes the door's encoder from the id and the model of the first round.
    """
    encoder: BatchEncoder | None = None
    async with contextlib.aclosing(rounds.stream()) as events:
        async for event in events:
            if encoder is None:
                request_id, attempt = rounds.first
                encoder = encoder_of(request_id, attempt.target.model)
                await exchange.begin_stream(stream_facts(request_id, attempt))
            data = encoder.encode([event])
            if encoder.ended:
                await exchange.end(data, last=event)
            elif data:
                await exchange.write(data)
