"""Answers that take several calls: a provider paused, or refused an option and was asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.contract.errors import ProviderUnavailable
from penstock.contract.events import ProviderEvent, ToolEnded, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, MCPCall, Text, ToolUse

MAX_ROUNDS = 16
"""How many calls one answer may take before it counts as endless."""
PAUSE_MARK = "/continuationToken"
"""How a key of `_meta` ends under which the last part of a paused reply keeps how to go on."""
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
    """The events of a later round, with tool calls numbered on from the earlier ones.

    The end of a call that began in an earlier round has the call's name.
    """
    content = earlier.content if earlier else ()
    calls = sum(isinstance(part, ToolUse) for part in content)
    names = {part.id: part.name for part in content if isinstance(part, MCPCall)}
    if not calls and not names:
        return events
    return [_after(event, calls, names) for event in events]


def _after(event: ProviderEvent, calls: int, names: Mapping[str, str]) -> ProviderEvent:
    if isinstance(event, ToolUseDelta):
        return msgspec.structs.replace(event, index=event.index + calls)
    if isinstance(event, ToolEnded) and not event.name:
        return msgspec.structs.replace(event, name=names.get(event.id, ""))
    return event


def endless(*, provider: str, model: str) -> ProviderUnavailable:
    """The error for an answer that never comes to its end."""
    return ProviderUnavailable(
        f"no end of the answer after {MAX_ROUNDS} calls",
        retryable=False,
        provider=provider,
        model=model,
    )


def _merged(first: tuple[Content, ...], second: tuple[Content, ...]) -> tuple[Content, ...]:
    first, second = _answered_later(first, second)
    if not first or not second:
        return first + second
    last, following = _resumed(first[-1]), second[0]
    if (
        isinstance(last, Text)
        and isinstance(following, Text)
        # What hangs on a text, such as a signature, is about that text and no more of it.
        and last.meta == _resumed(following).meta
    ):
        text = Text(last.text + following.text, meta=following.meta)
        return (*first[:-1], text, *second[1:])
    return (*first[:-1], last, *second)


def _resumed(part: Content) -> Content:
    """The part without the mark of a pause, for the answer has gone on."""
    if not part.meta:
        return part
    meta = {key: value for key, value in part.meta.items() if not key.endswith(PAUSE_MARK)}
    return part if meta == part.meta else msgspec.structs.replace(part, meta=meta or None)


def _answered_later(
    first: tuple[Content, ...], second: tuple[Content, ...]
) -> tuple[tuple[Content, ...], tuple[Content, ...]]:
    """Both, with calls that were made in one round and answered in the next as one call."""
    made = {part.id for part in first if isinstance(part, MCPCall)}
    answers = {
        part.id: part
        for part in second
        if isinstance(part, MCPCall) and not part.name and part.id in made
    }
    if not answers:
        return first, second
    rest = tuple(part for part in second if part not in answers.values())
    return tuple(_answered(part, answers) for part in first), rest


def _answered(part: Content, answers: Mapping[str, MCPCall]) -> Content:
    if not isinstance(part, MCPCall) or part.id not in answers:
        return part
    answer = answers[part.id]
    return msgspec.structs.replace(
        part,
        content=answer.content,
        is_error=answer.is_error,
        meta={**(part.meta or {}), **(answer.meta or {})},
    )
