"""Generators of typed values: the answer is validated, and mended once when it does not fit."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import msgspec

from penstock.contract.errors import Problem, StructuredOutputInvalid
from penstock.contract.events import AnswerRejected, GeneratorEvent
from penstock.contract.messages import Message, user
from penstock.generators.answer_type import AnswerMismatch, AnswerType
from penstock.generators.content import ContentGenerator, GeneratorOptions, Prompt, Sampler
from penstock.generators.stream import Settled
from penstock.generators.tool_loop import Ask, ToolLoop

T = TypeVar("T")
_PROBLEM_LIMIT = 20
_LENGTH_LIMIT = 300


class StructuredGenerator(ContentGenerator[T]):
    """Answers a prompt with a value of a type: pydantic, dataclass, TypedDict, msgspec and others.

    The provider is given the type's JSON Schema, in the words that it understands; what counts is
    that the answer is a value of the type. If it is not, the model is told why and asked once more,
    and then StructuredOutputInvalid is raised with the raw text.
    """

    def __init__(
        self,
        sampler: Sampler,
        output: type[T] | Any,
        prompt: Prompt | None,
        options: GeneratorOptions,
    ) -> None:
        """Raises InvalidRequest at once when no schema can be made of the type."""
        super().__init__(sampler, prompt, options)
        self._type: AnswerType[T] = AnswerType(output)
        self._request = msgspec.structs.replace(self._request, output_schema=self._type.output)

    async def _settle(
        self, ask: Ask, turns: tuple[Message, ...]
    ) -> AsyncGenerator[GeneratorEvent | Settled[T], None]:
        tool_loop = await self._tool_loop(ask, turns)
        mended = False
        while True:
            async with contextlib.aclosing(tool_loop.run()) as events:
                async for event in events:
                    yield event
            result = tool_loop.result
            try:
                value = self._type.read(result.text)
            except AnswerMismatch as mismatch:
                if result.stop_reason != "maxTokens":
                    # Too small a limit is no fault of the model.
                    self._sampler.validated(result.request_id, fits=False)
                if mended or result.stop_reason == "maxTokens":
                    raise _invalid(tool_loop, mismatch) from mismatch
                mended = True
                yield AnswerRejected(mismatch.problems)
                tool_loop.say(*_repair(result.message, mismatch.problems))
            else:
                self._sampler.validated(result.request_id, fits=True)
                yield Settled(value, result, (turns[-1], *tool_loop.turns))
                return


def _repair(answer: Message, problems: tuple[Problem, ...]) -> tuple[Message, ...]:
    lines = [_line(problem) for problem in problems[:_PROBLEM_LIMIT]]
    if len(problems) > _PROBLEM_LIMIT:
        lines.append(f"- and {len(problems) - _PROBLEM_LIMIT} more")
    please = user(
        "Your answer does not fit the JSON Schema:\n"
        + "\n".join(lines)
        + "\nAnswer again with the whole corrected JSON and nothing else."
    )
    # A turn without any text cannot be sent back.
    return (answer, please) if answer.text.strip() else (please,)


def _line(problem: Problem) -> str:
    text = f"- {problem}" if problem.path else f"- the answer {problem}"
    return text if len(text) <= _LENGTH_LIMIT else text[:_LENGTH_LIMIT] + "…"


def _invalid(tool_loop: ToolLoop, mismatch: AnswerMismatch) -> StructuredOutputInvalid:
    result = tool_loop.result
    told = "; ".join(_line(problem).removeprefix("- ") for problem in mismatch.problems[:5])
    reason = f"the answer does not fit the type, not even when asked again: {told}"
    if result.stop_reason == "maxTokens":
        reason = f"the answer was cut off by max_tokens, so it does not fit the type; {told}"
    error = StructuredOutputInvalid(
        reason, raw=result.text, provider=result.metadata.provider, model=result.metadata.model
    )
    error.request_id = result.request_id
    tool_loop.describe(error)
    return error
