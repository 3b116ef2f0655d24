"""Requests between their decision and what is known of their answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Content, ToolUse
from penstock.contract.ports import Target
from penstock.routing.learning.router import Decided
from penstock.routing.outcomes.ports import Served
from penstock.telemetry.records import AttemptRecord, RequestIdentity, RequestRecord

MOST_PENDING = 20_000


class Pending(msgspec.Struct):
    """A request that was decided and has not ended."""

    model: str
    decided: Decided
    text: str | None
    """The prompt, where prompts are kept."""
    valid: bool | None = None
    """Whether the answer has the form that was asked for."""
    judged_later: bool = False
    """Whether whoever has asked will say that."""


class Unjudged:
    """Answers that have ended, of which whoever has asked will say whether they fit."""

    def __init__(self) -> None:
        """There are none."""
        self._ids: OrderedDict[RequestIdentity, None] = OrderedDict()

    def add(self, identity: RequestIdentity) -> None:
        """One more; the oldest are given up when there are too many."""
        self._ids[identity] = None
        if len(self._ids) > MOST_PENDING:
            self._ids.popitem(last=False)

    def take(self, identity: RequestIdentity) -> bool:
        """Whether it was one of them, which it is no more."""
        return self._ids.pop(identity, self) is not self


def is_judged_later(request: SamplingRequest, answer: Sequence[Content]) -> bool:
    """Whether the caller reads the answer as a value of a type: what fits that, it knows best."""
    schema = request.output_schema
    if schema is None or not schema.prompted:
        return False
    return not any(isinstance(part, ToolUse) for part in answer)


def served_of(
    record: RequestRecord, attempt: AttemptRecord, pending: Pending, made_by: str
) -> Served:
    """What is kept of one attempt of a request that has ended."""
    target = Target(attempt.provider, attempt.model)
    usage, first_s = attempt.usage, attempt.first_token_s
    ok = attempt.outcome == "ok"
    alone = len(record.attempts) == 1
    decided = pending.decided
    return Served(
        request_id=record.request_id,
        model=pending.model,
        target=target,
        at=record.started,
        prompt_tokens=decided.prompt_tokens,
        key=record.key,
        features=decided.features,
        made_by=made_by,
        output_tokens=usage.output_tokens if usage is not None and ok else None,
        # What several attempts cost together says little about one of them.
        cost_nanos=record.cost_nanos if alone and ok else None,
        latency_ms=1000 * attempt.duration_s if ok else None,
        first_token_ms=1000 * first_s if first_s is not None and ok else None,
        ok=ok,
        error=attempt.error,
        # Of another target than the chosen one, nobody knows how likely it was.
        logged=decided.logged() if target == decided.targets[0] else None,
        prompt=pending.text,
    )
