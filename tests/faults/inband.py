"""Each dialect's own errors inside an answer whose status is 200."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock import (
    ContentRejected,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from tests.faults.answer import Answer
from tests.support.wire.bedrock import frames
from tests.support.wire.scenario import Failure, FailureKind, Stop

Write = Callable[[Answer], bytes]


@dataclass(frozen=True, slots=True)
class InBand:
    """One such error."""

    kind: str
    """The provider that has it."""
    error: type[PenstockError]
    """What the caller gets when nobody else can answer."""
    event: Write
    """As it stands in a stream."""
    whole: Write
    """As it stands in the body of an answer that is not a stream."""
    only_first: bool = False
    """Whether it can only come in place of an answer, and not in its middle."""

    @property
    def final(self) -> bool:
        """Whether nobody else is asked: the request is at fault, or what was to be said."""
        return issubclass(self.error, ContentRejected | InvalidRequest)


def _reported(kind: str, error: type[PenstockError], failure: FailureKind) -> InBand:
    """As the wire's own encoder writes it."""
    said = Failure(failure)
    return InBand(
        kind,
        error,
        lambda answer: answer.dialect.error_event(said).data,
        lambda answer: answer.dialect.error(said, answer.seen).body,
    )


def _filtered(kind: str) -> InBand:
    """The answer's own end says that a filter stopped it."""
    return InBand(kind, ContentRejected, _rest, lambda answer: answer.body(stop="filtered"))


def _rest(answer: Answer, stop: Stop = "filtered") -> bytes:
    """The end of an answer that stopped so, and had no more text than was sent."""
    said = sum(frame.piece for frame in answer.played)
    events = [frame.data for frame in answer.frames(answer.words[:said], stop)]
    played = [frame.data for frame in answer.played]
    while events and played and events[0] == played[0]:
        del events[0], played[0]
    return b"".join(events)


_END: Mapping[str, bytes] = {
    "OpenAIChat": b'"stop"',
    "OpenAIResponses": b'"completed"',
    "Anthropic": b'"end_turn"',
    "Gemini": b'"STOP"',
    "Bedrock": b'"end_turn"',
    "Ollama": b'"stop"',
}
"""What each wire calls a normal end."""


def renamed(answer: Answer, data: bytes, reason: str | None) -> bytes:
    """A body, or an event, with this reason in place of a normal end."""
    end = _END[type(answer.dialect).__name__]
    return data.replace(end, json.dumps(reason).encode())


def _ended(kind: str, reason: str, error: type[PenstockError]) -> InBand:
    """A reason that stands for a failure."""

    def event(answer: Answer) -> bytes:
        if kind == "bedrock":
            return frames.event("messageStop", {"stopReason": reason})
        return renamed(answer, _rest(answer, "end"), reason)

    return InBand(kind, error, event, lambda answer: renamed(answer, answer.body(), reason))


_IN_CHOICE: dict[str, Any] = {
    "index": 0,
    "finish_reason": "error",
    "error": {"code": 502, "message": "Provider disconnected"},
}
"""OpenRouter's report of what stopped the provider behind it."""


def _choice_event(answer: Answer) -> bytes:
    choice = _IN_CHOICE | {"delta": {"content": ""}}
    return b"data: %b\n\n" % json.dumps({"id": "answer-1", "choices": [choice]}).encode()


def _choice_body(answer: Answer) -> bytes:
    whole = json.loads(answer.body())
    whole["choices"][0] |= _IN_CHOICE
    return json.dumps(whole).encode()


def _finish(reason: str, error: type[PenstockError]) -> InBand:
    """Gemini's other reasons to end an answer."""

    def renamed(data: bytes) -> bytes:
        assert b'"SAFETY"' in data
        return data.replace(b'"SAFETY"', json.dumps(reason).encode())

    return InBand(
        "gemini",
        error,
        lambda answer: renamed(_rest(answer)),
        lambda answer: renamed(answer.body(stop="filtered")),
    )


def _response(status: str, error: type[PenstockError], code: str | None = None) -> InBand:
    """A response that ends otherwise than `completed`."""

    def response(answer: Answer) -> dict[str, Any]:
        failed = None if code is None else {"code": code, "message": "It failed."}
        whole = json.loads(answer.body())
        return whole | {"status": status, "error": failed, "output": [], "usage": None}

    def event(answer: Answer) -> bytes:
        kind = f"response.{status}"
        said = {"type": kind, "response": response(answer), "sequence_number": 99}
        return f"event: {kind}\ndata: {json.dumps(said)}\n\n".encode()

    return InBand("openai", error, event, lambda answer: json.dumps(response(answer)).encode())


def _google(failure: FailureKind, error: type[PenstockError], *, first: bool = False) -> InBand:
    """The bare object, as streams of `alt=sse` carry it."""
    said = Failure(failure)

    def body(answer: Answer) -> bytes:
        return answer.dialect.error(said, answer.seen).body

    return InBand(
        "gemini", error, lambda answer: b"data: " + body(answer) + b"\r\n\r\n", body, first
    )


def _exception(name: str, error: type[PenstockError]) -> InBand:
    """One of Bedrock's exceptions that only a stream has."""
    said = {"message": "It failed."}
    return InBand(
        "bedrock",
        error,
        lambda answer: frames.exception(name, said),
        lambda answer: json.dumps({"__type": name, **said}).encode(),
    )


INBAND: dict[str, InBand] = {
    "openai-error-server": _reported("openai", ProviderUnavailable, "server_error"),
    "openai-error-rate": _reported("openai", RateLimited, "rate_limit"),
    "openai-failed-server": _response("failed", ProviderUnavailable, "server_error"),
    "openai-failed-rate": _response("failed", RateLimited, "rate_limit_exceeded"),
    "openai-failed-prompt": _response("failed", ContentRejected, "invalid_prompt"),
    "openai-cancelled": _response("cancelled", ProviderUnavailable),
    "openai-incomplete-filter": _filtered("openai"),
    "openai-chat-server": _reported("openai-chat", ProviderUnavailable, "server_error"),
    "openai-chat-rate": _reported("openai-chat", RateLimited, "rate_limit"),
    "openai-chat-overloaded": _reported("openai-chat", ProviderUnavailable, "overloaded"),
    "openai-chat-filter": _filtered("openai-chat"),
    "openai-chat-error": _ended("openai-chat", "error", ProviderUnavailable),
    "openai-chat-abort": _ended("openai-chat", "abort", ProviderUnavailable),
    "openai-chat-resources": _ended(
        "openai-chat", "insufficient_system_resource", ProviderUnavailable
    ),
    "openai-chat-choice": InBand("openai-chat", ProviderUnavailable, _choice_event, _choice_body),
    "anthropic-error": _ended("anthropic", "error", ProviderUnavailable),
    "anthropic-overloaded": _reported("anthropic", ProviderUnavailable, "overloaded"),
    "anthropic-api": _reported("anthropic", ProviderUnavailable, "server_error"),
    "anthropic-rate": _reported("anthropic", RateLimited, "rate_limit"),
    "anthropic-invalid": _reported("anthropic", InvalidRequest, "bad_request"),
    "anthropic-refusal": _filtered("anthropic"),
    "gemini-unavailable": _google("overloaded", ProviderUnavailable),
    "gemini-internal": _google("server_error", ProviderUnavailable),
    "gemini-exhausted": _google("rate_limit", RateLimited),
    "gemini-invalid": _google("bad_request", InvalidRequest),
    "gemini-listed": _reported("gemini", ProviderUnavailable, "overloaded"),
    "gemini-blocked": _google("content_filter", ContentRejected, first=True),
    "gemini-safety": _finish("SAFETY", ContentRejected),
    "gemini-recitation": _finish("RECITATION", ContentRejected),
    "gemini-malformed-call": _finish("MALFORMED_FUNCTION_CALL", MalformedResponse),
    "gemini-other": _finish("OTHER", ProviderUnavailable),
    "bedrock-malformed": _ended("bedrock", "malformed_model_output", MalformedResponse),
    "bedrock-throttling": _reported("bedrock", RateLimited, "rate_limit"),
    "bedrock-stream-error": _exception("modelStreamErrorException", ProviderUnavailable),
    "bedrock-timeout": _exception("modelTimeoutException", ProviderUnavailable),
    "bedrock-internal": _reported("bedrock", ProviderUnavailable, "server_error"),
    "bedrock-unavailable": _reported("bedrock", ProviderUnavailable, "overloaded"),
    "bedrock-validation": _reported("bedrock", InvalidRequest, "bad_request"),
    "bedrock-filtered": _filtered("bedrock"),
    "ollama-unload": _ended("ollama", "unload", ProviderUnavailable),
    "ollama-server": _reported("ollama", ProviderUnavailable, "server_error"),
    "ollama-rate": _reported("ollama", RateLimited, "rate_limit"),
}
