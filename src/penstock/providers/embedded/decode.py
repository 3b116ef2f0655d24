"""Reads llama.cpp's chunks as events, and its failures as our errors; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, cast

import msgspec
from pydantic_core import from_json

from penstock.contract.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, StopReason, Usage
from penstock.contract.messages import JSONObject
from penstock.providers.embedded.encode import ChatCall
from penstock.providers.wire.endings import check_ending, is_cut, stop_detail, stop_reason
from penstock.streaming.assemble import Assembler
from penstock.streaming.stop_sequences import StopScanner

_REPLY_KEY = re.compile(r'^\s*\{\s*"reply"\s*:\s*')


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Timings(msgspec.Struct):
    cache_n: int = 0
    prompt_n: int = 0
    predicted_n: int = 0


class _Failure(msgspec.Struct):
    message: str = "llama.cpp failed without a word"
    code: int | None = None
    type: str = ""


class _Wire(msgspec.Struct):
    id: str | None = None
    choices: list[_Choice] = msgspec.field(default_factory=list[_Choice])
    timings: _Timings | None = None
    error: _Failure | None = None


_decode_chunk = msgspec.json.Decoder(_Wire).decode


class Decoder:
    """Turns the chunks of one answer into events; made anew for each call."""

    def __init__(self, call: ChatCall, *, model: str) -> None:
        """`model` is the name that the reply carries."""
        self.finished = False
        """The terminal event is out; what llama.cpp may still say does not matter."""
        self._model = model
        self._call = call
        self._reader: _Reader = _CallReader(call.prefix) if call.calls else _TextReader()
        # llama.cpp could do this, but it would look at the JSON around a reply, and it does not say
        # whether a stop sequence or the end of the answer made it stop.
        self._stops = StopScanner(call.stop_sequences)
        self._assembler = Assembler()
        self._usage = Usage()
        self._response_id: str | None = None

    def feed(self, chunks: Sequence[str]) -> list[ProviderEvent]:
        """The events of these chunks; raises the error that one of them reports."""
        events: list[ProviderEvent] = []
        for chunk in chunks:
            if self.finished:
                break
            self._advance(self._read(chunk), events)
        return events

    def finish(self) -> list[ProviderEvent]:
        """At the end of the chunks: nothing more, or StreamInterrupted when there was no end."""
        if not self.finished:
            raise StreamInterrupted(
                "llama.cpp stopped before the end of its answer",
                partial=self._assembler.partial_text,
            )
        return []

    def _read(self, chunk: str) -> _Wire:
        try:
            wire = _decode_chunk(chunk)
        except msgspec.DecodeError as error:
            raise StreamInterrupted(
                f"a part of llama.cpp's answer cannot be read: {error}",
                partial=self._assembler.partial_text,
            ) from error
        if wire.error is not None:
            raise _reported(wire.error)
        self._response_id = self._response_id or wire.id
        if wire.timings is not None:
            self._usage = Usage(
                input_tokens=wire.timings.cache_n + wire.timings.prompt_n,
                output_tokens=wire.timings.predicted_n,
                cached_input_tokens=wire.timings.cache_n,
            )
        return wire

    def _advance(self, wire: _Wire, events: list[ProviderEvent]) -> None:
        for choice in wire.choices:
            if choice.delta.reasoning_content:
                self._assembler.reasoning(choice.delta.reasoning_content)
                events.append(ReasoningDelta(choice.delta.reasoning_content))
            if choice.delta.content:
                text = self._stops.push(self._reader.push(choice.delta.content))
                self._say(text, events)
                if self._stops.hit is not None:
                    self._end("stopSequence", events)
                    return
            if choice.finish_reason is not None:
                self._conclude(choice.finish_reason, events)
                return

    def _conclude(self, finish_reason: str, events: list[ProviderEvent]) -> None:
        check_ending(finish_reason, partial=self._assembler.partial_text)
        truncated = is_cut(finish_reason)
        text, call = self._reader.end(truncated=truncated)
        self._say(self._stops.push(text), events)
        if self._stops.hit is not None:
            self._end("stopSequence", events)
            return
        self._say(self._stops.rest(), events)
        if call is not None:
            delta = ToolUseDelta(0, self._call.call_id, call[0], call[1])
            self._assembler.tool(0, id=delta.id, name=delta.name, arguments=delta.arguments)
            events.append(delta)
            self._end("toolUse", events)
        else:
            self._end(stop_reason(finish_reason, ()), events, stop_detail(finish_reason))

    def _say(self, text: str, events: list[ProviderEvent]) -> None:
        if text:
            self._assembler.text(text)
            events.append(Chunk(text))

    def _end(
        self, reason: StopReason, events: list[ProviderEvent], detail: str | None = None
    ) -> None:
        self.finished = True
        reply = Reply(
            content=self._assembler.content(),
            model=self._model,
            stop_reason=reason,
            usage=self._usage,
            response_id=self._response_id,
            response_status="length" if reason == "maxTokens" else "stop",
            stop_detail=detail,
            stop_sequence=self._stops.hit,
        )
        events.append(Finished(reply))


class _Reader(Protocol):
    """Finds the answer in what the model writes."""

    def push(self, written: str) -> str:
        """The text that this makes visible."""
        ...

    def end(self, *, truncated: bool) -> tuple[str, tuple[str, str] | None]:
        """The last of the text, and the call: a tool's name and its arguments as JSON."""
        ...


class _TextReader:
    """What is written is what is said."""

    def push(self, written: str) -> str:
        return written

    def end(self, *, truncated: bool) -> tuple[str, tuple[str, str] | None]:
        del truncated
        return "", None


class _CallReader:
    """What is written is one JSON object: a reply, said while it grows, or a call."""

    def __init__(self, prefix: str) -> None:
        self._written = prefix
        self._said = len(_reply_text(prefix))

    def push(self, written: str) -> str:
        self._written += written
        reply = _reply_text(self._written)
        said, self._said = self._said, len(reply)
        return reply[said:]

    def end(self, *, truncated: bool) -> tuple[str, tuple[str, str] | None]:
        if truncated:
            # A structured reply is not said while it grows, so that what there is comes now.
            key = _REPLY_KEY.match(self._written)
            structured = key is not None and not self._written.startswith('"', key.end())
            return (self._written[key.end() :] if key and structured else ""), None
        try:
            answer = msgspec.json.decode(self._written, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise MalformedResponse(
                f"llama.cpp left its grammar: {self._written[:200]!r}"
            ) from error
        if "name" in answer:
            arguments = msgspec.json.encode(answer.get("arguments", {})).decode()
            return "", (str(answer["name"]), arguments)
        reply = answer.get("reply")
        return ("" if isinstance(reply, str) else msgspec.json.encode(reply).decode()), None


def _reply_text(written: str) -> str:
    """The reply in a JSON object of which the end may be missing."""
    if not written:
        return ""
    try:
        answer: Any = from_json(written, allow_partial="trailing-strings")
    except ValueError:
        return ""
    reply: Any = cast(JSONObject, answer).get("reply") if isinstance(answer, dict) else None
    return reply if isinstance(reply, str) else ""


_REASON = re.compile(
    r"^.*(?:generation failed|conversion failed|schema error at [^ ]*):\s*", re.DOTALL
)
"""What llama.cpp says before the reason."""
_LEFT_GRAMMAR = "the embedded model's answer is not JSON: try again, or simplify the schema"
_NO_GRAMMAR = "the embedded model cannot follow the schema: it is too large, so simplify it"


def _reported(failure: _Failure) -> PenstockError:
    if failure.type == "exceed_context_size_error":
        said = failure.message.partition(", try")[0]
        return ContextLengthExceeded(
            f"{said}; send less, or raise `context` of the provider", status=failure.code
        )
    if "parse grammar" in failure.message:
        return InvalidRequest(_NO_GRAMMAR, status=failure.code)
    if "peg-native" in failure.message:
        return ProviderUnavailable(_LEFT_GRAMMAR, status=failure.code)
    if failure.code is not None and 400 <= failure.code < 500:
        return InvalidRequest(failure.message, status=failure.code)
    return ProviderUnavailable(failure.message, status=failure.code)


def failure(error: Exception, *, constrained: bool = False) -> PenstockError:
    """What the runtime raised, in our words; `constrained` says that a schema was to be kept to."""
    if isinstance(error, ValueError):
        # A schema that has no grammar, or messages that the model's template refuses.
        said = _REASON.sub("", str(error)).strip()
        if constrained:
            return InvalidRequest(
                f"the embedded model cannot follow the schema ({said}): simplify it", status=400
            )
        return InvalidRequest(f"llama.cpp refuses the request: {said}", status=400)
    hint = "; if the schema is large, simplify it" if constrained else ""
    return ProviderUnavailable(f"llama.cpp failed: {error}{hint}", retryable=False)
