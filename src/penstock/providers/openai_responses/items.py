"""Collects the items of one response: messages, calls and thoughts, whole or in pieces.

Calls of MCP servers are the provider's to make: `ToolStarted` comes with their arguments, and
`ToolEnded` with the whole item.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

import msgspec

from penstock.contract.errors import MalformedResponse, ToolFailed
from penstock.contract.events import (
    Chunk,
    ProviderEvent,
    ReasoningDelta,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.messages import Content, JSONObject, MCPCall, Reasoning, Text, ToolUse
from penstock.providers.openai_responses import mcp
from penstock.providers.openai_responses.encode import ITEM_ID, PHASE
from penstock.providers.openai_responses.shapes import ContentPart, OutputItem
from penstock.streaming.assemble import Parts, check_tool_calls, parse_arguments

_BETWEEN_SUMMARIES = "\n\n"
_MESSAGE, _CALL, _REASONING = "message", "function_call", "reasoning"
_MCP = frozenset({mcp.CALL, mcp.LISTING})
_KINDS = frozenset({_MESSAGE, _CALL, _REASONING}) | _MCP

_decode_item = msgspec.json.Decoder(OutputItem).decode

Key: TypeAlias = int | str | None
"""An item's number in the output, or its id on servers that give no numbers."""


class _Kind(msgspec.Struct, gc=False):
    type: str = ""


_decode_kind = msgspec.json.Decoder(_Kind).decode


def read_item(raw: msgspec.Raw) -> OutputItem | None:
    """The item; None for an unreadable one of a type that is not part of the answer.

    Raises MalformedResponse for any other that cannot be read.
    """
    try:
        return _decode_item(raw)
    except (ValueError, RecursionError) as error:
        try:
            kind = _decode_kind(raw).type
        except (ValueError, RecursionError):
            kind = _MESSAGE
        if kind in _KINDS or kind == mcp.APPROVAL:
            raise MalformedResponse(f"an item of the answer cannot be read: {error}") from error
        return None


class _Item:
    """One item: the pieces that were told, and the facts that came with the whole."""

    __slots__ = (
        "call_id",
        "id",
        "kind",
        "listing",
        "made",
        "name",
        "phase",
        "pieces",
        "server",
        "signature",
        "slot",
        "started",
        "summary",
    )

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.id: str | None = None
        self.phase: str | None = None
        self.signature: str | None = None
        self.summary: int | None = None
        # Of a call: its number among the calls, known from the moment that its name is.
        self.slot: int | None = None
        self.call_id = ""
        self.name = ""
        # Of an MCP server: the call that was made there, or the list of its tools.
        self.server = ""
        self.started = False
        self.made: MCPCall | None = None
        self.listing: JSONObject | None = None

    def build(self) -> Content | None:
        if self.kind in _MCP:
            return self.made
        text = "".join(self.pieces)
        if self.kind == _CALL:
            return ToolUse(self.call_id, self.name, parse_arguments(text, tool=self.name))
        if self.kind == _REASONING:
            meta: JSONObject | None = {ITEM_ID: self.id} if self.id and self.signature else None
            hidden = not text and self.signature is not None
            return (
                Reasoning(text, signature=self.signature, redacted=hidden, meta=meta)
                if text or hidden
                else None
            )
        return Text(text, meta={PHASE: self.phase} if self.phase else None) if text else None


class Items:
    """The items in the order in which they began."""

    __slots__ = (
        "_by_id",
        "_by_key",
        "_call_ids",
        "_calls",
        "_current",
        "_current_key",
        "_items",
        "_refusals",
        "unapproved",
    )

    def __init__(self) -> None:
        """Know no item yet."""
        self._items: Parts[_Item] = Parts()
        self._by_key: dict[Key, _Item] = {}
        self._current: list[str] | None = None
        self._current_key: Key = None
        self._calls = 0
        self._refusals: dict[Key, list[str]] = {}
        self._by_id: dict[tuple[str, str], _Item] = {}
        """The first item of each kind and id."""
        self._call_ids: set[str] = set()
        self.unapproved: ToolFailed | None = None
        """Set when the provider wants somebody's word before it calls a tool."""

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join("".join(item.pieces) for item in self._items if item.kind == _MESSAGE)

    @property
    def nameless(self) -> bool:
        """Whether pieces came that nothing joins to the items of the whole response."""
        return None in self._by_key

    @property
    def refusal(self) -> str:
        """The model's own words for "no"; empty when there are none."""
        return "".join("".join(pieces) for pieces in self._refusals.values())

    def add_text(self, key: Key, piece: str, events: list[ProviderEvent]) -> None:
        """The next piece of a message."""
        if self._current is None or key != self._current_key:
            self._current = self._at(key, _MESSAGE).pieces
            self._current_key = key
        self._current.append(piece)
        events.append(Chunk(piece))

    def add_refusal(self, key: Key, piece: str) -> None:
        """The next piece of a refusal."""
        self._refusals.setdefault(key, []).append(piece)

    def add_thought(
        self, key: Key, piece: str, summary: int | None, events: list[ProviderEvent]
    ) -> None:
        """The next piece of thinking; a new summary begins a new paragraph."""
        item = self._at(key, _REASONING)
        if summary != item.summary and item.pieces:
            piece = _BETWEEN_SUMMARIES + piece
        item.summary = summary
        if piece:
            item.pieces.append(piece)
            events.append(ReasoningDelta(piece))

    def add_arguments(self, key: Key, piece: str, events: list[ProviderEvent]) -> None:
        """The next piece of a call's arguments; without a name, they wait for the whole call."""
        item = self._at(key, _CALL)
        if item.slot is not None and piece:
            item.pieces.append(piece)
            events.append(ToolUseDelta(item.slot, arguments=piece))

    def start_tool(self, key: Key, arguments: str, events: list[ProviderEvent]) -> None:
        """The arguments of an MCP server's tool are whole, and the tool is called."""
        own = self._by_key.get(key)
        if own is None or own.kind != mcp.CALL or own.started or not own.name:
            return
        try:
            asked = parse_arguments(arguments, tool=own.name)
        except MalformedResponse:
            return  # The whole item tells what became of it.
        own.started = True
        events.append(ToolStarted(own.id or "", own.name, asked, own.server))

    def begin(self, key: Key, item: OutputItem, events: list[ProviderEvent]) -> None:
        """An item was announced; its content follows."""
        if item.type == _CALL:
            self._announce(self._at(key, _CALL, item.id), item, events)
        elif item.type == mcp.CALL:
            own = self._at(key, mcp.CALL, item.id)
            own.name, own.server = item.name or "", item.server_label or ""
        elif item.type in _KINDS:
            self._at(key, item.type, item.id)

    def settle(self, key: Key, item: OutputItem, events: list[ProviderEvent]) -> None:
        """The whole item: tell what its pieces have not told."""
        if item.type == mcp.APPROVAL:
            self.unapproved = mcp.unapproved(item)
        if item.type not in _KINDS:
            return
        own = self._at(key, item.type, item.id)
        if item.type in _MCP:
            self._settle_mcp(own, item, events)
            return
        own.phase = item.phase or own.phase
        newly_signed = own.signature is None and bool(item.encrypted_content)
        own.signature = item.encrypted_content or own.signature
        if item.type == _CALL:
            self._announce(own, item, events)
            if (rest := self._rest(own, item.arguments or "")) and own.slot is not None:
                own.pieces.append(rest)
                events.append(ToolUseDelta(own.slot, arguments=rest))
        elif item.type == _REASONING:
            if rest := self._rest(own, _thoughts(item)):
                own.pieces.append(rest)
                events.append(ReasoningDelta(rest))
            if newly_signed and isinstance(part := own.build(), Reasoning):
                events.append(ReasoningDelta("", part))
        else:
            if rest := self._rest(own, _joined(item.content)):
                own.pieces.append(rest)
                events.append(Chunk(rest))
            refusal = "".join(part.refusal or "" for part in item.content or ())
            if refusal:
                self._refusals[key] = [refusal]

    def content(self, *, cut: bool = False) -> tuple[Content, ...]:
        """The parts of the answer; raises MalformedResponse when a call cannot be read.

        `cut` says that the answer was broken off: a call that ends it unfinished is left out.
        """
        built: list[Content] = []
        listings: list[JSONObject] = []
        for item in self._items:
            if item.listing is not None:
                listings.append(item.listing)
            if cut and item is self._items[-1] and item.kind == _CALL and _is_broken(item):
                break
            if item.kind == _CALL and not item.name:
                raise MalformedResponse("a tool call has no name")
            part = item.build()
            if part is not None and listings:
                kept = {**(part.meta or {}), mcp.LISTINGS: listings}
                part = msgspec.structs.replace(part, meta=kept)
                listings = []
            if part is not None:
                built.append(part)
        return tuple(built)

    def _at(self, key: Key, kind: str, id: str | None = None) -> _Item:
        item = self._by_key.get(key)
        if item is None or item.kind != kind:
            # Some servers number a stream's items and those of its response differently.
            item = self._by_id.get((kind, id)) if id else None
            if item is None:
                item = _Item(kind)
                self._items.append(item)
            self._by_key[key] = item
        if id and item.id is None:
            item.id = id
            self._by_id.setdefault((kind, id), item)
        return item

    def _announce(self, own: _Item, item: OutputItem, events: list[ProviderEvent]) -> None:
        if own.slot is not None or not item.name:
            return
        call_id = item.call_id or item.id or ""
        # Two calls of one id could not be told apart by their results.
        taken = not call_id or call_id in self._call_ids
        own.call_id = _made_up(self._calls) if taken else call_id
        self._call_ids.add(own.call_id)
        own.name = item.name
        own.slot = self._calls
        self._calls += 1
        check_tool_calls(self._calls)
        events.append(ToolUseDelta(own.slot, own.call_id, own.name))

    def _settle_mcp(self, own: _Item, item: OutputItem, events: list[ProviderEvent]) -> None:
        if item.type == mcp.LISTING and item.error is None:
            own.listing = mcp.listing_of(item)
        elif own.made is None and mcp.is_finished(item):
            own.made = call = mcp.call_of(item)
            if not own.started:
                own.started = True
                events.append(ToolStarted(call.id, call.name, call.input, call.server))
            events.append(ToolEnded(call.id, call.name, call.is_error, call.content))

    def _rest(self, own: _Item, whole: str) -> str:
        told = "".join(own.pieces)
        # In one piece, for the whole item may be repeated without end.
        own.pieces[:] = [told] if told else []
        # What was told wins over a whole that differs, or that a server leaves empty.
        return whole.removeprefix(told) if whole.startswith(told) else ""


def _made_up(slot: int) -> str:
    return f"call_{secrets.token_hex(8)}_{slot}"


def _joined(parts: list[ContentPart] | None) -> str:
    return "".join(part.text or "" for part in parts or ())


def _thoughts(item: OutputItem) -> str:
    summaries = [part.text for part in item.summary or () if part.text]
    return _BETWEEN_SUMMARIES.join(summaries) or _joined(item.content)


def _is_broken(item: _Item) -> bool:
    try:
        item.build()
    except MalformedResponse:
        return True
    # No arguments at all means "none" in a whole answer, and "not yet" in a cut one.
    return not item.name or not "".join(item.pieces).strip()
