"""Answers out: a `Result`, or the events of a stream, in the words of Chat Completions.

Thinking is `reasoning_content`, as DeepSeek, vLLM and most clients call it. Usage that the provider
did not count is left out, because this wire has no way to say that a number is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from penstock.contract.errors import RequestCancelled
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
from penstock.contract.exchange import Result, Usage
from penstock.contract.messages import JSONObject, ToolUse
from penstock.server.answer_headers import stream_end_facts
from penstock.server.doors.passthrough import extra_of, filled
from penstock.server.errors import OPENAI_ERRORS, failure_of

_FINISH_REASONS: Mapping[str, str] = {
    "endTurn": "stop",
    "stopSequence": "stop",
    "maxTokens": "length",
    "toolUse": "tool_calls",
}


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct, gc=False, kw_only=True):
    id: str
    type: str = "function"
    function: _Function


class _Message(msgspec.Struct, gc=False, kw_only=True):
    role: str = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[_ToolCall] | msgspec.UnsetType = msgspec.UNSET


class _Choice(msgspec.Struct, gc=False, kw_only=True):
    index: int = 0
    message: _Message
    logprobs: None = None
    finish_reason: str


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _InputDetails | msgspec.UnsetType = msgspec.UNSET
    completion_tokens_details: _OutputDetails | msgspec.UnsetType = msgspec.UNSET


class _Completion(msgspec.Struct, gc=False, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[_Choice]
    usage: _Usage | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.Encoder().encode
WIRE_ANSWER: type[msgspec.Struct] = _Completion
"""What is written here, for the OpenAPI document."""


def encode(result: Result) -> bytes:
    """The `chat.completion` object."""
    calls = [_tool_call(use) for use in result.tool_uses]
    message = _Message(
        content=result.text or (None if calls else ""),
        reasoning_content=result.reasoning or msgspec.UNSET,
        tool_calls=calls or msgspec.UNSET,
    )
    completion = _Completion(
        id=completion_id(result.request_id),
        created=int(time.time()),
        model=result.model,
        choices=[_Choice(message=message, finish_reason=_finish_reason(result))],
        usage=_usage(result.usage),
    )
    further = extra_of(result, "openai-chat")
    return _encode(_with(completion, further) if further else completion)


def _with(completion: _Completion, further: JSONObject) -> JSONObject:
    """The completion with what else the provider has said, at the same places."""
    own: JSONObject = msgspec.to_builtins(completion)
    for choice in further.get("choices", ()):
        message = filled(own["choices"][0]["message"], choice.get("message", {}))
        own["choices"] = [filled({**own["choices"][0], "message": message}, choice)]
    return filled(own, further)


class ChunkEncoder:
    """Writes the events of one stream; all that repeats in its chunks is made once."""

    __slots__ = ("_begun", "_close", "_head", "_text_head", "_usage_wanted", "ended")

    def __init__(self, request_id: str, model: str, *, include_usage: bool) -> None:
        """With `include_usage` every chunk has the field, null but for the last, as at OpenAI."""
        self._head = (
            b'data: {"id":"%b","object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (completion_id(request_id).encode(), int(time.time()), _encode(model))
        )
        self._close = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._text_head = self._head + b'{"index":0,"delta":{"content":'
        self._usage_wanted = include_usage
        self._begun = False
        self.ended = False
        """Whether the stream's last event has been written."""

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        """The chunks of these events, one after the other."""
        pieces: list[bytes] = []
        if not self._begun:
            self._begun = True
            pieces.append(self._chunk(b'{"role":"assistant","content":"","refusal":null}'))
        head, tail = self._text_head, b'},"logprobs":null,"finish_reason":null}' + self._close
        for event in events:
            if type(event) is Chunk:
                pieces += (head, _encode(event.text), tail)
            else:
                pieces.append(self._other(event))
        return b"".join(pieces)

    def _other(self, event: StreamEvent) -> bytes:
        if isinstance(event, ReasoningDelta):
            if event.signed is not None:
                return b""  # This wire has no place for signatures.
            return self._chunk(b'{"reasoning_content":%b}' % _encode(event.text))
        if isinstance(event, ToolUseDelta):
            return self._chunk(b'{"tool_calls":[%b]}' % _tool_delta(event))
        if isinstance(event, ToolStarted | ToolEnded):
            # Somebody else runs this tool; a `tool_calls` would ask the client to.
            return b""
        self.ended = True
        if isinstance(event, Complete):
            return self._complete(event.result)
        error = event.error if isinstance(event, Error) else RequestCancelled("it was cancelled")
        return OPENAI_ERRORS.event(failure_of(error))

    def _complete(self, result: Result) -> bytes:
        last = self._chunk(b"{}", _encode(_finish_reason(result)))
        pieces = [stream_end_facts(result.metadata), last]
        usage = _usage(result.usage)
        if self._usage_wanted and usage is not msgspec.UNSET:
            pieces.append(self._head + b'],"usage":%b}\n\n' % _encode(usage))
        pieces.append(b"data: [DONE]\n\n")
        return b"".join(pieces)

    def _chunk(self, delta: bytes, reason: bytes = b"null") -> bytes:
        choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}' % (delta, reason)
        return self._head + choice + self._close


def completion_id(request_id: str) -> str:
    """The id of the answer on this wire; the rest of it is the request's own."""
    return f"chatcmpl-{request_id.removeprefix('req_')}"


def _tool_call(use: ToolUse) -> _ToolCall:
    return _ToolCall(id=use.id, function=_Function(use.name, _encode(use.input).decode()))


def _tool_delta(delta: ToolUseDelta) -> bytes:
    if not delta.id and not delta.name:
        return b'{"index":%d,"function":{"arguments":%b}}' % (delta.index, _encode(delta.arguments))
    return b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}' % (
        delta.index,
        _encode(delta.id),
        _encode(delta.name),
        _encode(delta.arguments),
    )


def _finish_reason(result: Result) -> str:
    # An unknown reason is no normal end: of the reasons of this wire, `length` is the nearest.
    known = _FINISH_REASONS.get(result.stop_reason)
    return known or ("tool_calls" if result.tool_uses else "length")


def _usage(usage: Usage) -> _Usage | msgspec.UnsetType:
    if usage.input_tokens is None or usage.output_tokens is None:
        return msgspec.UNSET
    cached, thought = usage.cached_input_tokens, usage.reasoning_tokens
    return _Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens + usage.output_tokens,
        msgspec.UNSET if cached is None else _InputDetails(cached),
        msgspec.UNSET if thought is None else _OutputDetails(thought),
    )
