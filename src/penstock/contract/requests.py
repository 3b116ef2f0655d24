"""From keyword arguments, as people write them, to one `SamplingRequest`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, cast

import msgspec

from penstock.contract.adaptation import AdaptMode
from penstock.contract.approval import Reviewer
from penstock.contract.checks.fields import unknown_fields, unknown_in
from penstock.contract.checks.spelling import unknown_options
from penstock.contract.errors import InvalidRequest, Problem, shown
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
from penstock.contract.tools import RunnableTool, tool_from_dict

S = TypeVar("S", bound=msgspec.Struct)
Messages: TypeAlias = str | Message | Iterable[Message | str | JSONObject]
"""A conversation as people write it: a text, a message, or a list of texts, messages and dicts of
the form `{"role": "user", "content": "..."}`."""


class PromptOptions(TypedDict, total=False):
    """The keyword arguments that all calls share, none of them required."""

    model: str | Sequence[str] | None
    system_prompt: str | None
    temperature: float | None
    stop_sequences: Sequence[str]
    model_preferences: ModelPreferences | JSONObject | None
    include_context: IncludeContext
    tools: Sequence[ToolDefinition | RunnableTool | Callable[..., Any] | JSONObject]
    mcp_tools: Sequence[MCPTool | JSONObject]
    tool_choice: ToolChoice | JSONObject | Literal["auto", "required", "none"] | None
    parallel_tools: bool | None
    output_schema: OutputSchema | JSONObject | type[Any] | Any | None
    reasoning_level: ReasoningLevel | None
    extra: Extra | JSONObject | None
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
    """The keyword arguments of `create_message` and its kin, none of them required.

    Without `max_tokens` the default of the model is used, if there is one.
    """

    max_tokens: int


CountOptions: TypeAlias = RequestOptions
"""The keyword arguments of `count_tokens` and `route`, which answer nothing."""


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
    problems = [*_unknown(fields, SamplingRequest), *unknown_fields(fields)]
    if "max_tokens" not in fields:
        problems.append(Problem("max_tokens", "is required"))
    # As plain values, for a struct that is there already is not checked any more.
    if isinstance(choice := fields.get("tool_choice"), str):
        fields["tool_choice"] = {"mode": choice}
    if isinstance(schema := fields.get("output_schema"), dict):
        fields["output_schema"] = {"schema": schema}
    for name, read in (("tools", _tools), ("model", _models)):
        try:
            fields |= read(fields.get(name))
        except InvalidRequest as error:
            problems += error.problems
            del fields[name]
    return _convert(fields, SamplingRequest, problems)


def named_models(model: object) -> tuple[str | None, ...]:
    """The models of the option `model` in their order: a name, a list of names, or None.

    Raises InvalidRequest for an empty list and for what is no name.
    """
    if model is None or isinstance(model, str):
        return (model,)
    if not isinstance(model, Sequence) or isinstance(model, bytes | bytearray):
        problem = Problem("model", f"is {shown(model)}; give a name, or a list of names")
        raise InvalidRequest.of([problem])
    names = tuple(cast(Sequence[Any], model))
    if not names:
        raise InvalidRequest.of([Problem("model", "is an empty list; give at least one model")])
    wrong = [
        Problem(f"model[{at}]", f"is {shown(name)}; give the name of a model")
        for at, name in enumerate(names)
        if not isinstance(name, str) or not name
    ]
    if wrong:
        raise InvalidRequest.of(wrong)
    return names


def _models(given: object) -> dict[str, Any]:
    if given is None or isinstance(given, str):
        return {}
    first, *others = named_models(given)
    return {"model": first, "fallback_models": tuple(others)}


def _tools(given: object) -> dict[str, Any]:
    """The tools, those in the form of another API as ours."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        return {}
    problems: list[Problem] = []
    tools: list[Any] = []
    for at, each in enumerate(cast(Iterable[Any], given)):
        try:
            tools.append(
                tool_from_dict(f"tools[{at}]", cast(JSONObject, each))
                if isinstance(each, Mapping)
                else each
            )
        except InvalidRequest as error:
            problems += error.problems
    if problems:
        raise InvalidRequest.of(problems)
    return {"tools": tuple(tools)} if tools else {}


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
    if problems := list(unknown_in(name, listed, Message)):
        raise InvalidRequest.of(problems)
    try:
        return msgspec.convert(listed, tuple[Message, ...])
    except msgspec.ValidationError as error:
        raise InvalidRequest.of([_problem(name, error)]) from error


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


def _convert(fields: dict[str, Any], kind: type[S], problems: Sequence[Problem] = ()) -> S:
    if not problems:
        try:
            return msgspec.convert(fields, kind)
        except msgspec.ValidationError as error:
            raise InvalidRequest.of(_misfits(fields, kind)) from error
    raise InvalidRequest.of([*problems, *_misfits(fields, kind)])


def _misfits(fields: dict[str, Any], kind: type[msgspec.Struct]) -> Iterator[Problem]:
    """What is wrong with the type of each field, for a converter stops at the first."""
    for field in msgspec.structs.fields(kind):
        if field.name not in fields:
            continue
        try:
            msgspec.convert(fields[field.name], field.type)
        except msgspec.ValidationError as error:
            yield _problem(field.name, error)


def _problem(name: str, error: msgspec.ValidationError) -> Problem:
    message, _, place = str(error).partition(" - at ")
    return Problem(name + place.partition("`$")[2].rstrip("`"), message)
