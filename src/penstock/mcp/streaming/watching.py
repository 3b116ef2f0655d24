"""The client's side of streams that have begun: look one up, watch it, cancel it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp import Client
from mcp_types import CallToolResult, Request, Result, TextContent
from pydantic import ConfigDict

from penstock.mcp.streaming.client import Inbox, ToolStream
from penstock.mcp.streaming.streams import StreamState
from penstock.mcp.streaming.wire import CANCEL, GET, STREAM_KEY, WATCH


class _Request(Request[dict[str, Any], str]):
    """A request about one stream: its id goes into the header that routes."""

    name_param = "streamId"


class _Raw(Result):
    model_config = ConfigDict(extra="allow")


async def get_stream(client: Client, id: str) -> StreamState:
    """How the stream is now; raises `MCPError` for an id that is unknown or another caller's."""
    found = await _send(client, GET, id)
    return StreamState(
        id=found["streamId"],
        tool=found["tool"],
        status=found["status"],
        sent=found["sent"],
        first_kept=found["firstKept"],
        token=found.get("progressToken"),
    )


async def cancel_stream(client: Client, id: str) -> bool:
    """Stop the call of this stream; whether it still ran. Raises as `get_stream` does."""
    return bool((await _send(client, CANCEL, id))["cancelled"])


def watch_stream(
    client: Client, id: str, *, after: int | None = None, buffer: int = 1024
) -> ToolStream:
    """Read the chunks of a stream that another call began, until it ends.

    It begins with the chunk after the one with `seq` `after`, or with the first that the server
    still keeps. Leaving the loop ends the watching, not the stream. `result` has no content: only
    the call itself gets the tool's answer.
    """
    if buffer < 1:
        raise ValueError(f"buffer is {buffer}: it must be at least 1")
    return ToolStream(_Watch(client, id, after, Inbox(buffer)))


@dataclass(frozen=True, slots=True)
class _Watch:
    client: Client
    name: str
    after: int | None
    inbox: Inbox

    async def run(self) -> CallToolResult:
        params: dict[str, Any] = {"_meta": {STREAM_KEY: {"in": "message"}}}
        if self.after is not None:
            params["after"] = self.after
        found = await _send(self.client, WATCH, self.name, params, self.inbox)
        status = found["status"]
        failed = status != "completed"
        total = 0 if found["sent"] <= self.inbox.first else found["sent"]
        text = f"its stream is {status}: the call has the reason"
        return CallToolResult(
            content=[TextContent(type="text", text=text)] if failed else [],
            is_error=failed,
            _meta={STREAM_KEY: {"streamId": self.name, "total_chunks": total}},
        )


async def _send(
    client: Client,
    method: str,
    id: str,
    params: dict[str, Any] | None = None,
    inbox: Inbox | None = None,
) -> dict[str, Any]:
    request = _Request(method=method, params={"streamId": id, **(params or {})})
    progress = None if inbox is None else inbox.heard
    raw = await client.session.send_request(request, _Raw, progress_callback=progress)
    return raw.model_extra or {}
