"""The extension that lets any `MCPServer` stream the answers of its tools."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolRequestParams, CallToolResult, TextContent

from penstock.mcp.streaming.call import CallStream, current_call
from penstock.mcp.streaming.returned import recording
from penstock.mcp.streaming.wire import EXTENSION, STREAM_KEY, AnyRequest, asked


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

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: AnyRequest, call_next: CallNext
    ) -> HandlerResult:
        """Run the call; its chunks go out while it runs, and the stream ends with its result."""
        ask = asked(ctx)
        if ask is None:
            with recording():
                return await call_next(ctx)
        request = dataclasses.replace(ctx)
        stream = CallStream(request, ask)
        stream.follow(request)
        before = current_call.set(stream)
        try:
            with recording() as returned:
                result = await call_next(request)
        except BaseException:
            stream.close()
            raise
        finally:
            current_call.reset(before)
        if not isinstance(result, CallToolResult):
            # Not the answer yet: a task, which sends its chunks later, or a question to the client.
            return result
        try:
            if not stream.claimed and not result.is_error:
                chunks = returned.chunks(result, params.name)
                for chunk in chunks:
                    await stream.send(chunk, len(chunks))
        except ToolError as error:
            failure = TextContent(type="text", text=str(error))
            result = CallToolResult(content=[failure], is_error=True)
        finally:
            stream.close()
        return _signed(result, stream)

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


def _signed(result: CallToolResult, stream: CallStream) -> CallToolResult:
    """The result with the number of its chunks, so that a client knows when it has them all."""
    about: dict[str, Any] = {"streamId": stream.id, "total_chunks": stream.sent}
    if stream.token is not None:
        about["progressToken"] = stream.token
    return result.model_copy(update={"meta": {**(result.meta or {}), STREAM_KEY: about}})
