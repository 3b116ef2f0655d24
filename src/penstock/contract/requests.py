"""From keyword arguments, as people write them, to one `SamplingRequest`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Required, TypeAlias, TypedDict, TypeVar, cast

import msgspec

from penstock.contract.adaptation import AdaptMode
from penstock.contract.approval import Reviewer
from penstock.contract.checks.spelling import unknown_options
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, TranscriptionRequest
from penstock.contract.messages import Audio, JSONObject, Message, user
from penstock.contract.options import (
    Extra,
    IncludeContext,
    MCPTool,
    ModelPreferences,
    OutputSchema,
    ReasoningLevel,
    ToolChoice,
    ToolDefinition,
)
from penstock.contract.terms import Terms

T = TypeVar("T")
Messages: TypeAlias = str | Message | Iterable[Message | str | JSONObject]
"""A conversation as people write it: a text, a message, or a list of texts, messages and dicts of
the form `{"role": "user", "content": "..."}`."""


class PromptOptions(TypedDict, total=False):
    """The keyword arguments that all calls share, none of them required."""

    model: str | None
    system_prompt: str | None
    temperature: float | None
    stop_sequences: Sequence[str]
    model_preferences: ModelPreferences | None
    include_context: IncludeContext
    tools: Sequence[ToolDefinition]
    mcp_tools: Sequence[MCPTool]
    tool_choice: ToolChoice | Literal["auto", "required", "none"] | None
    parallel_tools: bool | None
    output_schema: OutputSchema | JSONObject | None
    reasoning_level: ReasoningLevel | None
    extra: Extra | None
    metadata: JSONObject
    timeout: float | None
    ignore_invalid_options: bool
    adapt: AdaptMode
    meta: JSONObject | None


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made, as far as the request itself does not say it."""

    key: str | None = None
    """The name of the key that the caller has shown."""
    tags: Mapping[str, str] = {}
    """What budgets and reports may go by, over what the request's own metadata says."""
    traceparent: str | None = None
    """The caller's place in a trace, as in the W3C header; else it is that of the running task."""
    tracestate: str | None = None
    terms: Terms | None = None
    """What the caller may use, and how much of it; None: everything."""
    review: Reviewer | None = None
    """Who must approve the request once it is valid; None: nobody."""


class RequestOptions(PromptOptions, total=False):
    """The keyword arguments of `create_message` and its kin; only `max_tokens` is required."""

    max_tokens: Required[int]


class CountOptions(PromptOptions, total=False):
    """The keyword arguments of `count_tokens`, where nothing is answered and so nothing limited."""

    max_tokens: int


class TranscribeOptions(TypedDict, total=False):
    """The keyword arguments of `transcribe`; every one may be left out."""

    model: str | None
    language: str | None
    prompt: str | None
    temperature: float | None
    timeout: float | None
    ignore_invalid_options: bool


def build_request(messages: Messages, options: RequestOptions) -> SamplingRequest:
    """One request out of messages and keyword arguments.

    Raises InvalidRequest when an argument is missing, unknown or of the wrong type.
    """
    fields: dict[str, Any] = {**options, "messages": _listed("messages", messages)}
    problems = _unknown(fields, SamplingRequest)
    if "max_tokens" not in fields:
        problems.append(Problem("max_tokens", "is required"))
    if problems:
        raise InvalidRequest.of(problems)
    # As plain values, for a struct that is there already is not checked any more.
    if isinstance(choice := fields.get("tool_choice"), str):
        fields["tool_choice"] = {"mode": choice}
    if isinstance(schema := fields.get("output_schema"), dict):
        fields["output_schema"] = {"schema": schema}
    return _convert(fields, SamplingRequest)


def request_of(messages: SamplingRequest | Messages, options: RequestOptions) -> SamplingRequest:
    """The one request that is given, or that messages and keyword arguments make."""
    if isinstance(messages, SamplingRequest):
        if options:
            raise TypeError("options belong inside the SamplingRequest")
        return messages
    return build_request(messages, options)


def read_messages(name: str, messages: Messages) -> tuple[Message, ...]:
    """The turns of a conversation as people write it.

    Raises InvalidRequest, with a path below `name`, when one is of the wrong type.
    """
    listed = _listed(name, messages)
    try:
        return msgspec.convert(listed, tuple[Message, ...])
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        raise InvalidRequest.of([Problem(name + place.strip("`$"), message)]) from error


def _listed(name: str, messages: Messages) -> tuple[Any, ...]:
    if isinstance(messages, str | Message):
        messages = (messages,)
    elif not isinstance(messages, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequest.of([Problem(name, "give a text, a message or a list of them")])
    return tuple(map(_message, messages))


def _message(value: Any) -> Any:
    """A message as people write it: a text is a user's turn, and content may be a plain text."""
    if isinstance(value, str):
        return user(value)
    if isinstance(value, dict):
        message = cast(dict[str, Any], value)
        if isinstance(text := message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": text}]}
    return value  # pyright: ignore[reportUnknownVariableType]


def build_embedding_request(
    texts: Sequence[str],
    *,
    model: str,
    dimensions: int | None,
    timeout: float | None,
    ignore_invalid_options: bool = False,
) -> EmbeddingRequest:
    """One request out of texts and options; raises InvalidRequest when a type is wrong."""
    if isinstance(texts, str):
        # It is a sequence of strings to Python, and would become a vector for each letter.
        raise InvalidRequest.of([Problem("texts", "is a single text; give a list of texts")])
    fields: dict[str, Any] = {
        "texts": tuple(texts),
        "model": model,
        "dimensions": dimensions,
        "timeout": timeout,
        "ignore_invalid_options": ignore_invalid_options,
    }
    return _convert(fields, EmbeddingRequest)


def build_transcription_request(audio: Audio, options: TranscribeOptions) -> TranscriptionRequest:
    """One request out of a recording and options.

    Raises InvalidRequest when an argument is unknown or of the wrong type.
    """
    fields: dict[str, Any] = {**options, "audio": audio}
    if problems := _unknown(fields, TranscriptionRequest):
        raise InvalidRequest.of(problems)
    return _convert(fields, TranscriptionRequest)


def _unknown(fields: dict[str, Any], kind: type[msgspec.Struct]) -> list[Problem]:
    known = kind.__struct_fields__
    return unknown_options(fields, known)


def _convert(fields: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        path = place.rpartition("`$.")[2].rstrip("`")
        raise InvalidRequest.of([Problem(path, message)]) from error
