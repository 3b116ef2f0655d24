"""Answers in: the body of a reply, or the events of a stream, become a `Reply`.

A stream is whole when its `message_stop` has come. Blocks are told apart by their type and never by
their place, for thinking may come before the text. Types that are not known here (of blocks, of
pieces, of events) are skipped, as the API asks of its clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.contract.errors import ContentRejected, MalformedResponse
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, JSONObject, ToolUse
from penstock.providers.anthropic.blocks import Blocks
from penstock.providers.anthropic.errors import map_inline_error
from penstock.providers.anthropic.resume import PAUSED
from penstock.providers.anthropic.shapes import Answer, Event, StopDetails, WireUsage
from penstock.providers.wire.endings import check_ending, is_cut, stop_detail, stop_reason
from penstock.providers.wire.extra_fields import other_fields
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.stream_reader import StreamReader, may_hold_content
from penstock.providers.wire.token_counts import has_counts
from penstock.streaming.sse import ServerSentEvent

_CONTENT_TYPES = frozenset(
    {
        *("message_start", "message_delta", "message_stop", "error"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)

_ANSWER_FIELDS = frozenset({"role", "stop_sequence", *Answer.__struct_fields__} - {"stop_details"})

_decode_event = msgspec.json.Decoder(Event).decode
_decode_usage = msgspec.json.Decoder(WireUsage).decode
_decode_answer = msgspec.json.Decoder(Answer).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    answer = read_json(_decode_answer, body, "the answer is not a message")
    if answer.error or answer.type == "error":
        raise map_inline_error(answer.error)
    if answer.content is None:
        raise MalformedResponse("the answer holds no content")
    collected = _Collector()
    collected.learn(answer)
    for index, block in enumerate(answer.content):
        collected.blocks.begin(index, block, [])
    # The body is whole, so a server that names no reason has simply come to its end.
    return collected.reply(answer.stop_reason, pieces=False)


def further(body: bytes) -> JSONObject:
    """The fields of the answer that are read nowhere here."""
    return other_fields(body, _ANSWER_FIELDS)


class MessageStreamDecoder(StreamReader[ServerSentEvent]):
    """The stream of a message; it ends with `message_stop`."""

    __slots__ = ("_collected",)

    end_mark = "message_stop"
    content = "message"

    def __init__(self) -> None:
        """Expect the first event."""
        super().__init__()
        self._collected = _Collector()

    def _read(self, frames: Sequence[ServerSentEvent], events: list[ProviderEvent]) -> None:
        texts = self._collected.blocks.texts
        for frame in frames:
            try:
                event = _decode_event(frame.data)
            except (ValueError, RecursionError) as unread:
                if frame.event == "error":
                    raise map_inline_error(frame.data) from unread
                if may_hold_content(frame, _CONTENT_TYPES):
                    raise self._unreadable(unread) from unread
                continue
            delta = event.delta
            # Most events are one piece of text in a block that has begun.
            if (
                delta is not None
                and delta.type == "text_delta"
                and (text := delta.text)
                and (pieces := texts.get(event.index)) is not None
            ):
                pieces.append(text)
                events.append(Chunk(text))
                continue
            self._take(event, frame, events)
            if self._ended:
                break

    def _take(self, event: Event, frame: ServerSentEvent, events: list[ProviderEvent]) -> None:
        collected = self._collected
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._begun = True
                if not collected.blocks.add(event.index, event.delta, events):
                    raise self._unreadable("it belongs to a block that never began")
            case "content_block_start" if event.content_block is not None:
                self._begun = True
                collected.blocks.begin(event.index, event.content_block, events)
            case "content_block_stop":
                collected.blocks.end(event.index, events)
            case "message_start" if event.message is not None:
                self._begun = True
                collected.learn(event.message)
            case "message_delta":
                self._begun = True
                collected.add_usage(event.usage)
                if event.delta is not None:
                    collected.reason = event.delta.stop_reason or collected.reason
                    collected.details = event.delta.stop_details or collected.details
                    collected.stop_sequence = event.delta.stop_sequence
            case "message_stop":
                self._settle(events)
            case "error":
                raise map_inline_error(event.error)
            case _:
                if frame.event == "error":
                    raise map_inline_error(frame.data)

    def _settle(self, events: list[ProviderEvent]) -> None:
        # Compatible servers may give no reason; `message_stop` says that the answer is whole.
        events.append(Finished(self._collected.reply(self._collected.reason, pieces=True)))
        self._ended = True

    def _partial(self) -> str:
        return self._collected.blocks.partial


class _Collector:
    """Keeps what one answer has said, whether it came whole or in pieces."""

    __slots__ = (
        "_unreadable",
        "blocks",
        "details",
        "model",
        "reason",
        "response_id",
        "stop_sequence",
        "usage",
    )

    def __init__(self) -> None:
        self.blocks = Blocks()
        self.reason: str | None = None
        self.details: StopDetails | None = None
        self.usage: WireUsage | None = None
        self._unreadable = False
        self.response_id: str | None = None
        self.model: str | None = None
        self.stop_sequence: object = None

    def learn(self, answer: Answer) -> None:
        """Take over what the head of a message says."""
        self.response_id = answer.id
        self.model = answer.model
        self.details = answer.stop_details
        self.stop_sequence = answer.stop_sequence
        self.add_usage(answer.usage)

    def add_usage(self, raw: msgspec.Raw) -> None:
        """Take a later count, which replaces an earlier one field by field."""
        if not has_counts(raw):
            return
        try:
            usage = _decode_usage(raw)
        except (ValueError, RecursionError):
            self._unreadable = True
            return
        if self.usage is None:
            self.usage = usage
            return
        for name in WireUsage.__struct_fields__:
            if (value := getattr(usage, name)) is not None:
                setattr(self.usage, name, value)

    def reply(self, reason: str | None, *, pieces: bool) -> Reply:
        """The whole answer; raises the error that it ended with, such as ContentRejected."""
        if reason == "refusal":
            raise ContentRejected(_refusal(self.details), partial=self.blocks.partial)
        check_ending(reason, partial=self.blocks.partial)
        paused = reason == PAUSED
        content = self.blocks.content(cut=is_cut(reason) and not paused, pieces=pieces)
        usage = _usage(self.usage)
        if self._unreadable:
            usage = msgspec.structs.replace(usage, implausible=True)
        return Reply(
            content,
            self.model or "",
            # A pause is no stop, unless the answer calls a tool.
            "" if paused and not _calls(content) else stop_reason(reason, content),
            usage,
            self.response_id,
            reason,
            stop_detail=stop_detail(reason),
            stop_sequence=self.stop_sequence if isinstance(self.stop_sequence, str) else None,
        )


def _calls(content: Sequence[Content]) -> bool:
    return any(isinstance(part, ToolUse) for part in content)


def _refusal(details: StopDetails | None) -> str:
    if details is None or not (details.category or details.explanation):
        return "the model refused"
    about = f" ({details.category})" if details.category else ""
    return f"the model refused{about}: {(details.explanation or 'no reason was given')[:500]}"


def _usage(usage: WireUsage | None) -> Usage:
    if usage is None:
        return Usage()
    written, read = usage.cache_creation_input_tokens, usage.cache_read_input_tokens
    total = None
    if usage.input_tokens is not None:
        total = usage.input_tokens + (written or 0) + (read or 0)
    details = usage.output_tokens_details
    return Usage(
        total, usage.output_tokens, read, written, details.thinking_tokens if details else None
    )
