"""How soon a target that is well again is asked: checks may only shorten the wait."""

from collections.abc import Callable

import pytest

from penstock.pool.targets.breaker import LAST_RESORT_S, Breaker, BreakerSettings, Permit
from tests.support.clock import ManualClock

SETTINGS = BreakerSettings(failures=3, cooldown_s=60.0, half_open_successes=2)
CHECK_S = 30.0
PHASES = [CHECK_S * phase / 10 for phase in range(10)]
OUTAGES_S = [1.0, 17.0, 31.0, 59.0, 60.0, 61.0, 89.0, 119.0, 121.0, 300.0, 1000.0]


def opened(clock: ManualClock, settings: BreakerSettings = SETTINGS) -> Breaker:
    breaker = Breaker(settings, clock)
    for _ in range(settings.failures):
        allowed(breaker).failure("503")
    assert breaker.state == "open"
    return breaker


def allowed(breaker: Breaker) -> Permit:
    permit = breaker.allow()
    assert permit is not None
    return permit


class Outage:
    """A request a second at a target that fails, although its model list is always there."""

    def __init__(self, length_s: float, *, phase_s: float | None, answer_s: float = 0.0) -> None:
        """`phase_s` is the time of the first check; None: there are no checks."""
        self.clock = ManualClock(0.0)
        self.breaker = opened(self.clock)
        self.length_s = length_s
        self.answer_s = answer_s
        self._next_check_s = float("inf") if phase_s is None else phase_s
        self._asked: list[tuple[float, Permit]] = []
        self.probes = 0

    def noticed_after_s(self) -> float:
        """Seconds from the end of the outage to the first request that is answered."""
        while True:
            now = self.clock.now
            if now >= self._next_check_s:
                self._next_check_s += CHECK_S
                self.breaker.recovered()
            for asked in [each for each in self._asked if each[0] + self.answer_s <= now]:
                self._asked.remove(asked)
                asked[1].failure("503")
            permit = self.breaker.allow()
            if permit is not None:
                self.probes += 1
                if now >= self.length_s:
                    return now - self.length_s
                self._asked.append((now, permit))
                continue
            self.clock.now = now + 1.0
            assert now < self.length_s + 1000, "the recovery is never noticed"


@pytest.mark.parametrize("phase_s", PHASES)
@pytest.mark.parametrize("answer_s", [0.0, 5.0])
def test_a_recovery_is_noticed_within_the_cooldown_and_never_later_because_of_checks(
    phase_s: float, answer_s: float
) -> None:
    for length_s in OUTAGES_S:
        checked = Outage(length_s, phase_s=phase_s, answer_s=answer_s).noticed_after_s()
        unchecked = Outage(length_s, phase_s=None, answer_s=answer_s).noticed_after_s()
        assert checked <= SETTINGS.cooldown_s + answer_s, length_s
        assert checked <= unchecked + answer_s, length_s


def test_checks_allow_at_most_one_probe_more_in_each_cooldown() -> None:
    outage = Outage(6000.0, phase_s=1.0)
    outage.noticed_after_s()
    assert outage.probes <= 2 * 6000 / SETTINGS.cooldown_s + 1


def test_a_failed_early_probe_keeps_the_end_of_the_cooldown() -> None:
    clock = ManualClock()
    breaker = opened(clock)
    clock.now += 40
    breaker.recovered()
    allowed(breaker).failure("still 503")
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("open", "still 503", 20.0)
    breaker.recovered()
    assert breaker.state == "open", "one early probe in each cooldown"
    clock.now += 20
    allowed(breaker).failure("503 again")
    assert breaker.retry_in_s == 60.0
    breaker.recovered()
    assert breaker.state == "half_open", "a new cooldown has an early probe of its own"


def test_an_early_probe_that_fails_after_the_cooldown_begins_another() -> None:
    clock = ManualClock()
    breaker = opened(clock)
    clock.now += 50
    breaker.recovered()
    probe = allowed(breaker)
    clock.now += 30
    probe.failure("silent")
    assert (breaker.state, breaker.retry_in_s) == ("open", 60.0)


async def test_a_failed_last_resort_keeps_the_end_of_the_cooldown_too() -> None:
    clock = ManualClock()
    breaker = opened(clock)
    for second in range(1, 59):
        clock.now += LAST_RESORT_S
        probe = await breaker.probe(1)
        assert probe is not None
        probe.failure("503")
        assert breaker.retry_in_s == 60.0 - second


REPORTS: list[Callable[[Permit], None]] = [Permit.success, Permit.ignore]


@pytest.mark.parametrize("report", REPORTS)
def test_a_check_never_closes_and_never_counts_as_a_success(
    report: Callable[[Permit], None],
) -> None:
    clock = ManualClock()
    breaker = opened(clock)
    for _ in range(10):
        breaker.recovered()
    assert breaker.state == "half_open"
    report(allowed(breaker))
    for _ in range(10):
        breaker.recovered()
    assert breaker.state == "half_open"
