"""What stands around a prompt: fixed texts, and texts that are fetched for each call.

The order is: the option `system_prompt`, then the system contexts, joined to one; then the human
and assistant contexts as turns; then the history; last the prompt itself. Among contexts of a kind,
the fixed ones come first, then those of the providers, each in the order in which it was added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from penstock.contract.errors import InvalidRequest, Problem, PromptContextFailed
from penstock.contract.messages import Message, Role, Text


class MessageType(StrEnum):
    """Whose words a context is made of."""

    SYSTEM = "system"
    HUMAN = "human"
    ASSISTANT = "assistant"


class PromptContext(msgspec.Struct, frozen=True):
    """One text that goes along with a prompt."""

    message_type: MessageType
    content: str


class PromptContextProvider(Protocol):
    """Fetches contexts when an answer is about to be generated."""

    def generate_context(self) -> Awaitable[Sequence[PromptContext]]:
        """The contexts for this one call; an error stops the call."""
        ...


_ROLES: Mapping[MessageType, Role] = {
    MessageType.HUMAN: "user",
    MessageType.ASSISTANT: "assistant",
}


def context(message_type: MessageType | str, content: str) -> PromptContext:
    """A checked context; raises InvalidRequest for an unknown type or a blank text."""
    try:
        kind = MessageType(message_type)
    except ValueError:
        known = ", ".join(MessageType)
        problem = Problem("message_type", f"is {message_type!r}; it must be one of {known}")
        raise InvalidRequest.of([problem]) from None
    if not isinstance(content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = type(content).__name__
        raise InvalidRequest.of([Problem("content", f"of a {kind} context is a {given}, not text")])
    if not content.strip():
        raise InvalidRequest.of([Problem("content", f"of a {kind} context is blank")])
    return PromptContext(kind, content)


async def gather(
    providers: Sequence[PromptContextProvider], timeout_s: float
) -> list[PromptContext]:
    """What the providers give, all asked at once; raises PromptContextFailed naming the first bad.

    When one fails, the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_fetch(provider, timeout_s)) for provider in providers]
    except BaseExceptionGroup as group:
        # Not by `except*`: early versions of 3.11 wrap what is raised there in a group again.
        failures, others = group.split(PromptContextFailed)
        if failures is None or others is not None:
            raise
        first = failures.exceptions[0]
        raise first from first.__cause__
    return [each for task in tasks for each in task.result()]


async def _fetch(provider: PromptContextProvider, timeout_s: float) -> Iterable[PromptContext]:
    name = getattr(provider, "name", None) or type(provider).__name__
    clock = asyncio.timeout(timeout_s)
    try:
        async with clock:
            found = await provider.generate_context()
        return [context(each.message_type, each.content) for each in found]
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PromptContextFailed(f"the context provider {name!r} was cancelled") from error
    except Exception as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, TimeoutError) and clock.expired():
            reason = f"no answer within {timeout_s:g} s"
        raise PromptContextFailed(f"the context provider {name!r} failed: {reason}") from error


def merged(
    system_prompt: str | None, contexts: Sequence[PromptContext], given: Sequence[Message]
) -> tuple[str | None, tuple[Message, ...]]:
    """The system prompt and the turns, in the order of this module's description."""
    system = [each.content for each in contexts if each.message_type is MessageType.SYSTEM]
    turns = [
        Message(_ROLES[each.message_type], (Text(each.content),))
        for each in contexts
        if each.message_type is not MessageType.SYSTEM
    ]
    return "\n\n".join(filter(None, (system_prompt, *system))) or None, (*turns, *given)
