"""A scripted model with the real seam's shape: tests need no patching."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from penstock.contract.errors import PenstockError
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Usage,
    Vectors,
)
from penstock.contract.messages import Content, Reasoning, Text, ToolResult, ToolUse
from penstock.contract.options import Capabilities
from penstock.contract.ports import ModelInfo, ProviderStream
from penstock.providers.fake.instance import instance_of
from penstock.providers.fake.transcripts import TranscriptScript, TranscriptStep
from penstock.providers.wire.endings import check_reply

_WORD = re.compile(r"\S+\s*|\s+")
_WORDS = re.compile(r"words-(\d{1,9})")
_EMBEDDING_DIMENSIONS = 64
_MOST_DIMENSIONS = 4096


class FakeReply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the script."""

    text: str = ""
    reasoning: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    stop_reason: str | None = None
    """`endTurn`, ..., or a reason in the words of any provider, such as `error` or `length`."""
    usage: Usage | None = None
    error: PenstockError | None = None
    """Raised after the text has been sent; with no text, at once."""
    delay_s: float = 0.0
    """A pause before each piece."""


Step: TypeAlias = (
    FakeReply | str | PenstockError | Callable[[SamplingRequest], "FakeReply | str | PenstockError"]
)


class FakeProvider:
    """Answers from the script, one step a call; when it has run out, like a small obedient model.

    Without a script it calls the tool that it must call, gives an instance of the schema that it
    must fit, says N words for the model `words-N`, and otherwise repeats the last user message.
    It hears in a recording what `transcripts` say, or else its size. Every request is kept, in
    `requests` or in `recordings`.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        name: str = "fake",
        transcripts: Iterable[TranscriptStep] = (),
    ) -> None:
        """A step is a text, a FakeReply, an error to raise, or a function of the request.

        So is one of the transcripts, with a `Transcript` in place of the FakeReply.
        """
        self.name = name
        self.requests: list[SamplingRequest] = []
        self.recordings: list[TranscriptionRequest] = []
        self._transcripts = TranscriptScript(transcripts)
        self._script = deque(script)

    def capabilities(self, model: str) -> Capabilities:
        """Everything but connections to MCP servers, so that any request can be tested."""
        return Capabilities(audio=True, prefill=True, embeddings=True, transcription=True)

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        """The whole answer at once."""
        reply: Reply | None = None
        async for batch in self.stream(model, request):
            for event in batch:
                if isinstance(event, Finished):
                    reply = event.reply
        assert reply is not None  # noqa: S101 - `stream` ends with Finished or raises
        return reply

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        """The answer word by word."""
        self.requests.append(request)
        step = _within_limits(self._next(model, request), request)
        for event in _pieces(step):
            await asyncio.sleep(step.delay_s)
            yield [event]
        if step.error is not None:
            raise step.error
        yield [Finished(_reply(model, request, step))]

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        """Vectors made of the words' hashes: the same words, the same direction."""
        size = min(request.dimensions or _EMBEDDING_DIMENSIONS, _MOST_DIMENSIONS)
        vectors = tuple(_hash_vector(text, size) for text in request.texts)
        words = sum(len(text.split()) for text in request.texts)
        return Vectors(vectors, model, Usage(input_tokens=words))

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        """What the script says, or how large the recording is."""
        self.recordings.append(request)
        return self._transcripts.next(model, request)

    async def models(self) -> Sequence[ModelInfo]:
        """The two models that need no script."""
        return (ModelInfo("echo"), ModelInfo("words-60"))

    async def count_tokens(self, model: str, request: SamplingRequest) -> int | None:
        """Words, which are what this model counts as tokens."""
        return _words(request)

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _next(self, model: str, request: SamplingRequest) -> FakeReply:
        step = self._script.popleft() if self._script else _obey(model, request)
        if callable(step):
            step = step(request)
        if isinstance(step, PenstockError):
            return FakeReply(error=step)
        return FakeReply(text=step) if isinstance(step, str) else step


def _obey(model: str, request: SamplingRequest) -> FakeReply:
    choice = request.tool_choice
    if choice is not None and choice.mode in ("required", "tool"):
        tool = next(tool for tool in request.tools if choice.name in (None, tool.name))
        return FakeReply(tool_uses=(ToolUse("call_1", tool.name, instance_of(tool.input_schema)),))
    if request.output_schema is not None:
        return FakeReply(
            text=msgspec.json.encode(instance_of(request.output_schema.schema)).decode()
        )
    if said := _WORDS.fullmatch(model):
        # One more than may be said, so that the limit shows; whoever asks for a billion gets few.
        count = min(int(said[1]), request.max_tokens + 1)
        return FakeReply(text=" ".join(f"word{number}" for number in range(1, count + 1)))
    last = request.messages[-1]
    results = [part.text for part in last.content if isinstance(part, ToolResult)]
    return FakeReply(text=last.text or " ".join(results))


def _within_limits(step: FakeReply, request: SamplingRequest) -> FakeReply:
    found = [step.text.find(stop) for stop in request.stop_sequences if stop in step.text]
    if found:
        step = msgspec.structs.replace(
            step, text=step.text[: min(found)], tool_uses=(), error=None, stop_reason="stopSequence"
        )
    words = _WORD.findall(step.text)
    if len(words) <= request.max_tokens:
        return step
    said = "".join(words[: request.max_tokens])
    return msgspec.structs.replace(
        step, text=said, tool_uses=(), error=None, stop_reason="maxTokens"
    )


def _pieces(step: FakeReply) -> Iterable[ProviderEvent]:
    for word in _WORD.findall(step.reasoning):
        yield ReasoningDelta(word)
    for word in _WORD.findall(step.text):
        yield Chunk(word)
    for index, use in enumerate(step.tool_uses):
        yield ToolUseDelta(index, use.id, use.name)
        yield ToolUseDelta(index, arguments=msgspec.json.encode(use.input).decode())


def _words(request: SamplingRequest) -> int:
    return sum(len(message.text.split()) for message in request.messages)


def _reply(model: str, request: SamplingRequest, step: FakeReply) -> Reply:
    parts: list[Content] = [Reasoning(step.reasoning)] if step.reasoning else []
    parts += [Text(step.text)] if step.text else []
    parts += step.tool_uses
    usage = step.usage or Usage(
        input_tokens=_words(request),
        output_tokens=len(_WORD.findall(step.text)),
    )
    reason = step.stop_reason or ("toolUse" if step.tool_uses else "endTurn")
    return check_reply(Reply(tuple(parts), model, reason, usage, "fake", "completed"))


def _hash_vector(text: str, size: int) -> tuple[float, ...]:
    vector = [0.0] * size
    for word in text.lower().split():
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest, "big") % size] += 1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return tuple(value / length for value in vector)
