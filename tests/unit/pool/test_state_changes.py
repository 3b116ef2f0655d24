"""Whoever watches the targets is told when a breaker changes, once for each change."""

from penstock.contract.errors import ProviderUnavailable
from penstock.contract.ports import Target
from penstock.pool.targets.breaker import BreakerSettings
from penstock.pool.targets.states import TargetStates
from penstock.telemetry.records import TargetChanged

ONE = Target("stub", "one")


def watched(settings: BreakerSettings) -> tuple[TargetStates, list[TargetChanged]]:
    states, told = TargetStates(settings), list[TargetChanged]()
    states.on_change = told.append
    return states, told


def changes(told: list[TargetChanged]) -> list[tuple[str, str, str]]:
    assert {each.target for each in told} == {"stub/one"}
    return [(each.before, each.state, each.reason) for each in told]


def test_a_breaker_that_opens_and_closes_by_itself() -> None:
    states, told = watched(BreakerSettings(failures=2, cooldown_s=0.0, half_open_successes=1))
    state = states[ONE]
    for _ in range(2):
        permit = state.breaker.allow()
        assert permit is not None
        state.failed(permit, ProviderUnavailable("down"))
    permit = state.breaker.allow()
    assert permit is not None
    state.succeeded(permit)
    reason = "ProviderUnavailable: down"
    assert changes(told) == [
        ("closed", "open", reason),
        ("open", "half_open", reason),
        ("half_open", "closed", ""),
    ]
    assert told[0].at <= told[2].at


def test_what_is_no_change_is_not_told() -> None:
    states, told = watched(BreakerSettings())
    assert states.available(ONE) == (True, "")
    states.mark_up(ONE)
    permit = states[ONE].breaker.allow()
    assert permit is not None
    states[ONE].succeeded(permit)
    assert told == []
    states.mark_down(ONE, "first")
    states.mark_down(ONE, "second")
    assert changes(told) == [("closed", "open", "marked down: first")]


def test_nobody_need_watch() -> None:
    states = TargetStates()
    states.mark_down(ONE, "test")
    assert states[ONE].health.state == "open"
