"""The public functions: `open`, `ask`, and generators without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Unpack, overload

from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.checks.spelling import suggests_names
from penstock.contract.requests import (
    Messages,
)
from penstock.engine.engine import Engine
from penstock.engine.per_loop import (
    EmbeddingEndpointOptions,
    EndpointOptions,
    T,
    TranscriptionEndpointOptions,
    endpoint_of,
)
from penstock.generators import embeddings, transcription
from penstock.generators.content import GeneratorOptions, Prompt, StringGenerator
from penstock.generators.conversation import Conversation
from penstock.generators.embeddings import EmbeddingGenerator, EmbeddingOptions
from penstock.generators.structured import StructuredGenerator
from penstock.generators.transcription import TranscriptionGenerator, TranscriptionOptions

ASK_MAX_TOKENS = 512
"""What `ask` allows an answer, as it is the one call that does not require a limit."""


@suggests_names
def ask(
    prompt: str,
    *,
    model: str | Sequence[str] | None = None,
    system_prompt: str | None = None,
    max_tokens: int = ASK_MAX_TOKENS,
    temperature: float | None = None,
) -> str:
    """The answer's text, for scripts and the prompt: one line, no event loop in sight."""

    async def answer() -> str:
        async with open() as engine:
            result = await engine.create_message(
                prompt,
                max_tokens=max_tokens,
                model=model,
                system_prompt=system_prompt,
                temperature=temperature,
            )
            return result.text

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer())
    # A notebook has a loop of its own, in which a second one may not run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer()).result()


@suggests_names
def open(config: str | Path | Config | None = None) -> Engine:
    """An engine for `async with`: from a file's path, a Config, or the file that is found.

    Without any file it is the embedded model. Raises ConfigurationError naming file and line.
    """
    return Engine(config if isinstance(config, Config) else load(config))


def string_generator(
    prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> StringGenerator:
    """A generator of text: `text, metadata = await generator.generate()`.

    Where: `provider` (a kind, such as "openai"), with `model`, `url`, `auth_token` and `headers` if
    its own are not meant; or no provider, then `model` is one of penstock.toml, or "kind/model".
    What: `system_prompt`, `temperature`, `max_tokens`, `stop_sequences`, `reasoning_level`,
    `timeout`, `model_preferences`, `metadata`, `ignore_invalid_options`.
    Tools: `tools` (functions), `mcp_tools`, `tool_choice`, `parallel_tools`, `max_tool_rounds`,
    `tool_timeout`, `max_parallel_tools`, `max_tool_result_bytes`, `tool_errors`.
    Contexts: `context_timeout`.
    A prompt may also be given to each call: `await generator.generate("...", history=[...])`.

    Raises InvalidRequest or ConfigurationError at once for what can be known to be wrong.
    """
    endpoint, rest = endpoint_of(dict(options), "model", EndpointOptions.__annotations__)
    return StringGenerator(endpoint, prompt, GeneratorOptions(**rest))


@overload
def structured_generator(
    output: type[T], prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> StructuredGenerator[T]: ...


@overload
def structured_generator(
    output: Any, prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> StructuredGenerator[Any]: ...


def structured_generator(
    output: Any, prompt: Prompt | None = None, **options: Unpack[EndpointOptions]
) -> StructuredGenerator[Any]:
    """A generator of values of this type: a class, or any annotation such as `list[int]`.

    An answer that does not fit is sent back once, with what is wrong with it; if the next one does
    not fit either, StructuredOutputInvalid is raised. The options are those of `string_generator`.
    """
    endpoint, rest = endpoint_of(dict(options), "model", EndpointOptions.__annotations__)
    return StructuredGenerator(endpoint, output, prompt, GeneratorOptions(**rest))


def conversation(*, history: Messages = (), **options: Unpack[EndpointOptions]) -> Conversation:
    """A conversation that remembers its turns: `text, metadata = await talk.send("Hello")`.

    `history` is the turns that it begins with. The options are those of `string_generator`.
    """
    endpoint, rest = endpoint_of(dict(options), "model", EndpointOptions.__annotations__)
    return Conversation(StringGenerator(endpoint, None, GeneratorOptions(**rest)), history)


def embedding_generator(**options: Unpack[EmbeddingEndpointOptions]) -> EmbeddingGenerator:
    """A generator of vectors: `vector, metadata = await generator.generate("a text")`.

    The options are `provider`, `model`, `url`, `auth_token`, `headers`, `embedding_dimensions`,
    `timeout` and `ignore_invalid_options`. Without a provider and a model it is the embedded one.
    """
    endpoint, rest = endpoint_of(
        dict(options),
        "embedding_model",
        EmbeddingEndpointOptions.__annotations__,
        embeddings.value_problems,
    )
    return EmbeddingGenerator(endpoint, EmbeddingOptions(**rest))


def transcription_generator(
    **options: Unpack[TranscriptionEndpointOptions],
) -> TranscriptionGenerator:
    """A generator of transcripts: `text, metadata = await generator.generate("a.mp3")`.

    The options are `provider`, `model`, `url`, `auth_token`, `headers`, `language`, `prompt`,
    `temperature`, `timeout`, `max_parallel` and `ignore_invalid_options`.
    """
    endpoint, rest = endpoint_of(
        dict(options),
        "transcription_model",
        TranscriptionEndpointOptions.__annotations__,
        transcription.value_problems,
    )
    return TranscriptionGenerator(endpoint, TranscriptionOptions(**rest))
