"""Stops asking a target that keeps failing, and finds out with single probes when it is back.

```
closed ── `failures` in a row, or trip() ──> open ── cooldown over, or an early probe ──> half_open
half_open ── `half_open_successes` probes succeed ──> closed
half_open ── a probe fails after the cooldown ──> open, for a new cooldown
half_open ── an early probe fails ──> open, until the end of the same cooldown
```

A probe is early when it is allowed before the cooldown has ended: `recovered()` allows one in each
cooldown, `probe()` one after the other for requests without another target.

Two steps, as a stream needs them: `allow` before the call, the permit's report at its end. Each
change of state begins a generation, and the report of a permit of an older one says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import weakref
from collections.abc import Callable
from typing import Literal

import msgspec

LAST_RESORT_S = 1.0
"""How long a target that just failed is left alone even by those who have no other."""
BreakerState = Literal["closed", "open", "half_open"]
_Outcome = Literal["success", "failure", "ignored", "alive"]


class BreakerSettings(msgspec.Struct, frozen=True):
    """When a breaker opens, for how long, and what closes it again."""

    failures: int = 5
    """In a row; one success in between begins the count anew."""
    cooldown_s: float = 60.0
    half_open_successes: int = 3


class Breaker:
    """The circuit breaker of one target, for the tasks of one event loop.

    Time is judged when somebody asks: there is no timer, and an idle breaker costs nothing.
    """

    def __init__(
        self,
        settings: BreakerSettings,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[BreakerState, BreakerState, str], None] | None = None,
    ) -> None:
        """Begin closed; `on_change` is told the state, the one before, and the reason."""
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._state: BreakerState = "closed"
        self._generation = 0
        # A weak reference: a permit that was dropped without a report frees its place when it is
        # collected. A lease would have to guess how long a healthy stream may last.
        self._probe: weakref.ref[Permit] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._until = 0.0
        """The end of the cooldown that began last; still ahead while probes are early."""
        self._failed_at = -math.inf
        self._checked_early = False
        """Whether a check has allowed an early probe in this cooldown."""
        self._enter("closed")

    def configure(self, settings: BreakerSettings) -> None:
        """Go by these settings from now on; a cooldown that has begun is not changed."""
        self._settings = settings

    @property
    def state(self) -> BreakerState:
        """Now; an open breaker becomes half-open by itself when its cooldown has passed."""
        if self._state == "open" and self._clock() >= self._until:
            self._enter("half_open", self._reason)
        return self._state

    @property
    def reason(self) -> str:
        """Why it opened the last time; empty when closed."""
        return self._reason

    @property
    def is_failing(self) -> bool:
        """Whether the last call has failed."""
        return self._failures > 0

    @property
    def retry_in_s(self) -> float:
        """Seconds until a probe is allowed; infinite when only `reset` helps.

        It is 0 while a probe is out, too: that may end at any moment.
        """
        return max(0.0, self._until - self._clock()) if self.state == "open" else 0.0

    def allow(self) -> Permit | None:
        """The leave to make one call, or None: the target is not to be asked now."""
        state = self.state
        if state == "closed":
            return Permit(self._report, self._generation)
        if state == "open" or (self._probe is not None and self._probe() is not None):
            return None
        permit = Permit(self._report, self._generation)
        self._probe = weakref.ref(permit, self._dropped)
        return permit

    async def probe(self, longest_s: float) -> Permit | None:
        """The leave to make one call although the target is left alone, for who has no other.

        One call at a time, and none within `LAST_RESORT_S` of a failure. While somebody else's is
        under way its outcome is awaited, up to `longest_s`. None: the target is not to be asked.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                while (permit := self.allow()) is None:
                    if self.state != "open":
                        await self._report_of_the_probe()
                    elif self._clock() < self._failed_at + LAST_RESORT_S or self._until == math.inf:
                        return None
                    else:
                        self._enter("half_open", self._reason)
                return permit
        return None

    def trip(self, reason: str, cooldown_s: float | None = None) -> None:
        """Open at once; without `cooldown_s` for the usual time, with `math.inf` until `reset`.

        It never shortens: a breaker that is open for longer stays so, for the reason it has.
        """
        seconds = self._settings.cooldown_s if cooldown_s is None else cooldown_s
        until = self._clock() + seconds
        if self.state == "open" and until < self._until:
            return
        self._until = until
        self._checked_early = False
        self._failed_at = self._clock()
        self._enter("open", reason)

    def reset(self) -> None:
        """Close by hand; what is under way from before counts no more."""
        self._enter("closed")

    def recovered(self) -> None:
        """Allow an early probe, as a check has succeeded; once in each cooldown.

        A check of the model list is weak evidence: it neither closes the breaker nor moves the end
        of the cooldown, and does nothing where only `reset` helps.
        """
        if self.state == "open" and self._until != math.inf and not self._checked_early:
            self._checked_early = True
            self._enter("half_open", self._reason)

    def _probe_failed(self, reason: str) -> None:
        now = self._clock()
        if now >= self._until:
            self.trip(reason)
            return
        # The cooldown that was running goes on: an early probe must not prolong the outage.
        self._failed_at = now
        self._enter("open", reason)

    def _enter(self, state: BreakerState, reason: str = "") -> None:
        before, self._state = self._state, state
        self._reason = reason
        self._generation += 1
        self._failures = 0
        self._successes = 0
        self._probe = None
        self._wake()
        if self._on_change is not None and state != before:
            self._on_change(state, before, reason)

    async def _report_of_the_probe(self) -> None:
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(report)
        try:
            await report
        finally:
            if report in self._waiting:
                self._waiting.remove(report)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _dropped(self, _probe: object) -> None:
        self._wake()

    def _report(self, permit: Permit, outcome: _Outcome, reason: str) -> None:
        if permit.generation != self._generation:
            return
        if self._probe is not None and self._probe() is permit:
            self._probe = None
            self._wake()
        if outcome == "success":
            self._failures = 0
            if self._state == "half_open":
                self._successes += 1
                if self._successes >= self._settings.half_open_successes:
                    self.reset()
        elif outcome == "failure":
            self._failures += 1
            if self._state == "half_open":
                self._probe_failed(reason)
            elif self._failures >= self._settings.failures:
                self.trip(reason)


class Permit:
    """The leave to make one call; its first report counts, later ones do nothing."""

    __slots__ = ("__weakref__", "_report", "generation")

    def __init__(self, report: Callable[[Permit, _Outcome, str], None], generation: int) -> None:
        """Made by `Breaker.allow`."""
        self._report: Callable[[Permit, _Outcome, str], None] | None = report
        self.generation = generation

    def alive(self) -> None:
        """The target has begun to answer: if this is a probe, the next one need not wait for it."""
        if self._report is not None:
            self._report(self, "alive", "")

    def success(self) -> None:
        """The target answered, to the end."""
        self._tell("success")

    def failure(self, reason: str) -> None:
        """The target failed; `reason` is kept if that opens the breaker."""
        self._tell("failure", reason)

    def ignore(self) -> None:
        """The call says nothing about the target: the caller cancelled, or asked for nonsense."""
        self._tell("ignored")

    def _tell(self, outcome: _Outcome, reason: str = "") -> None:
        report, self._report = self._report, None
        if report is not None:
            report(self, outcome, reason)
