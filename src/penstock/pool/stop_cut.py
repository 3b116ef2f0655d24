"""Stop sequences of a target whose API has none, or takes fewer: its answer is cut here.

Only the text of an answer is searched: no thinking, and no arguments of tools. A part of another
kind ends the text in which a sequence may stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from penstock.contract.events import (
    Chunk,
    Finished,
    ProviderEvent,
    ReasoningDelta,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import Content, MCPCall, Reasoning, Text
from penstock.contract.metadata import Usage
from penstock.pool.plan import Ticket
from penstock.streaming.assemble import Assembler
from penstock.streaming.stop_sequences import StopScanner


class StopCut:
    """Ends the events of one answer at the first stop sequence."""

    def __init__(self, stops: Sequence[str], delivered: str = "") -> None:
        """`delivered` is the text that the caller has from targets before."""
        self._scanner = StopScanner(stops)
        self._said = Assembler()
        self._thought: list[str] = []
        self._calls: dict[str, ToolStarted] = {}
        self._end: Reply | None = None
        self.excess = 0
        """The characters that were received behind the end of the answer."""
        if delivered:
            self._scanner.follow(delivered)
            self._said.text(delivered)

    @property
    def is_hit(self) -> bool:
        """Whether a stop sequence was found."""
        return self._scanner.hit is not None

    @property
    def held(self) -> str:
        """Text that is not delivered, as it may be the start of a stop sequence."""
        return self._scanner.held

    def cut(self, events: Sequence[ProviderEvent]) -> list[ProviderEvent]:
        """The events that the caller gets, up to a stop sequence."""
        told: list[ProviderEvent] = []
        for event in events:
            if self.is_hit:
                self._note_rest(event)
            elif isinstance(event, Chunk):
                before = len(self._scanner.held) + len(event.text)
                text = self._scanner.push(event.text)
                if self.is_hit:
                    self.excess = before - len(text)
                self._say(text, told)
            else:
                self._say(self._scanner.rest(), told)
                self._collect(event)
                told.append(event)
        return told

    def reply(self, ticket: Ticket[SamplingRequest]) -> Reply:
        """The answer up to the stop sequence; its usage is the bill, once there is one."""
        end = self._end or Reply((), "", "", ticket.billed or Usage())
        return msgspec.structs.replace(
            end,
            content=self._content(),
            stop_reason="stopSequence",
            stop_detail=None,
            stop_sequence=self._scanner.hit,
        )

    def _say(self, text: str, told: list[ProviderEvent]) -> None:
        if text:
            self._settle_thought()
            self._said.text(text)
            told.append(Chunk(text))

    def _note_rest(self, event: ProviderEvent) -> None:
        if isinstance(event, Finished):
            self._end = event.reply
        elif isinstance(event, Chunk):
            self.excess += len(event.text)

    def _collect(self, event: ProviderEvent) -> None:
        if isinstance(event, ReasoningDelta):
            if event.signed is not None:
                self._thought.clear()
                self._said.whole(event.signed)
            else:
                self._thought.append(event.text)
            return
        self._settle_thought()
        if isinstance(event, ToolUseDelta):
            self._said.tool(event.index, id=event.id, name=event.name, arguments=event.arguments)
        elif isinstance(event, ToolStarted):
            self._calls[event.id] = event
        elif isinstance(event, ToolEnded) and (call := self._calls.pop(event.id, None)):
            self._said.whole(
                MCPCall(
                    call.id,
                    call.server,
                    call.name,
                    call.input,
                    event.content,
                    is_error=event.is_error,
                )
            )

    def _settle_thought(self) -> None:
        if self._thought:
            self._said.whole(Reasoning("".join(self._thought)))
            self._thought.clear()

    def _content(self) -> tuple[Content, ...]:
        self._settle_thought()
        return self._said.content(cut=True)


def cut_reply(reply: Reply, stops: Sequence[str]) -> Reply:
    """A whole answer up to the first stop sequence."""
    if not stops:
        return reply
    scanner = StopScanner(stops)
    begun, room = 0, 0
    for place, part in enumerate(reply.content):
        if not isinstance(part, Text):
            scanner.rest()
            begun, room = place + 1, 0
            continue
        room += len(scanner.push(part.text))
        if scanner.hit is not None:
            return msgspec.structs.replace(
                reply,
                content=(*reply.content[:begun], *_first(reply.content[begun:], room)),
                stop_reason="stopSequence",
                stop_detail=None,
                stop_sequence=scanner.hit,
            )
    return reply


def _first(texts: Sequence[Content], room: int) -> Iterator[Text]:
    """The first characters of neighbouring texts."""
    for part in texts:
        if not isinstance(part, Text) or room <= 0:
            return
        yield (
            part if len(part.text) <= room else msgspec.structs.replace(part, text=part.text[:room])
        )
        room -= len(part.text)


def mark_cut(ticket: Ticket[SamplingRequest], cut: StopCut) -> None:
    """Have the attempt end well and be billed for what was delivered, when its call is closed."""
    ticket.is_cut = True
    excess = cut.excess
    while excess and ticket.text:
        last = ticket.text.pop()
        if len(last) > excess:
            ticket.text.append(last[: len(last) - excess])
        excess = max(0, excess - len(last))
