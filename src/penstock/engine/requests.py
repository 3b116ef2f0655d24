"""From what Python callers give (types, functions, no limit) to one request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from penstock.contract.errors import InvalidRequest, Problem, StructuredOutputInvalid
from penstock.contract.events import Complete, Error
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.contract.options import OutputSchema
from penstock.contract.requests import Messages, RequestOptions, named_models, request_of
from penstock.generators.answer_type import AnswerMismatch, AnswerType
from penstock.generators.functions import tool

_NO_LIMIT = (
    "is required: the configuration has no default for this model, and its own limit is not "
    "known; set max_tokens in [models.NAME]"
)


class Asked(NamedTuple):
    """A request, and what the caller wants done with its result."""

    request: SamplingRequest
    default_limit: int | None = None
    """The `max_tokens` that the request has got, where the caller gave none."""
    answer: AnswerType[Any] | None = None
    """The type of the answer."""

    def finished(self, result: Result) -> Result:
        """The result for the caller; raises StructuredOutputInvalid for an answer of no use."""
        if self.default_limit is not None:
            metadata = msgspec.structs.replace(result.metadata, max_tokens=self.default_limit)
            result = msgspec.structs.replace(result, metadata=metadata)
        if self.answer is None or result.tool_uses:
            return result
        try:
            return result.with_parsed(self.answer.read(result.text))
        except AnswerMismatch as mismatch:
            told = "; ".join(str(each) for each in mismatch.problems[:5])
            reason = f"the answer does not fit the type: {told}"
            if result.stop_reason == "maxTokens":
                reason = f"max_tokens cut the answer off, so it does not fit the type: {told}"
            error = StructuredOutputInvalid(
                reason,
                raw=result.text,
                provider=result.metadata.provider,
                model=result.metadata.model,
            )
            error.request_id = result.request_id
            raise error from mismatch

    def ended(self, end: Complete) -> Complete | Error:
        """The same for the end of a stream."""
        try:
            return Complete(self.finished(end.result))
        except StructuredOutputInvalid as error:
            return Error(error)


def asked(
    messages: SamplingRequest | Messages,
    options: Mapping[str, Any],
    default: Callable[[Sequence[str | None]], int | None],
) -> Asked:
    """What messages and keyword arguments ask for; `default` is the limit of these models.

    Raises InvalidRequest when an argument is missing, unknown or of the wrong type.
    """
    if isinstance(messages, SamplingRequest):
        return Asked(request_of(messages, cast(RequestOptions, options)))
    given = dict(options)
    answer: AnswerType[Any] | None = None
    if _is_type(kind := given.get("output_schema")):
        answer = _answer_type(kind)
        given["output_schema"] = answer.output
    if isinstance(tools := given.get("tools"), Sequence) and not isinstance(tools, str):
        given["tools"] = tuple(map(_declared, cast(Sequence[Any], tools)))
    limit: int | None = None
    if "max_tokens" not in given:
        limit = default(named_models(given.get("model")))
        if limit is None:
            raise InvalidRequest.of([Problem("max_tokens", _NO_LIMIT)])
        given["max_tokens"] = limit
    return Asked(request_of(messages, cast(RequestOptions, given)), limit, answer)


def _is_type(schema: object) -> bool:
    return not (
        schema is None
        or isinstance(schema, OutputSchema | dict | str | int | float | list | tuple)
        or inspect.isroutine(schema)
    )


def _answer_type(kind: Any) -> AnswerType[Any]:
    try:
        return AnswerType(kind)
    except InvalidRequest as error:
        problems = [Problem("output_schema", each.message) for each in error.problems]
        raise InvalidRequest.of(problems) from error


def _declared(given: Any) -> Any:
    """What the model is told of a tool; one that could be run is not run here."""
    if isinstance(given, Mapping):
        return {key: value for key, value in cast(JSONObject, given).items() if key != "handler"}
    if definition := getattr(given, "definition", None):
        return definition
    return tool(given).definition if callable(given) else given
