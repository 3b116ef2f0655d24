"""Streams out: the events of one response, numbered and in the order in which OpenAI sends them.

Two things come later than there. A reasoning item is done only at the end of the response, since
its `encrypted_content` is known only then; its summary is done in time. And calls are done at the
end, because a provider may go on with any of several.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.contract.errors import ContentRejected, PenstockError, RequestCancelled
from penstock.contract.events import (
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Result
from penstock.contract.messages import Image, MCPCall, Text
from penstock.server.answer_headers import stream_end_facts
from penstock.server.doors.openai_responses.decode import Echo
from penstock.server.doors.openai_responses.encode import (
    CallItem,
    Item,
    MCPCallItem,
    MessageItem,
    OutputText,
    ReasoningItem,
    ResponseWriter,
    SummaryText,
    add_seal,
    answer,
    incomplete_reason,
    phase_of,
    whole_item,
    write_json,
)
from penstock.server.errors import Failure, failure_of


class EventEncoder:
    """Writes the events of one stream."""

    __slots__ = (
        "_begun",
        "_calls",
        "_items",
        "_pieces",
        "_run",
        "_sequence",
        "_text_head",
        "_text_tail",
        "_tools",
        "_writer",
        "ended",
    )

    def __init__(self, request_id: str, model: str, echo: Echo) -> None:
        """Expect the first events."""
        self._writer = ResponseWriter(request_id, model, echo)
        self._sequence = 0
        self._begun = False
        self._items: list[Item] = []
        self._run: MessageItem | ReasoningItem | None = None
        """The text or thinking that the next piece may belong to, always the last item."""
        self._pieces: list[str] = []
        """What that run has so far; a call's are kept with it, for there may be several."""
        self._calls: dict[int, tuple[int, CallItem, list[str]]] = {}
        self._tools: dict[str, tuple[int, MCPCallItem]] = {}
        self._text_head = self._text_tail = b""
        self.ended = False
        """Whether the stream's last event has been written."""

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        """The events on the wire, one after the other."""
        out: list[bytes] = []
        if not self._begun:
            self._begun = True
            response = b'"response":' + self._writer.write("in_progress")
            out += (
                self._event(b"response.created", response),
                self._event(b"response.in_progress", response),
            )
        for event in events:
            if type(event) is Chunk:
                if not isinstance(self._run, MessageItem):
                    out += self._open_message()
                # Most events are one piece of text.
                self._pieces.append(event.text)
                out += (
                    b"%b%d" % (self._text_head, self._sequence),
                    self._text_tail,
                    write_json(event.text),
                    b"}\n\n",
                )
                self._sequence += 1
            else:
                out += self._other(event)
        return b"".join(out)

    def _other(self, event: StreamEvent) -> list[bytes]:
        if isinstance(event, ReasoningDelta):
            # A signature alone comes with the whole item, at its end.
            return self._thought(event) if event.text else []
        if isinstance(event, ToolUseDelta):
            return self._call(event)
        if isinstance(event, ToolStarted):
            return self._start_tool(event)
        if isinstance(event, ToolEnded):
            return self._end_tool(event)
        self.ended = True
        if isinstance(event, Complete):
            return self._complete(event.result)
        return self._fail(event.error if isinstance(event, Error) else _cancelled())

    def _event(self, kind: bytes, rest: bytes) -> bytes:
        number = self._sequence
        self._sequence += 1
        return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (
            kind,
            kind,
            number,
            rest,
        )

    def _add(self, item: Item) -> bytes:
        index = len(self._items)
        self._items.append(item)
        return self._event(
            b"response.output_item.added",
            b'"output_index":%d,"item":%b' % (index, write_json(item)),
        )

    def _done(self, index: int) -> bytes:
        return self._event(
            b"response.output_item.done",
            b'"output_index":%d,"item":%b' % (index, write_json(self._items[index])),
        )

    def _place(self, index: int) -> bytes:
        return b'"item_id":%b,"output_index":%d' % (write_json(self._items[index].id), index)

    def _open_message(self) -> list[bytes]:
        out = self._close_run()
        index = len(self._items)
        item = MessageItem(id=self._writer.item_id("msg", index), content=[])
        out.append(self._add(item))
        place = self._place(index) + b',"content_index":0'
        part = OutputText()
        out.append(
            self._event(b"response.content_part.added", place + b',"part":' + write_json(part))
        )
        item.content.append(part)
        self._run = item
        kind = b"response.output_text.delta"
        self._text_head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (kind, kind)
        self._text_tail = b',%b,"logprobs":[],"delta":' % place
        return out

    def _thought(self, event: ReasoningDelta) -> list[bytes]:
        out: list[bytes] = []
        if not isinstance(self._run, ReasoningItem):
            out = self._close_run()
            index = len(self._items)
            item = ReasoningItem(id=self._writer.item_id("rs", index), summary=[])
            out.append(self._add(item))
            part = SummaryText()
            rest = b',"summary_index":0,"part":' + write_json(part)
            out.append(
                self._event(b"response.reasoning_summary_part.added", self._place(index) + rest)
            )
            item.summary.append(part)
            self._run = item
        self._pieces.append(event.text)
        rest = b',"summary_index":0,"delta":' + write_json(event.text)
        place = self._place(len(self._items) - 1)
        out.append(self._event(b"response.reasoning_summary_text.delta", place + rest))
        return out

    def _close_run(self, status: str = "completed") -> list[bytes]:
        """End the text or thinking that is being told, if any."""
        run = self._run
        if run is None:
            return []
        text = "".join(self._pieces)
        self._run, self._pieces = None, []
        index = len(self._items) - 1
        place = self._place(index)
        run.status = status
        if isinstance(run, ReasoningItem):
            run.summary[0].text = text
            place += b',"summary_index":0'
            part = b',"part":' + write_json(run.summary[0])
            return [
                self._event(
                    b"response.reasoning_summary_text.done", place + b',"text":' + write_json(text)
                ),
                self._event(b"response.reasoning_summary_part.done", place + part),
            ]
        run.content[0].text = text
        place += b',"content_index":0'
        part = b',"part":' + write_json(run.content[0])
        told = b',"logprobs":[],"text":' + write_json(text)
        return [
            self._event(b"response.output_text.done", place + told),
            self._event(b"response.content_part.done", place + part),
            self._done(index),
        ]

    def _call(self, event: ToolUseDelta) -> list[bytes]:
        out: list[bytes] = []
        if event.index not in self._calls:
            out = self._close_run()
            index = len(self._items)
            item = CallItem(id=self._writer.item_id("fc", index), call_id=event.id, name=event.name)
            self._calls[event.index] = (index, item, [])
            out.append(self._add(item))
        index, _, pieces = self._calls[event.index]
        if event.arguments:
            pieces.append(event.arguments)
            out.append(self._arguments(b"function_call", index, event.arguments))
        return out

    def _arguments(self, kind: bytes, index: int, piece: str) -> bytes:
        return self._event(
            b"response.%b_arguments.delta" % kind,
            self._place(index) + b',"delta":' + write_json(piece),
        )

    def _end_call(self, index: int, item: CallItem, pieces: list[str], whole: bool) -> list[bytes]:
        out: list[bytes] = []
        if whole and not "".join(pieces).strip():
            # Models write nothing for no arguments, and clients read JSON.
            pieces.append("{}")
            out.append(self._arguments(b"function_call", index, "{}"))
        item.arguments = "".join(pieces)
        item.status = "completed" if whole else "incomplete"
        rest = b',"name":%b,"arguments":%b' % (write_json(item.name), write_json(item.arguments))
        return [
            *out,
            self._event(b"response.function_call_arguments.done", self._place(index) + rest),
            self._done(index),
        ]

    def _start_tool(self, event: ToolStarted) -> list[bytes]:
        out = self._close_run()
        index = len(self._items)
        taken = any(item.id == event.id for item in self._items)
        id = self._writer.item_id("mcp", index) if taken or not event.id else event.id
        item = MCPCallItem(id=id, server_label=event.server, name=event.name)
        out.append(self._add(item))
        self._tools[event.id] = (index, item)
        item.arguments = write_json(event.input).decode()
        place = self._place(index)
        told = b',"arguments":' + write_json(item.arguments)
        return [
            *out,
            self._event(b"response.mcp_call.in_progress", place),
            self._arguments(b"mcp_call", index, item.arguments),
            self._event(b"response.mcp_call_arguments.done", place + told),
        ]

    def _end_tool(self, event: ToolEnded) -> list[bytes]:
        if event.id not in self._tools:
            return []
        index, item = self._tools[event.id]
        answer(item, event.content, is_error=event.is_error)
        kind = b"failed" if event.is_error else b"completed"
        return [
            self._event(b"response.mcp_call." + kind, self._place(index)),
            self._done(index),
        ]

    def _complete(self, result: Result) -> list[bytes]:
        reason = incomplete_reason(result)
        last = self._items[-1] if self._items else None
        if isinstance(last, MessageItem) and last is self._run:
            texts = [part for part in result.content if isinstance(part, Text)]
            last.phase = phase_of(texts[-1]) if texts else msgspec.UNSET
        out = self._close_run("completed" if reason is None else "incomplete")
        made = {use.id for use in result.tool_uses}
        for index, item, pieces in self._calls.values():
            out += self._end_call(index, item, pieces, item.call_id in made)
        for part in result.content:
            # What came in no pieces.
            if isinstance(part, Image) or (
                isinstance(part, MCPCall) and part.id not in self._tools
            ):
                out.append(self._add(whole_item(part, self._writer, len(self._items))))
                out.append(self._done(len(self._items) - 1))
        out += self._end_thoughts(result)
        kind = b"response.completed" if reason is None else b"response.incomplete"
        response = self._writer.completed(result, self._items)
        out += (stream_end_facts(result.metadata), self._event(kind, b'"response":' + response))
        return out

    def _end_thoughts(self, result: Result) -> list[bytes]:
        out: list[bytes] = []
        if add_seal(self._items, result.content, self._writer):
            out.append(self._add(self._items.pop()))
        for index, item in enumerate(self._items):
            if isinstance(item, ReasoningItem):
                item.status = "completed"
                out.append(self._done(index))
        return out

    def _fail(self, error: PenstockError) -> list[bytes]:
        out = self._close_run("incomplete")
        for _, item, pieces in self._calls.values():
            item.arguments = "".join(pieces)
        for item in self._items:
            if item.status == "in_progress":
                item.status = "incomplete"
        if isinstance(error, ContentRejected):
            response = self._writer.write("incomplete", self._items, reason="content_filter")
            return [*out, self._event(b"response.incomplete", b'"response":' + response)]
        failure = failure_of(error)
        told = {"code": failure.code or "server_error", "message": failure.message}
        response = self._writer.write("failed", self._items, error=told)
        number = self._sequence
        self._sequence += 1
        # The SDKs raise the first; whoever reads events by hand gets to the second as well.
        return [
            *out,
            error_event(failure, number),
            self._event(b"response.failed", b'"response":' + response),
        ]


def error_event(failure: Failure, sequence_number: int | None, param: str | None = None) -> bytes:
    """The event `error`: with its fields as the API documents them, and inside `error` as well.

    The official SDKs raise an error for what is there, and take the rest for one more event.
    """
    fields = {"code": failure.code, "message": failure.message, "param": param or failure.param}
    number = {} if sequence_number is None else {"sequence_number": sequence_number}
    nested = {"error": {"type": failure.type, **fields}}
    return b"event: error\ndata: %b\n\n" % write_json(
        {"type": "error", **number, **fields, **nested}
    )


def _cancelled() -> PenstockError:
    return RequestCancelled("it was cancelled")
