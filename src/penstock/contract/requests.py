"""From keyword arguments, as people write them, to one `SamplingRequest`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Required, TypedDict, TypeVar

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import JSONObject, Message, user
from penstock.contract.options import (
    IncludeContext,
    ModelPreferences,
    OutputSchema,
    ReasoningLevel,
    ToolChoice,
    ToolDefinition,
)

T = TypeVar("T")


class RequestOptions(TypedDict, total=False):
    """The keyword arguments of `create_message` and its kin; only `max_tokens` is required."""

    max_tokens: Required[int]
    model: str | None
    system_prompt: str | None
    temperature: float | None
    stop_sequences: Sequence[str]
    model_preferences: ModelPreferences | None
    include_context: IncludeContext
    tools: Sequence[ToolDefinition]
    tool_choice: ToolChoice | Literal["auto", "required", "none"] | None
    parallel_tools: bool | None
    output_schema: OutputSchema | JSONObject | None
    reasoning_level: ReasoningLevel | None
    metadata: JSONObject
    timeout: float | None
    ignore_invalid_options: bool


def build_request(
    messages: str | Message | Iterable[Message], options: RequestOptions
) -> SamplingRequest:
    """One request out of messages and keyword arguments.

    Raises InvalidRequest when an argument is missing, unknown or of the wrong type.
    """
    if isinstance(messages, str):
        messages = (user(messages),)
    elif isinstance(messages, Message):
        messages = (messages,)
    elif not isinstance(messages, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequest.of([Problem("messages", "give a text, a message or a list of them")])
    fields: dict[str, Any] = {**options, "messages": tuple(messages)}
    known = SamplingRequest.__struct_fields__
    problems = [Problem(name, "there is no such option") for name in fields if name not in known]
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


def build_embedding_request(
    texts: Sequence[str], *, model: str, dimensions: int | None, timeout: float | None
) -> EmbeddingRequest:
    """One request out of texts and options; raises InvalidRequest when a type is wrong."""
    if isinstance(texts, str):
        # It is a sequence of strings to Python, and would become a vector for each letter.
        raise InvalidRequest.of([Problem("texts", "is a single text; give a list of texts")])
    fields: dict[str, Any] = {"texts": tuple(texts), "model": model, "dimensions": dimensions}
    return _convert({**fields, "timeout": timeout}, EmbeddingRequest)


def _convert(fields: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        path = place.rpartition("`$.")[2].rstrip("`")
        raise InvalidRequest.of([Problem(path, message)]) from error
