"""Answers in: the body of a reply, or the events of a stream, become a `Reply`.

Compatible servers differ in small things, and all of them are taken: `reasoning_content` or
`reasoning`; content as a string or as a list of parts (Mistral); tool calls whole or in pieces,
with or without an index or an id; usage in the last event, in a later one, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.errors import ContentRejected, MalformedResponse
from penstock.contract.events import Chunk, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import JSONObject, ToolUse
from penstock.providers.openai_chat.shapes import (
    Answer,
    Choice,
    ContentPart,
    Event,
    FunctionPiece,
    MessagePiece,
    ToolCallPiece,
    WireUsage,
)
from penstock.providers.openai_chat.tool_calls import CallPlaces
from penstock.providers.openai_wire.errors import map_inline_error
from penstock.providers.openai_wire.usage import OutputDetails, counted
from penstock.providers.wire.endings import check_ending, is_cut, stop_detail, stop_reason
from penstock.providers.wire.error_text import listed_error
from penstock.providers.wire.extra_fields import beyond, read_object
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.stop_reasons import meaning_of
from penstock.providers.wire.stream_reader import DONE, StreamReader, may_hold_content
from penstock.providers.wire.token_counts import has_counts, read_counts
from penstock.streaming.assemble import Assembler
from penstock.streaming.sse import ServerSentEvent

_ANSWER_FIELDS = frozenset({"object", "created", *Answer.__struct_fields__})
_CHOICE_FIELDS = frozenset(Choice.__struct_fields__)
_MESSAGE_FIELDS = frozenset({"role", *MessagePiece.__struct_fields__})

_decode_event = msgspec.json.Decoder(Event).decode
_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_usage = msgspec.json.Decoder(WireUsage).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    # Gemini's Chat endpoint wraps its errors in a list.
    if error := listed_error(body):
        raise map_inline_error(error)
    answer = read_json(_decode_answer, body, "the answer is not a chat completion")
    if answer.error:
        raise map_inline_error(answer.error)
    choice = next((choice for choice in answer.choices or () if not choice.index), None)
    if choice is None:
        raise MalformedResponse("the answer holds no choices")
    if choice.error:
        raise map_inline_error(choice.error)
    collected = _Collector()
    collected.learn_names(answer)
    collected.add(choice.message or MessagePiece(), [])
    collected.usage = answer.usage
    # The body is whole, so a server that names no reason has simply come to its end.
    return collected.reply(choice.finish_reason)


def further(body: bytes) -> JSONObject:
    """The fields that are read nowhere here: of the answer, of its one choice, of the message."""
    answer: Any = read_object(body)
    found = beyond(answer, _ANSWER_FIELDS)
    match answer:
        case {"choices": [{"message": message} as first, *_]}:
            choice = beyond(first, _CHOICE_FIELDS)
            if said := beyond(message, _MESSAGE_FIELDS):
                choice["message"] = said
            if choice:
                found["choices"] = [choice]
        case _:
            pass
    return found


class ChatStreamDecoder(StreamReader[ServerSentEvent]):
    """The stream of a chat completion; it ends with `[DONE]`, or with the body.

    `[DONE]` is enough for services that never give a `finish_reason`, and so is a `finish_reason`
    for those that never send `[DONE]`.
    """

    __slots__ = ("_collected", "_done", "_reason")

    end_mark = "a finish_reason or `[DONE]`"
    content = "choices"

    def __init__(self) -> None:
        """Expect the first event."""
        super().__init__()
        self._collected = _Collector()
        self._reason: str | None = None
        self._done = False

    def _read(self, frames: Sequence[ServerSentEvent], events: list[ProviderEvent]) -> None:
        add = self._collected.add
        settled = self._settled
        read = _decode_event if settled else _decode_answer
        for frame in frames:
            try:
                event = read(frame.data)
            except (ValueError, RecursionError) as unread:
                if frame.data.strip() == DONE:
                    break
                if frame.event == "error" or listed_error(frame.data):
                    raise map_inline_error(frame.data) from unread
                # Behind the reason there is no more of the answer.
                if self._reason is None and may_hold_content(frame):
                    raise self._unreadable(unread) from unread
                continue
            if not settled and isinstance(event, Answer):
                self._collected.learn_names(event)
            choices = event.choices
            if choices:
                for choice in choices:
                    if not choice.index:
                        if choice.delta is not None:
                            add(choice.delta, events)
                        if choice.error:
                            raise map_inline_error(choice.error)
                        if meaning_of(choice.finish_reason) != "none":
                            self._reason = choice.finish_reason
            # Most events end here: they are one piece of text, and nothing else is new.
            if settled and choices and event.error is None and not has_counts(event.usage):
                continue
            self._take_rest(event, frame)
            settled = self._settled
            read = _decode_event if settled else _decode_answer
        else:
            return
        # Only `[DONE]` leaves the loop before its end.
        self._done = self._begun
        self._end(events)

    @property
    def _settled(self) -> bool:
        return self._begun and self._collected.named

    def _take_rest(self, event: Event, frame: ServerSentEvent) -> None:
        if event.choices:
            self._begun = True
        if has_counts(event.usage):
            self._collected.usage = event.usage
        error = event.error
        if not error and not event.choices and frame.event == "error":
            error = frame.data
        if error:
            raise map_inline_error(error)

    def _partial(self) -> str:
        return self._collected.partial

    def _reply(self) -> Reply | None:
        if self._reason is None and not self._done:
            return None
        return self._collected.reply(self._reason)


class _Collector:
    """Keeps what one answer has said, whether it came whole or in pieces."""

    __slots__ = ("_assembler", "_calls", "_refusal", "_run", "model", "response_id", "usage")

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._run = self._assembler.run
        self._calls = CallPlaces()
        self._refusal: list[str] = []
        self.usage = msgspec.Raw()
        self.response_id: str | None = None
        self.model: str | None = None

    def learn_names(self, answer: Answer) -> None:
        """Take over the id and the model, which any event may bring."""
        self.response_id = self.response_id or answer.id
        self.model = self.model or answer.model

    @property
    def named(self) -> bool:
        """Whether the id and the model are known."""
        return bool(self.response_id and self.model)

    @property
    def partial(self) -> str:
        """All text so far."""
        return self._assembler.partial_text

    def add(self, piece: MessagePiece, events: list[ProviderEvent]) -> None:
        """Take the next piece, and append the events that tell of it."""
        thought = piece.reasoning_content or piece.reasoning
        if thought:
            self._assembler.reasoning(thought)
            events.append(ReasoningDelta(thought))
        content = piece.content
        if content:
            if isinstance(content, str):
                self._run.append(content)
                events.append(Chunk(content))
            else:
                self._add_parts(content, events)
        if piece.tool_calls:
            for call in piece.tool_calls:
                self._add_call(call, events)
        if piece.refusal:
            self._refusal.append(piece.refusal)

    def reply(self, reason: str | None) -> Reply:
        """The whole answer; raises the error that it ended with, such as ContentRejected."""
        if self._refusal:
            refusal = "".join(self._refusal)
            raise ContentRejected(f"the model refused: {refusal[:500]}", partial=self.partial)
        check_ending(reason, partial=self.partial)
        content = self._assembler.content(cut=is_cut(reason))
        if any(isinstance(part, ToolUse) and not part.name for part in content):
            raise MalformedResponse("a tool call has no name")
        return Reply(
            content,
            self.model or "",
            stop_reason(reason, content),
            read_counts(self.usage, _decode_usage, _usage),
            self.response_id,
            reason or None,
            stop_detail=stop_detail(reason),
        )

    def _add_parts(self, parts: list[ContentPart], events: list[ProviderEvent]) -> None:
        for part in parts:
            if part.text:
                self._run.append(part.text)
                events.append(Chunk(part.text))
            thought = part.thinking
            if isinstance(thought, list):
                thought = "".join(inner.text or "" for inner in thought)
            if thought:
                self._assembler.reasoning(thought)
                events.append(ReasoningDelta(thought))

    def _add_call(self, piece: ToolCallPiece, events: list[ProviderEvent]) -> None:
        function = piece.function or FunctionPiece()
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        slot, id, name = self._calls.place(
            piece.index, piece.id or "", function.name or "", self.response_id
        )
        if id or name or arguments:
            self._assembler.tool(slot, id=id, name=name, arguments=arguments)
            events.append(ToolUseDelta(slot, id, name, arguments))


def _usage(usage: WireUsage) -> Usage:
    details = usage.completion_tokens_details
    if details is None and usage.reasoning_tokens is not None:
        details = OutputDetails(usage.reasoning_tokens)
    return counted(
        usage.prompt_tokens,
        _written(usage),
        usage.prompt_tokens_details,
        details,
        usage.prompt_audio_seconds,
    )


def _written(usage: WireUsage) -> int | None:
    """All that is charged as output: some do not count their thinking among the completion."""
    read, written, apart = usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens
    details = usage.completion_tokens_details
    if details is None and written is not None:
        return written + (apart or 0)
    if details is None or read is None or written is None or not details.reasoning_tokens:
        return written
    # xAI's total tells: prompt, completion and thinking are what it is the sum of.
    with_thinking = written + details.reasoning_tokens
    return with_thinking if usage.total_tokens == read + with_thinking else written
