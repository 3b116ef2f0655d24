"""The generators of an engine, as its methods."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack, overload

from penstock.contract.requests import Messages
from penstock.generators.content import GeneratorOptions, Prompt, Sampler, StringGenerator
from penstock.generators.conversation import Conversation
from penstock.generators.embeddings import Embedder, EmbeddingGenerator, EmbeddingOptions
from penstock.generators.structured import StructuredGenerator
from penstock.generators.transcription import (
    Transcriber,
    TranscriptionGenerator,
    TranscriptionOptions,
)

T = TypeVar("T")


class Generators:
    """What an engine offers to those who want the same thing again and again."""

    def string_generator(
        self: Sampler, prompt: Prompt | None = None, **options: Unpack[GeneratorOptions]
    ) -> StringGenerator:
        """A generator of text whose every call goes through this engine."""
        return StringGenerator(self, prompt, options)

    @overload
    def structured_generator(
        self: Sampler,
        output: type[T],
        prompt: Prompt | None = None,
        **options: Unpack[GeneratorOptions],
    ) -> StructuredGenerator[T]: ...
    @overload
    def structured_generator(
        self: Sampler,
        output: Any,
        prompt: Prompt | None = None,
        **options: Unpack[GeneratorOptions],
    ) -> StructuredGenerator[Any]: ...
    def structured_generator(
        self: Sampler,
        output: Any,
        prompt: Prompt | None = None,
        **options: Unpack[GeneratorOptions],
    ) -> StructuredGenerator[Any]:
        """A generator of values of this type whose every call goes through this engine."""
        return StructuredGenerator(self, output, prompt, options)

    def conversation(
        self: Sampler, *, history: Messages = (), **options: Unpack[GeneratorOptions]
    ) -> Conversation:
        """A conversation by way of this engine; `history` is the turns that it begins with."""
        return Conversation(StringGenerator(self, None, options), history)

    def embedding_generator(
        self: Embedder, **options: Unpack[EmbeddingOptions]
    ) -> EmbeddingGenerator:
        """A generator of vectors whose every call goes through this engine."""
        return EmbeddingGenerator(self, options)

    def transcription_generator(
        self: Transcriber, **options: Unpack[TranscriptionOptions]
    ) -> TranscriptionGenerator:
        """A generator of transcripts whose every call goes through this engine."""
        return TranscriptionGenerator(self, options)
