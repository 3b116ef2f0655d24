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
