"""Answers in: the body of a reply, or the lines of a stream, become a `Reply`.

The wire has no id of a response, and mostly none of a call: call ids are made up, unique over the
rounds of a conversation because a part of them is random for each answer. Tool calls come whole.
`done: true` is the terminal line; it brings the reason and the counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import msgspec

from penstock.contract.errors import MalformedResponse, PenstockError, StreamInterrupted
from penstock.contract.events import (
    Chunk,
    Finished,
    ProviderEvent,
    ReasoningDelta,
    ToolUseDelta,
)
from penstock.contract.exchange import Reply, StopReason, Usage
from penstock.contract.messages import ToolUse
from penstock.providers.ollama import tool_names
from penstock.providers.ollama.errors import map_inline_error
from penstock.providers.ollama.shapes import Answer, Function, Line, Piece, ToolCall
from penstock.streaming.assemble import Assembler

_STOP_REASONS: Mapping[str, StopReason] = {"stop": "endTurn", "length": "maxTokens"}

_decode_line = msgspec.json.Decoder(Line).decode
_decode_answer = msgspec.json.Decoder(Answer).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    try:
        answer = _decode_answer(body)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"the answer is no chat response: {error}") from error
    if answer.error:
        raise map_inline_error(body)
    if answer.message is None or not answer.done:
        raise MalformedResponse("the answer holds no finished message")
    collected = _Collector()
    collected.add(answer.message, [])
    return collected.reply(answer)


class OllamaStreamDecoder:
    """Turns the lines of one stream into deltas and, at its end, the whole reply.

    A typed error that follows deltas in the same batch is raised by the next call, so that no text
    that has arrived is lost.
    """

    __slots__ = ("_begun", "_collected", "_empty", "_ended", "_error", "malformed")

    def __init__(self) -> None:
        """Expect the first line."""
        self._collected = _Collector()
        self._empty = True
        self._begun = False
        self._ended = False
        self._error: PenstockError | None = None
        self.malformed = 0
        """How many lines were skipped because they could not be read."""

    def feed(self, frames: Sequence[bytes]) -> list[ProviderEvent]:
        """The deltas that these lines hold; `Finished` comes with `done: true`."""
        self._raise_held()
        events: list[ProviderEvent] = []
        if self._ended or not frames:
            return events
        self._empty = False
        add = self._collected.add
        for frame in frames:
            try:
                line = _decode_line(frame)
            except (ValueError, RecursionError):
                self.malformed += 1
                continue
            piece = line.message
            if piece is not None:
                self._begun = True
                add(piece, events)
                if not line.done and line.error is None:
                    continue
            if line.error:
                self._ended = True
                self._error = map_inline_error(frame)
            elif line.done:
                self._end(frame, events)
            else:
                self.malformed += piece is None
                continue
            break
        if not events:
            self._raise_held()
        return events

    def finish(self) -> list[ProviderEvent]:
        """The end of the body, which is too early if the terminal line has not come."""
        self._raise_held()
        if not self._ended:
            self._ended = True
            if self._begun or self._empty:
                raise StreamInterrupted(
                    "the stream ended before `done` came", partial=self._collected.partial
                )
            raise MalformedResponse("the stream holds no message")
        return []

    def _end(self, frame: bytes, events: list[ProviderEvent]) -> None:
        self._ended = True
        try:
            events.append(Finished(self._collected.reply(_decode_answer(frame))))
        except PenstockError as error:
            self._error = error
        except (ValueError, RecursionError) as error:
            self._error = MalformedResponse(f"the last line is malformed: {error}")

    def _raise_held(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


class _Collector:
    """Keeps what one answer has said, whether it came whole or in pieces."""

    __slots__ = ("_assembler", "_ids", "_run", "_scope")

    def __init__(self) -> None:
        self._assembler = Assembler()
        # The text since the last part of another kind: one call of the assembler for a whole run.
        self._run: list[str] = []
        self._ids: list[str] = []
        self._scope = ""

    @property
    def partial(self) -> str:
        """All text so far."""
        return self._parts().partial_text

    def add(self, piece: Piece, events: list[ProviderEvent]) -> None:
        """Take the next piece, and append the events that tell of it."""
        if piece.thinking:
            self._parts().reasoning(piece.thinking)
            events.append(ReasoningDelta(piece.thinking))
        if piece.content:
            self._run.append(piece.content)
            events.append(Chunk(piece.content))
        if piece.tool_calls:
            for call in piece.tool_calls:
                self._add_call(call, events)

    def reply(self, answer: Answer) -> Reply:
        """The whole answer, with what its last line says."""
        reason = answer.done_reason or "stop"
        content = self._parts().content(cut=reason == "length")
        calls = [part for part in content if isinstance(part, ToolUse)]
        if not all(call.name for call in calls):
            raise MalformedResponse("a tool call has no name")
        return Reply(
            content,
            answer.model or "",
            "toolUse" if calls else _STOP_REASONS.get(reason, reason),
            Usage(answer.prompt_eval_count, answer.eval_count),
            None,
            reason,
        )

    def _parts(self) -> Assembler:
        if self._run:
            self._assembler.text("".join(self._run))
            self._run.clear()
        return self._assembler

    def _add_call(self, call: ToolCall, events: list[ProviderEvent]) -> None:
        function = call.function or Function()
        arguments = function.arguments or {}
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        slot = len(self._ids)
        id = call.id
        if not id or id in self._ids:
            self._scope = self._scope or secrets.token_hex(6)
            id = f"call_{self._scope}_{slot}"
        self._ids.append(id)
        name = tool_names.from_wire(function.name or "")
        self._parts().tool(slot, id=id, name=name, arguments=arguments)
        events.append(ToolUseDelta(slot, id, name, arguments))
