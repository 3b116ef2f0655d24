"""The requests about streams: `dev.penstock/streams/get`, `.../watch` and `.../cancel`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from mcp.server.extension import MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ContentBlock, RequestParams
from pydantic import ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

from penstock.contract.errors import shown
from penstock.mcp.streaming.call import CallStream
from penstock.mcp.streaming.chunks import Chunk
from penstock.mcp.streaming.streams import Sent, Stream, Streams
from penstock.mcp.streaming.wire import CANCEL, GET, WATCH, AnyRequest, Ask, asked

JSON: TypeAlias = dict[str, Any]
Owner: TypeAlias = Callable[[AnyRequest], str]
Elsewhere: TypeAlias = Callable[[JSON], Awaitable[JSON | None]]
"""Asks the other processes of this server what `answer` says there."""
LOOK_S = 1.0
"""How long a process waits for the next chunk before it answers another one."""
_MOST_BYTES = 256 * 1024
_block: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)


class StreamParams(RequestParams):
    """What every request about one stream has; it is checked here, where errors have words."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    stream_id: Any = None


class WatchParams(StreamParams):
    """From which chunk on: the one after this; from the first that is kept when left out."""

    after: Any = None


class StreamMethods:
    """Answers requests about streams, each to the owner of its stream alone."""

    def __init__(self, streams: Streams, owner: Owner, elsewhere: Elsewhere | None) -> None:
        """`elsewhere` finds streams of other processes."""
        self._streams = streams
        self._owner = owner
        self._elsewhere = elsewhere

    def bindings(self) -> Sequence[MethodBinding]:
        """One for each method, in both eras."""
        return (
            MethodBinding(GET, StreamParams, self._get),
            MethodBinding(WATCH, WatchParams, self._watch),
            MethodBinding(CANCEL, StreamParams, self._cancel),
        )

    async def answer(self, order: JSON) -> JSON | None:
        """What another process asks about a stream of this one; None without such a stream."""
        stream = self._streams.find(order["id"], order["owner"])
        if stream is None:
            return None
        if order["do"] == "cancel":
            return {"cancelled": stream.cancel()}
        if order["do"] == "look":
            sent = await stream.look(order["seq"], LOOK_S)
            return {"state": _state(stream), "chunks": _bounded(sent)}
        return {"state": _state(stream)}

    async def _ask(self, ctx: AnyRequest, id: Any, do: str, **more: Any) -> JSON:
        if not isinstance(id, str):
            raise MCPError(
                INVALID_PARAMS, f"streamId is {shown(id)}: give the id of a stream, as text"
            )
        order = {"do": do, "id": id, "owner": self._owner(ctx), **more}
        found = await self.answer(order)
        if found is None and self._elsewhere is not None:
            found = await self._elsewhere(order)
        if found is None:
            raise MCPError(
                INVALID_PARAMS,
                f"streamId {shown(id)} is unknown here: the stream never was, has ended long ago, "
                "or is not yours",
            )
        return found

    async def _get(self, ctx: AnyRequest, params: StreamParams) -> JSON:
        return (await self._ask(ctx, params.stream_id, "get"))["state"]

    async def _cancel(self, ctx: AnyRequest, params: StreamParams) -> JSON:
        return await self._ask(ctx, params.stream_id, "cancel")

    async def _watch(self, ctx: AnyRequest, params: WatchParams) -> JSON:
        """Send the chunks that are kept and those that come, until the stream ends."""
        id, after = params.stream_id, _after(params.after)
        state = (await self._ask(ctx, id, "get"))["state"]
        seq = max(state["firstKept"], after + 1)
        seq = min(seq, state["sent"])
        watcher = CallStream(ctx, asked(ctx) or Ask(), first=seq)
        watcher.id = id
        await watcher.open({"status": state["status"], "first": seq})
        while True:
            found = await self._ask(ctx, id, "look", seq=seq)
            state, chunks = found["state"], found["chunks"]
            for chunk in chunks:
                if chunk["seq"] != seq:
                    raise _too_slow(seq)
                await watcher.send(_chunk(chunk), chunk["total"])
                seq += 1
            if chunks:
                continue
            if seq < state["sent"]:
                raise _too_slow(seq)
            if state["status"] != "running":
                return state


def _after(value: Any) -> int:
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise MCPError(
            INVALID_PARAMS,
            f"after is {shown(value)}: give the seq of the last chunk that you have, or leave it "
            "out",
        )
    return value


def _too_slow(seq: int) -> MCPError:
    return MCPError(
        INVALID_PARAMS,
        f"chunk {seq} is not kept any more: read faster, or watch again from the first that is",
    )


def _state(stream: Stream) -> JSON:
    state = stream.state
    told: JSON = {
        "streamId": state.id,
        "tool": state.tool,
        "status": state.status,
        "sent": state.sent,
        "firstKept": state.first_kept,
    }
    return told if state.token is None else {**told, "progressToken": state.token}


def _bounded(found: list[Sent]) -> list[JSON]:
    """So many that one answer stays small; the rest is asked for next."""
    chunks: list[JSON] = []
    size = 0
    for seq, chunk, total in found:
        size += chunk.size
        if chunks and size > _MOST_BYTES:
            break
        chunks.append(
            {
                "seq": seq,
                "total": total,
                "data": chunk.data,
                "text": chunk.text,
                "size": chunk.size,
                "block": None if chunk.block is None else chunk.content_json(),
            }
        )
    return chunks


def _chunk(found: JSON) -> Chunk:
    block = found["block"]
    return Chunk(
        found["data"],
        cast("str | None", found["text"]),
        found["size"],
        None if block is None else _block.validate_python(block),
    )
