"""An MCP server that asks its client for sampling, in either era: `asking.py stdio | PORT`.

It sends what it is told to, whether or not the client has declared it, and tells what came back.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import mcp_types as types
import pydantic
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

NAME = "asking"
STATE = '{"opaque": "ä \u2028 \\\\ %20"}'
NOTES = {"note://tides": "Tides come twice a day.", "note://moon": "The moon pulls."}


class Anything(types.Result):
    """Whatever the client answered, unread."""

    model_config = pydantic.ConfigDict(extra="allow")


def asking_server(name: str = NAME, notes: dict[str, str] | None = None) -> MCPServer:
    """A server that calls itself so, with these resources."""
    server = MCPServer(name)

    @server.tool(structured_output=False)
    async def ask(ctx: Context, params: dict[str, Any]) -> str | types.InputRequiredResult:
        """Ask for sampling with these params; the raw result, or the raw error."""
        return await _ask(ctx, params)

    ids: list[Any] = []
    retries = 0

    @server.tool(structured_output=False)
    async def ask_two(ctx: Context, state: bool = True) -> str | types.InputRequiredResult:
        """Ask two questions at once, with or without a state; what came back. Modern only."""
        nonlocal retries
        if ctx.input_responses is None:
            ids[:] = [ctx.request_id]
            retries = 0
            questions = {each: _request(_question(each)) for each in ("first", "second")}
            return types.InputRequiredResult(
                input_requests=dict(questions), request_state=STATE if state else None
            )
        retries += 1
        answers = {
            key: each.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, each in ctx.input_responses.items()
        }
        came = {"answers": answers, "state": ctx.request_state, "ids": [*ids, ctx.request_id]}
        return json.dumps(came)

    @server.tool(name="retries", structured_output=False)
    async def tell_retries() -> str:
        """How often `ask_two` was called again since it was last called anew."""
        return str(retries)

    @server.tool(structured_output=False)
    async def ask_much(ctx: Context, size: int) -> str | types.InputRequiredResult:
        """Ask with a prompt of so many characters."""
        return await _ask(ctx, _question("x" * size))

    @server.tool(structured_output=False)
    async def ask_again_and_again(ctx: Context, times: int) -> str:
        """Ask so many times in a row; how each ended. Legacy only."""
        params = _question("Once more.")
        ends = [json.loads(await _legacy(ctx, params)) for _ in range(times)]
        return json.dumps([end.get("error", {}).get("code", "answered") for end in ends])

    @server.tool(structured_output=False)
    async def declared(ctx: Context) -> str:
        """The capabilities that the client has declared."""
        known = ctx.client_capabilities
        return "null" if known is None else known.model_dump_json(by_alias=True, exclude_none=True)

    @server.tool()
    async def process() -> int:
        """The number of this process."""
        return os.getpid()

    @server.prompt()
    async def asked(ctx: Context) -> str | types.InputRequiredResult:
        """A prompt whose text the client's model writes."""
        return await _ask(ctx, _question("Write a prompt."))

    for uri, text in (NOTES if notes is None else notes).items():
        _add_note(server, uri, text)
    return server


def _add_note(server: MCPServer, uri: str, text: str) -> None:
    @server.resource(uri)
    def note() -> str:
        return text


def _question(text: str) -> dict[str, Any]:
    return {"messages": [_said(text)], "maxTokens": 10}


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


async def _ask(ctx: Context, params: dict[str, Any]) -> str | types.InputRequiredResult:
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return await _legacy(ctx, params)
    if ctx.input_responses is None:
        return types.InputRequiredResult(
            input_requests={"question": _request(params)}, request_state="as it was"
        )
    assert ctx.request_state == "as it was"
    answer = ctx.input_responses["question"]
    return json.dumps({"result": answer.model_dump(by_alias=True, mode="json", exclude_none=True)})


async def _legacy(ctx: Context, params: dict[str, Any]) -> str:
    assert ctx.request_id is not None
    try:
        answer = await ctx.session.send_request(
            _request(params),
            Anything,
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
    except MCPError as error:
        said = {"code": error.code, "message": error.message, "data": error.data}
        return json.dumps({"error": said})
    return json.dumps({"result": answer.model_dump(by_alias=True, mode="json", exclude_none=True)})


def _request(params: dict[str, Any]) -> types.CreateMessageRequest:
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams.model_validate(params, by_name=False)
    )


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asking_server().run("stdio")
    else:
        asking_server().run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
