"""Answers that take several calls: a provider paused, or refused an option and was asked again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.contract.errors import ProviderUnavailable
from penstock.contract.events import ProviderEvent, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, Text, ToolUse

MAX_ROUNDS = 16
"""How many calls one answer may take before it counts as endless."""
_NOTHING = Reply((), "", "", Usage(), api_calls=0)


def joined(earlier: Reply | None, later: Reply) -> Reply:
    """One reply out of both: the content of the two, their usage added, the rest as it ended."""
    if earlier is None:
        return later
    return msgspec.structs.replace(
        later,
        content=_merged(earlier.content, later.content),
        usage=earlier.usage + later.usage,
        dropped_options=earlier.dropped_options + later.dropped_options,
        api_calls=earlier.api_calls + later.api_calls,
    )


def without(option: str, earlier: Reply | None) -> Reply:
    """What is known after a call that was refused because of this option."""
    known = earlier or _NOTHING
    return msgspec.structs.replace(
        known, dropped_options=(*known.dropped_options, option), api_calls=known.api_calls + 1
    )


def after(earlier: Reply | None, events: Sequence[ProviderEvent]) -> Sequence[ProviderEvent]:
    """The events of a later round, with tool calls numbered on from the earlier ones."""
    calls = sum(isinstance(part, ToolUse) for part in earlier.content) if earlier else 0
    if not calls:
        return events
    return [
        msgspec.structs.replace(event, index=event.index + calls)
        if isinstance(event, ToolUseDelta)
        else event
        for event in events
    ]


def endless(*, provider: str, model: str) -> ProviderUnavailable:
    """The error for an answer that never comes to its end."""
    return ProviderUnavailable(
        f"no end of the answer after {MAX_ROUNDS} calls",
        retryable=False,
        provider=provider,
        model=model,
    )


def _merged(first: tuple[Content, ...], second: tuple[Content, ...]) -> tuple[Content, ...]:
    if first and second and isinstance(first[-1], Text) and isinstance(second[0], Text):
        return (*first[:-1], Text(first[-1].text + second[0].text), *second[1:])
    return first + second
