"""One request as it is told: each try at a target, and at last its one end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.contract.exchange import SamplingRequest, StopReason
from penstock.contract.metadata import Usage
from penstock.contract.ports import Attempt, RouteDecision, Target
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import AttemptRecord, AttemptStarted, RequestRecord, RequestStarted


class Extend(Protocol):
    """Sets money aside for one more attempt; raises BudgetExceeded."""

    async def __call__(
        self,
        target: Target,
        attempts: Sequence[AttemptRecord],
        request: SamplingRequest | None = None,
    ) -> None:
        """The attempt is at this target, after these."""
        ...


class Try:
    """One try at one target, from its place at the target to the end of what it brought."""

    __slots__ = ("_attempt", "_began", "_begun", "_first_token_s", "_trail")

    def __init__(self, trail: Trail, attempt: Attempt) -> None:
        """It begins now; made by `Trail.begin`."""
        self._trail = trail
        self._attempt = attempt
        self._began = time.perf_counter()
        self._first_token_s: float | None = None
        self._begun = AttemptStarted(
            request_id=trail.begun.request_id,
            number=attempt.number,
            provider=attempt.target.provider,
            model=attempt.target.model,
            started=time.time(),
            key=trail.begun.key,
        )

    def calling(self) -> AbstractContextManager[None]:
        """The block in which the provider is called, for `Hooks.attempting`."""
        return self._trail.hooks.attempting(self._begun)

    def first_token(self) -> None:
        """The first event is there."""
        self._first_token_s = time.perf_counter() - self._began

    def end(self, error: BaseException | None = None, calls: Sequence[Usage] = ()) -> None:
        """It is over; `calls` is what each call took that was billed."""
        record = AttemptRecord.of(
            self._begun,
            duration_s=time.perf_counter() - self._began,
            error=error,
            first_token_s=self._first_token_s,
            usage=sum(calls[1:], calls[0]) if calls else None,
            calls=calls,
            adapted=self._attempt.adapted,
            keep_error_text=self._trail.hooks.keep_error_text,
        )
        self._trail.attempts.append(record)
        self._trail.hooks.attempt(record)


class Trail:
    """What one request has tried so far; `finished` is called once, by whoever began it."""

    __slots__ = ("allowed", "attempts", "begun", "decision", "extend", "hooks", "ranked")

    def __init__(self, hooks: Hooks, begun: RequestStarted) -> None:
        """The request has come in."""
        self.hooks = hooks
        self.begun = begun
        self.attempts: list[AttemptRecord] = []
        """Those that have ended, in the order of their ends."""
        self.ranked: Sequence[Target] = ()
        """The targets in the order of the route, once there is one."""
        self.decision: RouteDecision | None = None
        """How that order came about, where there is more to it than the configuration."""
        self.allowed: Sequence[Target] = ()
        """Those of them that the caller may use and has money for."""
        self.extend: Extend | None = None
        """Sets money aside for a further try at this target; None: there is no need to."""
        hooks.started(begun)

    @property
    def key(self) -> str | None:
        """The name of the key that the caller has shown."""
        return self.begun.key

    def decided(self, decision: RouteDecision) -> None:
        """How the order of its targets came about."""
        self.decision = decision

    async def afford(self, target: Target, request: SamplingRequest | None = None) -> None:
        """Have money for one more try, after some that were billed; raises BudgetExceeded.

        `request` is the one of this try, where it is longer than that of the caller.
        """
        if self.extend is not None and any(each.usage is not None for each in self.attempts):
            await self.extend(target, self.attempts, request)

    def begin(self, attempt: Attempt) -> Try:
        """A target is about to be asked."""
        return Try(self, attempt)

    @property
    def used(self) -> Usage | None:
        """What all tries took together that have ended; None when nothing was billed."""
        total: Usage | None = None
        for each in self.attempts:
            if each.usage is not None:
                total = each.usage if total is None else total + each.usage
        return total

    def finished(
        self,
        duration_s: float,
        *,
        error: BaseException | None = None,
        provider: str | None = None,
        model: str | None = None,
        first_token_s: float | None = None,
        stop_reason: StopReason | None = None,
        response_id: str | None = None,
        cost_nanos: int | None = None,
        continued_by: str | None = None,
    ) -> None:
        """The request has ended; who answered is the last of its tries, unless it is given."""
        if not self.hooks.active:
            return
        self.hooks.finished(
            RequestRecord.of(
                self.begun,
                duration_s=duration_s,
                error=error,
                provider=provider,
                model=model,
                first_token_s=first_token_s,
                stop_reason=stop_reason,
                response_id=response_id,
                usage=self.used,
                cost_nanos=cost_nanos,
                continued_by=continued_by,
                attempts=tuple(self.attempts),
                ranked=self.ranked,
                allowed=self.allowed,
                decision=self.decision,
                keep_error_text=self.hooks.keep_error_text,
            )
        )


def unheard() -> Trail:
    """For calls that nobody follows."""
    return Trail(Hooks(), RequestStarted(request_id="", operation="chat", started=0.0))
