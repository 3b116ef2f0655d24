"""Generators and conversations for code without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, Unpack, overload

from penstock import api
from penstock.contract.events import GeneratorEvent
from penstock.contract.exchange import Metadata
from penstock.contract.media import AudioSource
from penstock.contract.messages import Message
from penstock.contract.requests import Messages
from penstock.engine.per_loop import (
    EmbeddingEndpointOptions,
    EndpointOptions,
    TranscriptionEndpointOptions,
)
from penstock.generators.content import ContentGenerator, Prompt
from penstock.generators.contexts import MessageType, PromptContextProvider
from penstock.generators.conversation import Conversation
from penstock.generators.embeddings import EmbeddingGenerator
from penstock.generators.transcription import TranscriptionGenerator
from penstock.sync.portal import portal, run
from penstock.sync.streams import SyncStream

T = TypeVar("T")
GeneratedStream: TypeAlias = SyncStream[GeneratorEvent, tuple[T, Metadata]]


class SyncGenerator(Generic[T]):
    """A generator whose calls wait for the answer; threads may share it."""

    def __init__(self, generator: ContentGenerator[T]) -> None:
        """Made by `string_generator` and `structured_generator`."""
        self._generator = generator

    def add_prompt_context(
        self, message_type: MessageType | Literal["system", "human", "assistant"], content: str
    ) -> None:
        """Send this text along with the prompt from now on."""
        self._generator.add_prompt_context(message_type, content)

    def add_prompt_context_provider(self, provider: PromptContextProvider) -> None:
        """Await `provider.generate_context()` for texts to send along with each call."""
        self._generator.add_prompt_context_provider(provider)

    def generate(
        self, prompt: Prompt | None = None, *, history: Messages = ()
    ) -> tuple[T, Metadata]:
        """The answer, and what there is to know about it."""
        return run(self._generator.generate(prompt, history=history))

    def stream(self, prompt: Prompt | None = None, *, history: Messages = ()) -> GeneratedStream[T]:
        """The answer while it is made."""
        return SyncStream(portal(), self._generator.stream(prompt, history=history))


class SyncConversation:
    """A conversation whose turns wait for the answer."""

    def __init__(self, conversation: Conversation) -> None:
        """Made by `conversation`."""
        self._conversation = conversation

    @property
    def messages(self) -> tuple[Message, ...]:
        """All turns so far, calls of tools and their results included."""
        return self._conversation.messages

    def add_prompt_context(
        self, message_type: MessageType | Literal["system", "human", "assistant"], content: str
    ) -> None:
        """Send this text before all turns from now on; it is no part of `messages`."""
        self._conversation.add_prompt_context(message_type, content)

    def send(self, prompt: Prompt) -> tuple[str, Metadata]:
        """The answer to the next turn, and what there is to know about it."""
        return run(self._conversation.send(prompt))

    def stream(self, prompt: Prompt) -> GeneratedStream[str]:
        """The answer to the next turn while it is made; the turn counts when its end is read."""
        return SyncStream(portal(), self._conversation.stream(prompt))

    def clear(self) -> None:
        """Forget all turns; prompt contexts stay."""
        self._conversation.clear()


class SyncEmbeddingGenerator:
    """Turns texts into vectors, all of one model and one size."""

    def __init__(self, generator: EmbeddingGenerator) -> None:
        """Made by `embedding_generator`."""
        self._generator = generator

    def generate(self, text: str) -> tuple[tuple[float, ...], Metadata]:
        """The vector of one text, and what there is to know about the call."""
        return run(self._generator.generate(text))

    def generate_batch(
        self, texts: Sequence[str]
    ) -> tuple[tuple[tuple[float, ...], ...], Metadata]:
        """A vector for each text, in order."""
        return run(self._generator.generate_batch(texts))


class SyncTranscriptionGenerator:
    """Turns recordings into text, all with the same model and options."""

    def __init__(self, generator: TranscriptionGenerator) -> None:
        """Made by `transcription_generator`."""
        self._generator = generator

    def generate(self, audio: AudioSource) -> tuple[str, Metadata]:
        """The words of one recording: `penstock.audio(...)`, a path, or the bytes of a file."""
        return run(self._generator.generate(audio))

    def generate_batch(self, audios: Sequence[AudioSource]) -> list[tuple[str, Metadata]]:
        """What `generate` gives for each recording, in order, several of them at once."""
        return run(self._generator.generate_batch(audios))


def string_generator(
    prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> SyncGenerator[str]:
    """A generator of text, as `penstock.string_generator`: `text, metadata = g.generate()`."""
    return SyncGenerator(api.string_generator(prompt, **options))


@overload
def structured_generator(
    output: type[T], prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> SyncGenerator[T]: ...
@overload
def structured_generator(
    output: Any, prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> SyncGenerator[Any]: ...
def structured_generator(
    output: Any, prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> SyncGenerator[Any]:
    """A generator of values of this type, as `penstock.structured_generator`."""
    return SyncGenerator(api.structured_generator(output, prompt, **options))


def conversation(*, history: Messages = (), **options: Unpack[EndpointOptions]) -> SyncConversation:
    """A conversation that remembers its turns: `text, metadata = talk.send("Hello")`."""
    return SyncConversation(api.conversation(history=history, **options))


def embedding_generator(**options: Unpack[EmbeddingEndpointOptions]) -> SyncEmbeddingGenerator:
    """A generator of vectors, as `penstock.embedding_generator`."""
    return SyncEmbeddingGenerator(api.embedding_generator(**options))


def transcription_generator(
    **options: Unpack[TranscriptionEndpointOptions],
) -> SyncTranscriptionGenerator:
    """A generator of transcripts, as `penstock.transcription_generator`."""
    return SyncTranscriptionGenerator(api.transcription_generator(**options))
