"""Keeps the blocks of one answer, whether they came whole or in pieces."""

from __future__ import annotations

from itertools import groupby
from typing import Any, TypeAlias, cast

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.events import (
    Chunk,
    ProviderEvent,
    ReasoningDelta,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.messages import (
    Content,
    JSONObject,
    MCPCall,
    Reasoning,
    Text,
    join_text,
)
from penstock.providers.anthropic import mcp
from penstock.providers.anthropic.shapes import Block, Delta
from penstock.providers.wire.mcp_calls import parts_of
from penstock.streaming.assemble import (
    CallBuffer,
    Parts,
    check_tool_calls,
    parse_arguments,
)


class _Text:
    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def build(self) -> Content:
        return Text("".join(self.pieces))


class _Thinking:
    __slots__ = ("pieces", "redacted", "signature", "signed")

    def __init__(self, signature: str | None, *, redacted: bool) -> None:
        self.pieces: list[str] = []
        self.signature = signature or None
        self.redacted = redacted
        self.signed = False
        """Whether the stream's reader has the whole part."""

    def build(self) -> Reasoning:
        text = "".join(self.pieces)
        return Reasoning(text=text, signature=self.signature, redacted=self.redacted)


class _MCPCall:
    """A call that the provider makes at an MCP server; the answer is a block of its own."""

    __slots__ = ("answer", "ended", "id", "name", "pieces", "server", "started")

    def __init__(self, id: str, name: str = "", server: str = "") -> None:
        self.id = id
        self.name = name
        self.server = server
        self.pieces: list[str] = []
        # The answer to a call of an earlier, paused reply was announced there.
        self.started = not name
        self.ended = False
        self.answer: Block | None = None

    @property
    def input(self) -> JSONObject:
        return parse_arguments("".join(self.pieces), tool=self.name)

    def build(self) -> Content:
        content = parts_of(self.answer.content) if self.answer else ()
        failed = bool(self.answer and self.answer.is_error)
        state = "answered" if self.answer else mcp.PENDING
        return MCPCall(
            self.id, self.server, self.name, self.input, content, failed, meta={mcp.OWN: state}
        )


class _Listing:
    """The tools of an MCP server, which go back with the part that follows."""

    __slots__ = ("wire",)

    def __init__(self, block: Block) -> None:
        self.wire: JSONObject = {
            "type": "mcp_tool_listing",
            "mcp_server_name": block.mcp_server_name or "",
            "tools": block.tools or [],
        }


_Piece: TypeAlias = _Text | _Thinking | CallBuffer | _MCPCall | _Listing


class Blocks:
    """The blocks in the order in which each began; of the server's own tools, only MCP's."""

    __slots__ = ("_by_index", "_calls", "_mcp_calls", "_parts", "_texts")

    def __init__(self) -> None:
        """Know no block yet."""
        self._parts: Parts[_Piece] = Parts()
        self._by_index: dict[int, _Piece | None] = {}
        self._calls = 0
        self._mcp_calls: dict[str, _MCPCall] = {}
        """The first call of each id."""
        self._texts: dict[int, list[str]] = {}

    @property
    def partial(self) -> str:
        """All text so far."""
        return "".join(
            piece for part in self._parts if isinstance(part, _Text) for piece in part.pieces
        )

    @property
    def texts(self) -> dict[int, list[str]]:
        """The pieces of every text block by its index, for the one who appends most of them."""
        return self._texts

    def begin(self, index: int, block: Block, events: list[ProviderEvent]) -> None:
        """Take a new block, and append the events that tell of what it holds already."""
        part: _Piece | None = None
        self._texts.pop(index, None)
        if block.type == "text":
            part = self._new_text(index)
            if block.text:
                part.pieces.append(block.text)
                events.append(Chunk(block.text))
        elif block.type == "thinking":
            part = _Thinking(block.signature, redacted=False)
            self._parts.append(part)
            if block.thinking:
                part.pieces.append(block.thinking)
                events.append(ReasoningDelta(block.thinking))
        elif block.type == "redacted_thinking":
            part = _Thinking(block.data, redacted=True)
            self._parts.append(part)
        elif block.type == "tool_use":
            part = self._begin_call(block, events)
        elif block.type.startswith("mcp_"):
            part = self._begin_mcp(block, events)
        self._by_index[index] = part

    def add(self, index: int, delta: Delta, events: list[ProviderEvent]) -> bool:
        """Take the next piece of a block; False when it holds content of no such block."""
        part = self._by_index.get(index)
        if delta.type == "text_delta":
            if not isinstance(part, _Text):
                # The block's beginning was lost, its text is not.
                part = self._by_index[index] = self._new_text(index)
            if delta.text:
                part.pieces.append(delta.text)
                events.append(Chunk(delta.text))
            return True
        if isinstance(part, _Thinking):
            if delta.thinking:
                part.pieces.append(delta.thinking)
                events.append(ReasoningDelta(delta.thinking))
            part.signature = delta.signature or part.signature
        elif isinstance(part, CallBuffer) and delta.partial_json:
            part.pieces.append(delta.partial_json)
            events.append(ToolUseDelta(part.slot, arguments=delta.partial_json))
        elif isinstance(part, _MCPCall) and delta.partial_json:
            part.pieces.append(delta.partial_json)
        return index in self._by_index or not (delta.thinking or delta.partial_json)

    def end(self, index: int, events: list[ProviderEvent]) -> None:
        """A block is whole: thinking is signed, a call of an MCP server has its arguments."""
        part = self._by_index.get(index)
        # Once: a stop that is repeated without end would repeat all of the block.
        if isinstance(part, _Thinking) and part.signature is not None and not part.signed:
            part.signed = True
            events.append(ReasoningDelta("", part.build()))
        if isinstance(part, _MCPCall) and part.answer is None and not part.ended:
            part.ended = True
            _start(part, events)

    def content(self, *, cut: bool, pieces: bool) -> tuple[Content, ...]:
        """The finished parts; raises MalformedResponse when a call's arguments are not JSON.

        `cut` says that the answer ran out of tokens, so that a call at its end may be broken off:
        the `pieces` of a stream show whether it is, and the input of a whole body does not.
        """
        parts = [part for part in self._parts if not isinstance(part, _Text) or any(part.pieces)]
        last = parts[-1] if parts else None
        if cut and isinstance(last, CallBuffer) and (last.broken or not pieces):
            parts.pop()
        built: list[Content] = []
        listings: list[JSONObject] = []
        for part in parts:
            if isinstance(part, _Listing):
                listings.append(part.wire)
            elif not (cut and isinstance(part, _MCPCall) and part.answer is None):
                built.append(_with_listings(part.build(), listings))
                listings = []
        return tuple(_merged(built))

    def _new_text(self, index: int) -> _Text:
        part = _Text()
        self._parts.append(part)
        self._texts[index] = part.pieces
        return part

    def _begin_call(self, block: Block, events: list[ProviderEvent]) -> CallBuffer:
        if not (block.id and block.name):
            raise MalformedResponse("a tool call has no id or no name")
        part = CallBuffer(self._calls, block.id, block.name)
        self._calls += 1
        self._parts.append(part)
        arguments = ""
        if block.input:
            arguments = msgspec.json.encode(_input(block.input, block.name)).decode()
            part.pieces.append(arguments)
        events.append(ToolUseDelta(part.slot, part.id, part.name, arguments))
        return part

    def _begin_mcp(self, block: Block, events: list[ProviderEvent]) -> _Piece | None:
        if block.type == "mcp_tool_listing":
            listing = _Listing(block)
            self._parts.append(listing)
            return listing
        if block.type == "mcp_tool_use":
            if not (block.id and block.name):
                raise MalformedResponse("a call of an MCP server has no id or no name")
            call = _MCPCall(block.id, block.name, block.server_name or "")
            if block.input:
                written = msgspec.json.encode(_input(block.input, block.name)).decode()
                call.pieces.append(written)
            return self._add_mcp(call)
        if block.type == "mcp_tool_result":
            return self._answer_mcp(block, events)
        return None

    def _answer_mcp(self, block: Block, events: list[ProviderEvent]) -> _MCPCall:
        id = block.tool_use_id or ""
        call = self._mcp_calls.get(id) or self._add_mcp(_MCPCall(id))
        # Once: an answer that is repeated without end would read the arguments each time.
        if call.answer is None:
            _start(call, events)
        call.answer = block
        content = parts_of(block.content)
        events.append(ToolEnded(id, call.name, bool(block.is_error), content))
        return call

    def _add_mcp(self, call: _MCPCall) -> _MCPCall:
        self._mcp_calls.setdefault(call.id, call)
        check_tool_calls(len(self._mcp_calls))
        self._parts.append(call)
        return call


def _start(call: _MCPCall, events: list[ProviderEvent]) -> None:
    if call.started:
        return
    try:
        asked = call.input
    except MalformedResponse:
        return  # The limit of tokens broke it off, or `content` says what is wrong with it.
    call.started = True
    events.append(ToolStarted(call.id, call.name, asked, call.server))


def _with_listings(part: Content, listings: list[JSONObject]) -> Content:
    if not listings:
        return part
    return msgspec.structs.replace(part, meta={**(part.meta or {}), mcp.LISTINGS: listings})


def _input(value: Any, tool: str) -> JSONObject:
    if not isinstance(value, dict):
        raise MalformedResponse(f"the arguments of the call to {tool!r} are not an object")
    return cast(JSONObject, value)


def _merged(parts: list[Content]) -> list[Content]:
    """Neighbouring texts as one: citations cut an answer into many blocks."""
    merged: list[Content] = []
    for is_text, run in groupby(parts, key=lambda part: isinstance(part, Text)):
        neighbours = list(run)
        if is_text:
            meta = next((part.meta for part in neighbours if part.meta), neighbours[0].meta)
            merged.append(Text(join_text(neighbours), meta=meta))
        else:
            merged += neighbours
    return merged
