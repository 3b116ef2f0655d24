"""The extension that lets any `MCPServer` stream the answers of its tools."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent

from penstock.mcp.streaming.call import CallStream, current_call
from penstock.mcp.streaming.methods import Elsewhere, Owner, StreamMethods
from penstock.mcp.streaming.returned import recording
from penstock.mcp.streaming.streams import Status, Stream, Streams, cancellable
from penstock.mcp.streaming.wire import EXTENSION, STREAM_KEY, AnyRequest, asked
from penstock.mcp.tasks.owners import default_owner


class StreamingTools(Extension):
    """Sends what tools give as chunks, to clients that ask for it.

    ```python
    server = MCPServer("stories", extensions=[StreamingTools()])


    @server.tool()
    @streamed
    async def tell(topic: str) -> AsyncIterator[str]: ...
    ```

    A tool with `@streamed` sends its chunks while it runs. Any other tool's answer is cut up when
    it is there: a chunk for each item of a list, or one chunk. A client that asks for nothing gets
    the whole answer, and so does one that asked, at the end.
    """

    identifier = EXTENSION

    def __init__(self, *, owner: Owner = default_owner, elsewhere: Elsewhere | None = None) -> None:
        """`owner` names whose stream a call is, and so who may watch and cancel it.

        By default that is who was authorised, else the session, as for tasks; else the id of a
        stream is the only way to it. `elsewhere` asks the other processes of a server for streams
        that this one does not know.
        """
        self.streams = Streams()
        """All streams of this server, by id."""
        self._owner = owner
        self._methods = StreamMethods(self.streams, owner, elsewhere)

    def methods(self) -> Sequence[MethodBinding]:
        """The requests about streams."""
        return self._methods.bindings()

    async def answer(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """Answer another process of this server, which asks by its `elsewhere`."""
        return await self._methods.answer(order)

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: AnyRequest, call_next: CallNext
    ) -> HandlerResult:
        """Run the call; its chunks go out while it runs, and the stream ends with its result."""
        ask = asked(ctx)
        if ask is None:
            with recording():
                return await call_next(ctx)
        request = dataclasses.replace(ctx)
        call = CallStream(request, ask)
        call.follow(request)
        call.kept = kept = Stream(call.id, params.name, self._owner(ctx), call.token)
        self.streams.add(kept, call)
        status: Status = "failed"
        try:
            await call.open({"streaming": True})
            result = await self._answer(params, request, call, kept, call_next)
            if not isinstance(result, CallToolResult):
                if isinstance(result, InputRequiredResult):
                    self.streams.forget(kept)
                # Else a task, which sends its chunks later and ends the stream with its tool.
                kept.detached = True
                status = "running"
                return result
            status = _status_of(result, kept)
            return _signed(result, call)
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        finally:
            if status != "running":
                call.close()
                self.streams.end(kept, status)

    async def _answer(
        self,
        params: CallToolRequestParams,
        request: AnyRequest,
        call: CallStream,
        kept: Stream,
        call_next: CallNext,
    ) -> HandlerResult:
        """The result, after its chunks; an error's when the stream is cancelled by its id."""
        before = current_call.set(call)
        try:
            with cancellable(kept), recording() as returned:
                result = await call_next(request)
                if isinstance(result, CallToolResult) and not (call.claimed or result.is_error):
                    chunks = returned.chunks(result, params.name)
                    for chunk in chunks:
                        await call.send(chunk, len(chunks))
                return result
        except ToolError as error:
            return CallToolResult(
                content=[TextContent(type="text", text=str(error))], is_error=True
            )
        finally:
            current_call.reset(before)

    async def announce(self, ctx: AnyRequest, call_next: CallNext) -> HandlerResult:
        """Middleware that tells legacy clients of the extension, as `experimental`.

        The handshake has no place for extensions:
        `MCPServer(..., extensions=[streaming], middleware=[streaming.announce])`.
        """
        result = await call_next(ctx)
        if ctx.method != "initialize" or not isinstance(result, dict):
            return result
        capabilities = cast("dict[str, Any]", result.get("capabilities") or {})
        others = cast("dict[str, Any]", capabilities.get("experimental") or {})
        experimental = {**others, EXTENSION: self.settings()}
        return {**result, "capabilities": {**capabilities, "experimental": experimental}}


def _status_of(result: CallToolResult, kept: Stream) -> Status:
    if not result.is_error:
        return "completed"
    return "cancelled" if kept.cancelled else "failed"


def _signed(result: CallToolResult, stream: CallStream) -> CallToolResult:
    """The result with the number of its chunks, so that a client knows when it has them all."""
    about: dict[str, Any] = {"streamId": stream.id, "total_chunks": stream.sent}
    if stream.token is not None:
        about["progressToken"] = stream.token
    return result.model_copy(update={"meta": {**(result.meta or {}), STREAM_KEY: about}})
