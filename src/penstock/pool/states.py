"""What the pool knows of each target: whether it may be asked, and how busy it is."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from penstock.contract.errors import PenstockError, ProviderUnavailable, shown
from penstock.contract.exchange import Reply, Transcript, Vectors
from penstock.contract.ports import Target
from penstock.pool.breaker import LAST_RESORT_S, Breaker, BreakerSettings, Permit
from penstock.pool.history import Waits
from penstock.pool.judge import blame_of
from penstock.pool.slots import Slots
from penstock.telemetry.records import TargetChanged, TargetCondition

_log = logging.getLogger(__name__)
_MOST_STATES = 1024
"""Callers make the names of models up, so the memory of them has a limit."""


class TargetHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """One target as it is seen from outside."""

    target: str
    state: TargetCondition
    reason: str = ""
    retry_in_s: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    limit: int | None = None


class TargetState:
    """One target: its breaker, its places, and what is held against it."""

    def __init__(
        self,
        target: Target,
        settings: BreakerSettings,
        limit: int | None,
        told: Callable[[TargetChanged], None] = lambda change: None,
    ) -> None:
        """Healthy and idle, as far as anybody knows; `told` hears when its breaker changes."""
        self.target = target
        self._settings = settings
        self._shunned_until = 0.0
        self._shunned_for = ""
        self._told = told
        self.breaker = Breaker(settings, on_change=self._changed)
        self.slots = Slots(limit)
        self.first_tokens = Waits()
        self.answers = Waits()
        self._check = ""
        self._miscounted = False

    def configure(self, settings: BreakerSettings, limit: int | None) -> None:
        """Go by these settings from now on."""
        self._settings = settings
        self.breaker.configure(settings)
        self.slots.configure(limit)

    def _changed(self, state: TargetCondition, before: TargetCondition, reason: str) -> None:
        self._told(TargetChanged(str(self.target), state, before, reason, time.time()))

    def failed(self, permit: Permit, error: PenstockError) -> None:
        """Learn from an error of this target."""
        blame = blame_of(error)
        if blame == "failure":
            permit.failure(_reason(error))
            return
        permit.ignore()
        if blame == "shun":
            self._shunned_until = time.monotonic() + self._settings.cooldown_s
            self._shunned_for = _reason(error)

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

    def succeeded(self, permit: Permit) -> None:
        """Whatever was held against it is forgotten."""
        permit.success()
        self._shunned_until = 0.0
        self._check = ""

    def checked(self, problem: str) -> None:
        """What an active check of its provider found; empty when all is well.

        A failed check is no failed request: the target is asked last, and not refused.
        """
        self._check = problem
        if not problem:
            self.breaker.recovered()

    def forgiven(self) -> None:
        """By hand: nothing of what is known counts any more."""
        self.breaker.reset()
        self._shunned_until = 0.0
        self._check = ""

    @property
    def shunned_for(self) -> str:
        """Why it is asked last just now; empty when it is not."""
        return self._shunned_for if time.monotonic() < self._shunned_until else self._check

    def refusal(self) -> PenstockError:
        """The error for a target that is not asked at all."""
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
        return self.breaker.state == "closed" and not busy

    @property
    def health(self) -> TargetHealth:
        """For people and for routing."""
        breaker, slots = self.breaker, self.slots
        return TargetHealth(
            str(self.target),
            breaker.state,
            breaker.reason or self.shunned_for,
            breaker.retry_in_s,
            slots.in_flight,
            slots.waiting,
            slots.limit,
        )


class TargetStates:
    """The targets that were asked, each by itself; of very many, those that matter now."""

    def __init__(
        self, settings: BreakerSettings | None = None, limits: Mapping[str, int] | None = None
    ) -> None:
        """`limits` says how many requests a provider may be working on at once, for each target."""
        self._settings = settings or BreakerSettings()
        self._limits = limits or {}
        self._states: dict[Target, TargetState] = {}
        self.on_change: Callable[[TargetChanged], None] | None = None
        """Told whenever the breaker of one of them changes."""

    def __getitem__(self, target: Target) -> TargetState:
        """The state of this target, from now on."""
        state = self._states.get(target)
        if state is None:
            if len(self._states) >= _MOST_STATES:
                self._forget_idle()
            limit = self._limits.get(target.provider)
            state = self._states[target] = TargetState(target, self._settings, limit, self._changed)
        return state

    def _changed(self, change: TargetChanged) -> None:
        if self.on_change is not None:
            self.on_change(change)

    def __iter__(self) -> Iterator[TargetState]:
        """Those that were asked for already."""
        return iter(list(self._states.values()))

    def _forget_idle(self) -> None:
        self._states = {
            target: state for target, state in self._states.items() if not state.forgettable
        }

    def adopt(self, before: TargetStates, same: Callable[[str], bool]) -> None:
        """Go on with what others know, as far as their providers are the `same`, by our settings.

        Those others know it too: the calls that they still make count for both.
        """
        for state in before:
            provider = state.target.provider
            if same(provider):
                state.configure(self._settings, self._limits.get(provider))
                self._states[state.target] = state

    def available(self, target: Target) -> tuple[bool, str]:
        """Whether the target may be asked, and why not."""
        state = self._states.get(target)
        if state is None:
            return True, ""
        if state.breaker.state == "closed":
            return not state.shunned_for, state.shunned_for
        return state.breaker.state == "half_open", state.breaker.reason

    def mark_down(self, target: Target, reason: str) -> None:
        """Ask this target nothing until it is marked up."""
        self[target].breaker.trip(f"marked down: {reason}", math.inf)

    def mark_up(self, target: Target) -> None:
        """Ask this target again, whatever it was blamed for."""
        self[target].forgiven()


def _reason(error: PenstockError) -> str:
    return f"{type(error).__name__}: {error.message}"[:300]
