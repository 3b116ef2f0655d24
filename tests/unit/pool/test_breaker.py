"""The breaker by example, and against a model that knows nothing of how it is built."""

import gc
import math
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from penstock.pool.targets.breaker import Breaker, BreakerSettings, BreakerState, Permit
from tests.support.clock import ManualClock

SETTINGS = BreakerSettings(failures=3, cooldown_s=10.0, half_open_successes=2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def breaker(clock: ManualClock) -> Breaker:
    return Breaker(SETTINGS, clock)


def allowed(breaker: Breaker) -> Permit:
    permit = breaker.allow()
    assert permit is not None
    return permit


def fail(breaker: Breaker, times: int = 1, reason: str = "503") -> None:
    for _ in range(times):
        allowed(breaker).failure(reason)


def half_open(breaker: Breaker, clock: ManualClock) -> Breaker:
    breaker.trip("down")
    clock.now += SETTINGS.cooldown_s
    assert breaker.state == "half_open"
    return breaker


def test_a_new_breaker_is_closed_and_gives_any_number_of_permits(breaker: Breaker) -> None:
    permits = [breaker.allow() for _ in range(20)]
    assert None not in permits
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("closed", "", 0.0)


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert BreakerSettings() == BreakerSettings(failures=5, cooldown_s=60.0, half_open_successes=3)


def test_failures_in_a_row_open_it_for_the_last_reason(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert breaker.state == "closed"
    fail(breaker, reason="reset by peer")
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("open", "reset by peer", 10.0)
    assert breaker.allow() is None


def test_a_success_in_between_begins_the_count_anew_and_an_ignored_call_does_not(
    breaker: Breaker,
) -> None:
    fail(breaker, 2)
    allowed(breaker).success()
    fail(breaker, 2)
    assert breaker.state == "closed"
    allowed(breaker).ignore()
    fail(breaker)
    assert breaker.state == "open"


def test_the_cooldown_passes_by_the_clock_alone(breaker: Breaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    clock.now += 9.5
    assert (breaker.state, breaker.retry_in_s) == ("open", 0.5)
    clock.now += 0.5
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("half_open", "503", 0.0)


def test_half_open_lets_one_probe_out_at_a_time(breaker: Breaker, clock: ManualClock) -> None:
    half_open(breaker, clock)
    probe = allowed(breaker)
    assert breaker.allow() is None
    probe.success()
    assert breaker.state == "half_open"
    allowed(breaker).success()
    assert (breaker.state, breaker.reason) == ("closed", "")
    fail(breaker, 2)
    assert breaker.state == "closed"


def test_one_failed_probe_opens_it_again_for_a_whole_cooldown(
    breaker: Breaker, clock: ManualClock
) -> None:
    half_open(breaker, clock)
    allowed(breaker).success()
    fail(breaker, reason="still down")
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("open", "still down", 10.0)
    clock.now += 10
    allowed(breaker).success()
    assert breaker.state == "half_open", "the success before the failure counted"


def test_an_ignored_probe_makes_way_for_the_next(breaker: Breaker, clock: ManualClock) -> None:
    half_open(breaker, clock)
    allowed(breaker).ignore()
    allowed(breaker).success()
    allowed(breaker).success()
    assert breaker.state == "closed"


def test_a_probe_that_was_dropped_without_a_report_makes_way(
    breaker: Breaker, clock: ManualClock
) -> None:
    half_open(breaker, clock)
    probe = allowed(breaker)
    assert breaker.allow() is None
    del probe
    assert breaker.allow() is not None


def test_a_probe_that_was_dropped_in_a_cycle_makes_way_when_it_is_collected(
    breaker: Breaker, clock: ManualClock
) -> None:
    half_open(breaker, clock)
    cycle: list[object] = [allowed(breaker)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert breaker.allow() is not None


def test_a_long_probe_is_waited_for_however_long_it_lasts(
    breaker: Breaker, clock: ManualClock
) -> None:
    half_open(breaker, clock)
    probe = allowed(breaker)
    clock.now += 1e6
    assert breaker.allow() is None
    probe.success()
    assert breaker.allow() is not None


REPORTS: list[Callable[[Permit], None]] = [
    lambda permit: permit.success(),
    lambda permit: permit.failure("late"),
    lambda permit: permit.ignore(),
]


@pytest.mark.parametrize("second", REPORTS)
def test_only_the_first_report_of_a_permit_counts(
    breaker: Breaker, second: Callable[[Permit], None]
) -> None:
    fail(breaker, 1)
    permit = allowed(breaker)
    permit.failure("503")
    for _ in range(5):
        second(permit)
    assert breaker.state == "closed"
    fail(breaker)
    assert breaker.state == "open", "a later report took the failure back"


@pytest.mark.parametrize("report", REPORTS)
def test_what_began_before_the_opening_says_nothing_about_the_probe(
    breaker: Breaker, clock: ManualClock, report: Callable[[Permit], None]
) -> None:
    old = allowed(breaker)
    half_open(breaker, clock)
    probe = allowed(breaker)
    report(old)
    assert breaker.state == "half_open"
    assert breaker.allow() is None, "an old permit freed the place of the probe"
    probe.success()
    allowed(breaker).success()
    assert breaker.state == "closed"


def test_a_trip_opens_at_once_for_its_own_time(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("rate limited", cooldown_s=3.0)
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("open", "rate limited", 3.0)
    clock.now += 3
    assert breaker.state == "half_open"


def test_a_trip_without_end_lasts_until_the_reset(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("marked down", cooldown_s=math.inf)
    clock.now += 1e12
    breaker.recovered()
    assert (breaker.state, breaker.retry_in_s) == ("open", math.inf)
    breaker.reset()
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("closed", "", 0.0)


def test_a_shorter_trip_does_not_end_a_longer_one(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("marked down", cooldown_s=math.inf)
    breaker.trip("401")
    assert (breaker.reason, breaker.retry_in_s) == ("marked down", math.inf)
    breaker.reset()
    breaker.trip("429", cooldown_s=2.0)
    breaker.trip("401")
    assert (breaker.reason, breaker.retry_in_s) == ("401", 10.0)


def test_a_trip_in_half_open_takes_the_probe_back(breaker: Breaker, clock: ManualClock) -> None:
    half_open(breaker, clock)
    probe = allowed(breaker)
    breaker.trip("401")
    assert (breaker.state, breaker.reason) == ("open", "401")
    clock.now += 10
    assert breaker.allow() is not None, "a probe of before keeps the place"
    probe.success()
    assert breaker.state == "half_open"


def test_a_successful_check_lets_probes_out_but_does_not_close(breaker: Breaker) -> None:
    fail(breaker, 3)
    breaker.recovered()
    assert (breaker.state, breaker.reason, breaker.retry_in_s) == ("half_open", "503", 0.0)
    probe = allowed(breaker)
    breaker.recovered()
    assert breaker.allow() is None, "a check let a second probe out"
    probe.success()
    allowed(breaker).success()
    breaker.recovered()
    assert breaker.state == "closed"


def test_a_reset_forgets_the_failures_and_what_is_under_way(breaker: Breaker) -> None:
    fail(breaker, 2)
    under_way = allowed(breaker)
    breaker.reset()
    under_way.failure("503")
    fail(breaker, 2)
    assert breaker.state == "closed"


class Call:
    """A permit with what the model knows of it; the bundle holds this, and only this the permit."""

    def __init__(self, permit: Permit, era: int) -> None:
        self.permit: Permit | None = permit
        self.era = era


class BreakerModel(RuleBasedStateMachine):
    """The states, told as a story: the outcomes since the last change decide on the next one."""

    calls = Bundle[Call]("calls")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.state: BreakerState = "closed"
        self.reason = ""
        self.until = 0.0
        self.checked_early = False
        self.era = 0
        self.outcomes: list[bool] = []
        self.probes: set[int] = set()

    @initialize(failures=st.integers(1, 4), successes=st.integers(1, 3))
    def begin(self, failures: int, successes: int) -> None:
        self.settings = BreakerSettings(failures, 10.0, successes)
        self.breaker = Breaker(self.settings, self.clock)

    def turn(self, state: BreakerState, reason: str) -> None:
        self.state, self.reason = state, reason
        self.era += 1
        self.outcomes = []
        self.probes = set()

    def open(self, reason: str, until: float) -> None:
        self.turn("open", reason)
        self.until = until
        self.checked_early = False

    def count(self, call: Call, succeeded: bool, reason: str = "") -> None:
        if call.era != self.era:
            return
        self.probes.discard(id(call))
        self.outcomes.append(succeeded)
        last = self.outcomes[-self.settings.failures :]
        if self.state == "half_open" and not succeeded and self.clock.now < self.until:
            self.turn("open", reason)
        elif self.state == "half_open" and not succeeded:
            self.open(reason, self.clock.now + 10)
        elif self.state == "half_open" and len(self.outcomes) == self.settings.half_open_successes:
            self.turn("closed", "")
        elif self.state == "closed" and len(last) == self.settings.failures and not any(last):
            self.open(reason, self.clock.now + 10)

    @rule(target=calls)
    def allow(self) -> MultipleResults[Call]:
        permit = self.breaker.allow()
        refused = self.state == "open" or (self.state == "half_open" and bool(self.probes))
        assert (permit is None) == refused
        if permit is None:
            return multiple()
        call = Call(permit, self.era)
        if self.state == "half_open":
            self.probes.add(id(call))
        return multiple(call)

    @rule(call=consumes(calls))
    def succeed(self, call: Call) -> None:
        assert call.permit is not None
        call.permit.success()
        self.count(call, True)

    @rule(call=consumes(calls), reason=st.sampled_from(["503", "reset", "stall"]))
    def fail(self, call: Call, reason: str) -> None:
        assert call.permit is not None
        call.permit.failure(reason)
        self.count(call, False, reason)

    @rule(call=consumes(calls))
    def ignore(self, call: Call) -> None:
        assert call.permit is not None
        call.permit.ignore()
        self.probes.discard(id(call))

    @rule(call=consumes(calls))
    def drop(self, call: Call) -> None:
        call.permit = None
        self.probes.discard(id(call))

    @rule(call=consumes(calls), first=st.sampled_from(REPORTS), second=st.sampled_from(REPORTS))
    def report_twice(
        self, call: Call, first: Callable[[Permit], None], second: Callable[[Permit], None]
    ) -> None:
        assert call.permit is not None
        first(call.permit)
        second(call.permit)
        if first is REPORTS[2]:
            self.probes.discard(id(call))
        else:
            self.count(call, first is REPORTS[0], "late")

    @rule(seconds=st.sampled_from([1, 5, 10, 25]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds
        if self.state == "open" and self.clock.now >= self.until:
            self.turn("half_open", self.reason)

    @rule(
        seconds=st.sampled_from([None, 3.0, 20.0, math.inf]),
        reason=st.sampled_from(["401", "marked down"]),
    )
    def trip(self, seconds: float | None, reason: str) -> None:
        self.breaker.trip(reason, seconds)
        until = self.clock.now + (10.0 if seconds is None else seconds)
        if self.state != "open" or until >= self.until:
            self.open(reason, until)

    @rule()
    def reset(self) -> None:
        self.breaker.reset()
        self.turn("closed", "")

    @rule()
    def recovered(self) -> None:
        self.breaker.recovered()
        if self.state == "open" and self.until < math.inf and not self.checked_early:
            self.turn("half_open", self.reason)
            self.checked_early = True

    @invariant()
    def agrees(self) -> None:
        left = self.until - self.clock.now if self.state == "open" else 0.0
        seen = (self.breaker.state, self.breaker.reason, self.breaker.retry_in_s)
        assert seen == (self.state, self.reason, left)
        assert len(self.probes) <= 1


TestBreakerModel = BreakerModel.TestCase
TestBreakerModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
