"""What the pool knows of each target: whether it may be asked, and how busy it is."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.errors import PenstockError, ProviderUnavailable, RateLimited, shown
from penstock.contract.exchange import Reply, Transcript, Vectors
from penstock.contract.ports import Target
from penstock.pool.concurrency import Slots
from penstock.pool.error_policy import blame_of
from penstock.pool.targets.breaker import LAST_RESORT_S, Breaker, BreakerSettings, Permit
from penstock.pool.targets.latency import Waits
from penstock.pool.targets.marks import Mark, Marks, covers, full_pattern
from penstock.telemetry.records import TargetChanged, TargetCondition

_log = logging.getLogger(__name__)
_MOST_STATES = 1024
"""Callers make the names of models up, so the memory of them has a limit."""
LONGEST_PAUSE_S = 3600.0
_SHARED_FROM_S = 0.5
"""A pause that becomes longer by less is not told to other workers."""
HealthStatus: TypeAlias = Literal["up", "degraded", "down"]
Evidence: TypeAlias = Literal["requests", "check", "mark"]


class TargetHealth(msgspec.Struct, frozen=True):
    """One target as it is seen from outside."""

    target: str
    state: TargetCondition
    reason: str = ""
    retry_in_s: float = 0.0
    """Until its pause or its cooldown ends; infinite when it is marked down."""
    in_flight: int = 0
    waiting: int = 0
    limit: int | None = None
    status: HealthStatus = "up"
    checked_at: float | None = None
    """Unix time of the evidence; None before there is any."""
    evidence: Evidence | None = None
    """By what the status is known: its requests, a health check, or a mark."""


class Pause(msgspec.Struct, frozen=True):
    """How long a target is spared because it asked for that."""

    target: str
    seconds: float
    reason: str


class ProviderCheck(msgspec.Struct, frozen=True):
    """The last health check of a provider."""

    at: float
    """Unix time."""
    problem: str | None
    """Why it failed; empty when it succeeded, None when its answer says nothing."""


class TargetState:
    """One target: its breaker, its places, and what is held against it."""

    def __init__(
        self,
        target: Target,
        settings: BreakerSettings,
        limit: int | None,
        told: Callable[[TargetChanged], None] = lambda change: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        longest_pause_s: float = LONGEST_PAUSE_S,
        paused: Callable[[Pause], None] = lambda pause: None,
    ) -> None:
        """Start healthy and idle.

        `told` is called when its breaker changes, `paused` when it asks for a (longer) pause.
        """
        self.target = target
        self._settings = settings
        self._clock = clock
        self._longest_pause_s = longest_pause_s
        self._paused = paused
        self._paused_until = self._shared_until = -math.inf
        self._paused_for = ""
        self.pauses = 0
        """How often it has asked for a pause that had not begun."""
        self._shunned_until = -math.inf
        self._shunned_for = ""
        self._told = told
        self.breaker = Breaker(settings, clock, on_change=self._changed)
        self.slots = Slots(limit)
        self.answers = Waits()
        self.first_tokens = Waits()
        self.first_after_thinking = Waits()
        self.streams: bool | None = None
        """Whether it sends streams; None while that is not known."""
        self._check = ""
        self._answered = False
        """Whether a request has succeeded since the last check."""
        self._misleading = False
        """Whether checks fail although requests succeed."""
        self._requested_at: float | None = None
        self._checked_at: float | None = None
        self._marked_at: float | None = None
        self._miscounted = False

    def configure(
        self,
        settings: BreakerSettings,
        limit: int | None,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        """Go by these settings from now on."""
        self._settings = settings
        self._longest_pause_s = longest_pause_s
        self.breaker.configure(settings)
        self.slots.configure(limit)

    def _changed(self, state: TargetCondition, before: TargetCondition, reason: str) -> None:
        self._told(TargetChanged(str(self.target), state, before, reason, time.time()))

    def failed(self, permit: Permit, error: PenstockError) -> None:
        """Learn from an error of this target."""
        blame = blame_of(error)
        if blame == "none":
            permit.ignore()
            return
        self._requested_at = time.time()
        self._misleading = False
        if error.retry_after is not None and error.retry_after > 0:
            self.pause(error.retry_after, _reason(error))
        if blame == "failure":
            permit.failure(_reason(error))
            return
        permit.ignore()
        self._shunned_until = self._clock() + self._settings.cooldown_s
        self._shunned_for = _reason(error)

    def pause(self, seconds: float, reason: str, *, shared: bool = False) -> None:
        """Spare the target for so long; a pause that is longer already goes on.

        `shared`: another worker has said so, and knows it.
        """
        now = self._clock()
        until = now + min(seconds, self._longest_pause_s)
        if until <= self._paused_until:
            return
        if now >= self._paused_until:
            self.pauses += 1
        self._paused_until, self._paused_for = until, reason
        self._requested_at = time.time()
        if shared:
            self._shared_until = until
        elif until - max(now, self._shared_until) >= _SHARED_FROM_S:
            self._shared_until = until
            self._paused(Pause(str(self.target), until - now, reason))

    @property
    def paused_s(self) -> float:
        """Seconds that are left of the pause for which it has asked; 0: none."""
        return max(0.0, self._paused_until - self._clock())

    @property
    def current_pause(self) -> Pause | None:
        """The pause that has not ended."""
        left = self.paused_s
        return Pause(str(self.target), left, self._paused_for) if left else None

    def miscounted(self, answers: Sequence[Reply | Transcript | Vectors | None]) -> None:
        """Log, once, that this target reports impossible token counts."""
        if not self._miscounted:
            self._miscounted = True
            counts = ", ".join(shown(answer.usage) for answer in answers if answer is not None)
            _log.warning(
                "%s reports token counts that are impossible (%s); they are billed by estimates. "
                "This is logged once for each target; each request that it affects is marked "
                "implausible_usage",
                self.target,
                counts or "unknown",
            )

    def succeeded(self, permit: Permit, pauses: int | None = None) -> None:
        """Forget what was held against it.

        `pauses` is their number when the request began: an answer to a request that began before
        the pause does not end it. None: the request is the newest.
        """
        permit.success()
        self._shunned_until = -math.inf
        self._check = ""
        self._answered = True
        self._requested_at = time.time()
        if pauses is None or pauses == self.pauses:
            self._paused_until = -math.inf

    def checked(self, problem: str) -> None:
        """Take note of an active check of its provider; `problem` is empty when it succeeded.

        A failed check is no failed request: the target is asked last, and not refused. Where
        requests succeed while checks fail, the checks are ignored.
        """
        self._checked_at = time.time()
        answered, self._answered = self._answered, False
        if not problem:
            self._misleading = False
            self._check = ""
            self.breaker.recovered()
        elif answered or self._misleading:
            self._misleading = True
        else:
            self._check = problem

    def mark_down(self, mark: Mark) -> None:
        """Ask this target nothing until it is marked up."""
        if self._marked_at != mark.at:
            self._marked_at = mark.at
            self.breaker.trip(f"marked down: {mark.reason}", math.inf)

    def mark_up(self) -> None:
        """Forget all that is known against it."""
        self._marked_at = None
        self.breaker.reset()
        self._shunned_until = self._paused_until = self._shared_until = -math.inf
        self._check = ""
        self._misleading = False

    @property
    def is_marked(self) -> bool:
        """Whether it is marked down by hand."""
        return self._marked_at is not None

    @property
    def last_for(self) -> str:
        """Why it is asked last now; empty when it is not."""
        left = self.paused_s
        return (
            f"paused for {left:.0f} s more, as it asked: {self._paused_for}"
            if left
            else (self._shunned_for if self._clock() < self._shunned_until else self._check)
        )

    def refusal(self) -> PenstockError:
        """The error for a target that is not asked at all."""
        if pause := self.current_pause:
            return RateLimited(
                f"{self.target} is not asked for {pause.seconds:.0f} s, as it asked: "
                f"{pause.reason}",
                provider=self.target.provider,
                model=self.target.model,
                retry_after=pause.seconds,
            )
        left = self.breaker.retry_in_s
        if left < math.inf:
            # Whoever has no other target asks it so soon.
            left = min(left, LAST_RESORT_S)
        soon = f"; it is tried again in {left:.0f} s" if 0 < left < math.inf else ""
        reason = self.breaker.reason or "it is being tried by another request"
        return ProviderUnavailable(
            f"{self.target} is not asked for now: {reason}{soon}",
            provider=self.target.provider,
            model=self.target.model,
            retry_after=left if 0 < left < math.inf else None,
        )

    @property
    def forgettable(self) -> bool:
        """Whether nothing depends on it: no call is made or waits, and nothing is held back."""
        slots = self.slots
        busy = slots.in_flight or slots.waiting or slots.is_throttled
        # A mark is made again with the state.
        idle = self.is_marked or (self.breaker.state == "closed" and not self.paused_s)
        return idle and not busy

    @property
    def health(self) -> TargetHealth:
        """For people and for routing."""
        breaker, slots = self.breaker, self.slots
        status, evidence, at = self._judged()
        return TargetHealth(
            str(self.target),
            breaker.state,
            breaker.reason or self.last_for,
            max(breaker.retry_in_s, self.paused_s),
            slots.in_flight,
            slots.waiting,
            slots.limit,
            status,
            at,
            evidence,
        )

    def _judged(self) -> tuple[HealthStatus, Evidence | None, float | None]:
        """The status, by what evidence, and of when."""
        state = self.breaker.state
        if self.is_marked:
            return "down", "mark", self._marked_at
        if state == "open" or self._clock() < self._shunned_until:
            return "down", "requests", self._requested_at
        if self._check:
            return "down", "check", self._checked_at
        if state == "half_open" or self.breaker.is_failing or self.paused_s:
            return "degraded", "requests", self._requested_at
        if self.slots.is_throttled:
            return "degraded", "requests", self._requested_at
        known: list[tuple[float, Evidence]] = []
        if self._requested_at is not None:
            known.append((self._requested_at, "requests"))
        if self._checked_at is not None and not self._misleading:
            known.append((self._checked_at, "check"))
        at, evidence = max(known, default=(None, None), key=lambda each: each[0])
        return "up", evidence, at


class TargetStates:
    """The targets that were asked, each by itself; of very many, those that matter now."""

    def __init__(
        self,
        settings: BreakerSettings | None = None,
        limits: Mapping[str, int] | None = None,
        *,
        longest_pause_s: float = LONGEST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limits` says how many requests a provider may be working on at once, for each target."""
        self._settings = settings or BreakerSettings()
        self._limits = limits or {}
        self._longest_pause_s = longest_pause_s
        self._clock = clock
        self._states: dict[Target, TargetState] = {}
        self.marks = Marks()
        self.checks: dict[str, ProviderCheck] = {}
        """The last health check of each provider."""
        self.on_change: Callable[[TargetChanged], None] | None = None
        """Called whenever the breaker of one of them changes."""
        self.on_pause: Callable[[Pause], None] | None = None
        """Called when one of them asks for a pause, or for a longer one."""

    def __getitem__(self, target: Target) -> TargetState:
        """The state of this target, from now on."""
        state = self._states.get(target)
        if state is None:
            if len(self._states) >= _MOST_STATES:
                self._forget_idle()
            state = self._states[target] = TargetState(
                target,
                self._settings,
                self._limits.get(target.provider),
                self._changed,
                clock=self._clock,
                longest_pause_s=self._longest_pause_s,
                paused=self._paused,
            )
            self._apply_mark(state)
        return state

    def _changed(self, change: TargetChanged) -> None:
        if self.on_change is not None:
            self.on_change(change)

    def _paused(self, pause: Pause) -> None:
        if self.on_pause is not None:
            self.on_pause(pause)

    def __iter__(self) -> Iterator[TargetState]:
        """Those that were asked for already."""
        return iter(list(self._states.values()))

    def _forget_idle(self) -> None:
        self._states = {
            target: state for target, state in self._states.items() if not state.forgettable
        }
        for target, state in list(self._states.items())[: -_MOST_STATES + 1]:
            # All are held back for some reason: the oldest has the oldest one.
            if not (state.slots.in_flight or state.slots.waiting):
                del self._states[target]

    def adopt(
        self,
        before: TargetStates,
        same: Callable[[str], bool],
        same_account: Callable[[str], bool] = lambda provider: False,
    ) -> None:
        """Go on with what others know, as far as their providers are the `same`, by our settings.

        Those others know it too: the calls that they still make count for both. Of a provider that
        is only the `same_account`, its pauses count. Marks always do.
        """
        self.marks = before.marks
        for name, check in before.checks.items():
            if same(name):
                self.checks[name] = check
        for state in before:
            provider = state.target.provider
            if same(provider):
                state.configure(self._settings, self._limits.get(provider), self._longest_pause_s)
                self._states[state.target] = state
            elif same_account(provider) and (pause := state.current_pause):
                self[state.target].pause(pause.seconds, pause.reason, shared=True)
        self.apply_marks()

    def available(self, target: Target) -> tuple[bool, str]:
        """Whether the target may be asked, and why not."""
        state = self._states.get(target)
        if state is None:
            mark = self.marks.of(str(target)) if self.marks else None
            return (True, "") if mark is None else (False, f"marked down: {mark.reason}")
        if state.breaker.state == "closed":
            return not (reason := state.last_for), reason
        usable = state.breaker.state == "half_open" and not state.paused_s
        return usable, state.breaker.reason

    def rank(self, target: Target) -> int:
        """Its place among others: 0 to be asked, 1 to be asked last, 2 after these, in a pause."""
        state = self._states.get(target)
        if state is not None and state.paused_s:
            return 2
        return 0 if self.available(target)[0] else 1

    def paused_s(self, target: Target) -> float:
        """Seconds that are left of the pause for which it has asked; 0: none."""
        state = self._states.get(target)
        return 0.0 if state is None else state.paused_s

    def checked(self, provider: str, problem: str | None) -> None:
        """Take note of a health check of this provider.

        `problem` is empty when it succeeded, and None when its answer says nothing about health.
        """
        self.checks[provider] = ProviderCheck(time.time(), problem)
        if problem is not None:
            for state in self:
                if state.target.provider == provider:
                    state.checked(problem)

    def mark_down(self, target: Target | str, reason: str) -> None:
        """Ask what this covers nothing until it is marked up: a target, provider, or pattern."""
        self.marks.down(str(target), reason)
        if isinstance(target, Target):
            _ = self[target]
        pattern = full_pattern(str(target))
        for state in self:
            if covers(pattern, str(state.target)):
                self._apply_mark(state)

    def mark_up(self, target: Target | str) -> None:
        """Ask what this covers again, whatever it was blamed for."""
        self.marks.up(str(target))
        pattern = full_pattern(str(target))
        for state in self:
            if covers(pattern, str(state.target)):
                state.mark_up()

    def apply_marks(self) -> None:
        """Take what is marked down out of service."""
        for state in self:
            self._apply_mark(state)

    def _apply_mark(self, state: TargetState) -> None:
        if self.marks and (mark := self.marks.of(str(state.target))) is not None:
            state.mark_down(mark)


def _reason(error: PenstockError) -> str:
    return f"{type(error).__name__}: {error.message}"[:300]
