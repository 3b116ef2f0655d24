"""Answers in: the body of a reply, or the lines of a stream, become a `Reply`.

The wire has no id of a response, and mostly none of a call: call ids are made up, unique over the
rounds of a conversation because a part of them is random for each answer. Tool calls come whole.
`done: true` is the terminal line; it brings the reason and the counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import ToolUse
from penstock.providers.ollama import tool_names
from penstock.providers.ollama.errors import map_inline_error
from penstock.providers.ollama.shapes import Answer, Function, Line, Piece, ToolCall
from penstock.providers.wire.endings import check_ending, is_cut, stop_detail, stop_reason
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.stream_reader import NO_CONTENT, StreamReader
from penstock.providers.wire.token_counts import count_of
from penstock.streaming.assemble import Assembler

_decode_line = msgspec.json.Decoder(Line).decode
_decode_answer = msgspec.json.Decoder(Answer).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    answer = read_json(_decode_answer, body, "the answer is not a chat response")
    if answer.error:
        raise map_inline_error(body)
    if answer.message is None or not answer.done:
        raise MalformedResponse("the answer holds no finished message")
    collected = _Collector()
    collected.add(answer.message, [])
    return collected.reply(answer)


class OllamaStreamDecoder(StreamReader[bytes]):
    """The lines of one answer; it ends with `done: true`."""

    __slots__ = ("_collected",)

    end_mark = "`done`"
    content = "message"

    def __init__(self) -> None:
        """Expect the first line."""
        super().__init__()
        self._collected = _Collector()

    def _read(self, frames: Sequence[bytes], events: list[ProviderEvent]) -> None:
        add = self._collected.add
        for frame in frames:
            try:
                line = _decode_line(frame)
            except (ValueError, RecursionError) as unread:
                if frame in NO_CONTENT:
                    continue
                raise self._unreadable(unread) from unread
            piece = line.message
            if piece is not None:
                self._begun = True
                add(piece, events)
                if not line.done and line.error is None:
                    continue
            if line.error:
                raise map_inline_error(frame)
            if line.done:
                events.append(Finished(self._collected.reply(_last_line(frame))))
                self._ended = True
                break

    def _partial(self) -> str:
        return self._collected.partial


def _last_line(frame: bytes) -> Answer:
    return read_json(_decode_answer, frame, "the last line is malformed")


class _Collector:
    """Keeps what one answer has said, whether it came whole or in pieces."""

    __slots__ = ("_assembler", "_calls", "_ids", "_run", "_scope")

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._run = self._assembler.run
        self._ids: set[str] = set()
        self._calls = 0
        self._scope = ""

    @property
    def partial(self) -> str:
        """All text so far."""
        return self._assembler.partial_text

    def add(self, piece: Piece, events: list[ProviderEvent]) -> None:
        """Take the next piece, and append the events that tell of it."""
        if piece.thinking:
            self._assembler.reasoning(piece.thinking)
            events.append(ReasoningDelta(piece.thinking))
        if piece.content:
            self._run.append(piece.content)
            events.append(Chunk(piece.content))
        if piece.tool_calls:
            for call in piece.tool_calls:
                self._add_call(call, events)

    def reply(self, answer: Answer) -> Reply:
        """The whole answer, with what its last line says."""
        reason = answer.done_reason
        check_ending(reason, partial=self.partial)
        content = self._assembler.content(cut=is_cut(reason))
        if any(isinstance(part, ToolUse) and not part.name for part in content):
            raise MalformedResponse("a tool call has no name")
        return Reply(
            content,
            answer.model or "",
            stop_reason(reason, content),
            Usage(count_of(answer.prompt_eval_count), count_of(answer.eval_count)),
            None,
            reason,
            stop_detail=stop_detail(reason),
        )

    def _add_call(self, call: ToolCall, events: list[ProviderEvent]) -> None:
        function = call.function or Function()
        arguments = function.arguments or {}
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        slot = self._calls
        self._calls += 1
        id = call.id
        if not id or id in self._ids:
            self._scope = self._scope or secrets.token_hex(6)
            id = f"call_{self._scope}_{slot}"
        self._ids.add(id)
        name = tool_names.from_wire(function.name or "")
        self._assembler.tool(slot, id=id, name=name, arguments=arguments)
        events.append(ToolUseDelta(slot, id, name, arguments))
