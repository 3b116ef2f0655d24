"""The shipped fake as an upstream: it plays the same scenarios, without a wire."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import deque
from collections.abc import Mapping

from penstock import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
    SamplingRequest,
    StreamInterrupted,
    ToolUse,
    Usage,
)
from penstock.contract.exchange import Transcript, TranscriptionRequest
from penstock.contract.ports import ProviderStream
from penstock.testing import FakeProvider, FakeReply
from tests.support.wire.scenario import Failure, FailureKind, Pause, Scenario, Stop
from tests.support.wire.seen import Seen, SeenEmbedding, SeenTranscription

_REASONS: Mapping[Stop, str] = {
    "end": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
}
_STATUS: Mapping[FailureKind, int] = {
    "rate_limit": 429,
    "quota": 429,
    "authentication": 401,
    "permission": 403,
    "unknown_model": 404,
    "server_error": 500,
    "overloaded": 503,
}


class FakeUpstream(FakeProvider):
    """The fake, with a script of scenarios and an eye on who still listens."""

    call_ids = True
    reports_stop_sequence = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.embeddings: list[SeenEmbedding] = []
        self.counts: list[Seen] = []
        self.transcriptions: list[SeenTranscription] = []
        self.progress = 0
        self._scenarios: deque[Scenario] = deque()
        self._gone = asyncio.Event()

    @property
    def bodies(self) -> list[str]:
        raise NotImplementedError("a part of this process reads no bodies")

    @property
    def received(self) -> int:
        raise NotImplementedError("nothing comes to a part of this process")

    def play(self, *scenarios: Scenario) -> None:
        self._scenarios.extend(scenarios)

    def status(self, failure: Failure) -> int | None:
        return _STATUS.get(failure.kind, 400)

    def count_of(self, prompt: Seen) -> int:
        return sum(len(message.text.split()) for message in prompt.messages)

    def response_id(self, scenario: Scenario) -> str:
        return "fake"

    async def gone(self) -> None:
        await self._gone.wait()

    async def idle(self) -> None:
        await self._gone.wait()

    async def stop(self) -> None:
        raise NotImplementedError("a part of this process is always reachable")

    async def count_tokens(self, model: str, request: SamplingRequest) -> int | None:
        self.counts.append(_read(model, request))
        return await super().count_tokens(model, request)

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        scenario = self._scenarios.popleft()
        self.seen.append(_read(model, request))
        self._script.append(_reply(scenario))
        self._gone = gone = asyncio.Event()
        pause, pieces = scenario.pause, 0
        try:
            if pause is not None and not pause.after:
                await _wait(pause)
            async with contextlib.aclosing(super().stream(model, request)) as batches:
                async for batch in batches:
                    yield batch
                    pieces += 1
                    self.progress += 1
                    if pause is not None and pieces == pause.after:
                        await _wait(pause)
        finally:
            gone.set()

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        scenario = self._scenarios.popleft()
        self.transcriptions.append(_heard(model, request))
        if scenario.failure is not None:
            raise _error(scenario.failure)
        tokens = scenario.tokens
        usage = Usage(tokens.input, tokens.output) if tokens else Usage()
        return Transcript(text=scenario.whole_text, model=model, usage=usage)


def _heard(model: str, request: TranscriptionRequest) -> SeenTranscription:
    return SeenTranscription(
        model=model,
        audio=base64.b64decode(request.audio.data),
        mime_type=request.audio.mime_type,
        hints=(request.language or "", request.prompt or ""),
        temperature=request.temperature,
    )


async def _wait(pause: Pause) -> None:
    pause.reached.set()
    await pause.resume.wait()


def _read(model: str, request: SamplingRequest) -> Seen:
    return Seen(
        model=model,
        stream=None,
        messages=request.messages,
        system=request.system_prompt,
        tools=request.tools,
        mcp_tools=request.mcp_tools,
        tool_choice=request.tool_choice,
        parallel_tools=request.parallel_tools,
        schema=request.output_schema and request.output_schema.schema,
        stop=request.stop_sequences,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        reasoning_level=request.reasoning_level,
    )


def _reply(scenario: Scenario) -> FakeReply:
    fault = scenario.fault
    text = "".join(scenario.text[: fault.after] if fault else scenario.text)
    error = _error(scenario.failure) if scenario.failure else None
    if fault is not None and error is None:
        error = StreamInterrupted("the script ends here", partial=text)
    if scenario.refusal or scenario.stop == "filtered":
        error = ContentRejected(scenario.refusal or "filtered", partial=text)
    tokens = scenario.tokens
    return FakeReply(
        text="" if scenario.failure and not fault else text,
        reasoning="".join(scenario.reasoning),
        tool_uses=tuple(ToolUse(each.id, each.name, each.arguments) for each in scenario.calls),
        stop_reason=_REASONS.get(scenario.stop),
        usage=tokens and Usage(tokens.input, tokens.output, tokens.cached, None, tokens.reasoning),
        error=error,
    )


def _error(failure: Failure) -> PenstockError:
    status = _STATUS.get(failure.kind, 400)
    match failure.kind:
        case "rate_limit":
            return RateLimited("slow down", status=status, retry_after=failure.retry_after)
        case "quota":
            return RateLimited("no money left", status=status, retryable=False)
        case "authentication" | "permission":
            return AuthenticationFailed("who are you?", status=status)
        case "unknown_model":
            return ModelNotFound("no such model", status=status)
        case "context_length":
            return ContextLengthExceeded("too long", status=status)
        case "bad_request":
            return InvalidRequest("nonsense", status=status)
        case "content_filter":
            return ContentRejected("not this", status=status)
        case "server_error" | "overloaded":
            return ProviderUnavailable("not now", status=status)
