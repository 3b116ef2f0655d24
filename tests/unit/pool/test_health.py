"""Checks that cost no tokens, and what they change."""

import asyncio
import math
from collections.abc import Sequence

import pytest

from penstock.contract.errors import (
    AuthenticationFailed,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
)
from penstock.contract.ports import ModelInfo, Target
from penstock.pool.targets.health_checks import HealthChecks
from penstock.pool.targets.states import TargetStates
from tests.support.stub import StubProvider

ONE, OTHER = Target("stub", "one"), Target("stub", "other")


class Checked:
    """A provider whose model list a test decides about."""

    def __init__(self, models: Exception | None = None) -> None:
        self.provider = StubProvider(models=models or ())
        self.states = TargetStates()
        assert [self.states[target].target for target in (ONE, OTHER)] == [ONE, OTHER]
        self.checks = HealthChecks(self.states, {"stub": self.provider}.__getitem__, 0.01)


@pytest.mark.parametrize("error", [ProviderUnavailable("down"), AuthenticationFailed("bad key")])
async def test_a_provider_that_is_not_there_is_asked_last(error: PenstockError) -> None:
    checked = Checked(error)
    await checked.checks.check()
    for target in (ONE, OTHER):
        usable, reason = checked.states.available(target)
        assert not usable
        assert f"its health check failed: {type(error).__name__}: {error}" in reason
        # Asked last, and not refused.
        assert checked.states[target].breaker.allow() is not None


async def test_a_list_that_a_server_does_not_have_says_nothing() -> None:
    checked = Checked(ModelNotFound("no such page"))
    await checked.checks.check()
    assert checked.states.available(ONE) == (True, "")


async def test_a_provider_that_is_back_may_be_tried_before_its_cooldown_is_over() -> None:
    checked = Checked(ProviderUnavailable("down"))
    checked.states[ONE].breaker.trip("503")
    await checked.checks.check()
    assert checked.states[ONE].breaker.state == "open"
    checked.provider = StubProvider()
    checked.checks = HealthChecks(checked.states, {"stub": checked.provider}.__getitem__, 0.01)
    await checked.checks.check()
    assert checked.states[ONE].breaker.state == "half_open"
    assert checked.states.available(OTHER) == (True, "")


async def test_what_is_down_by_hand_stays_down() -> None:
    checked = Checked()
    checked.states.mark_down(ONE, "maintenance")
    await checked.checks.check()
    assert checked.states[ONE].breaker.retry_in_s == math.inf


async def test_what_is_marked_up_is_asked_again_whatever_it_was_blamed_for() -> None:
    checked = Checked(ProviderUnavailable("down"))
    await checked.checks.check()
    state = checked.states[ONE]
    permit = state.breaker.allow()
    assert permit is not None
    state.failed(permit, AuthenticationFailed("bad key"))
    state.breaker.trip("down")
    checked.states.mark_up(ONE)
    assert checked.states.available(ONE) == (True, "")
    assert state.health.reason == ""


async def test_a_request_that_succeeds_says_more_than_a_check() -> None:
    checked = Checked(ProviderUnavailable("down"))
    await checked.checks.check()
    state = checked.states[ONE]
    permit = state.breaker.allow()
    assert permit is not None
    state.succeeded(permit)
    assert checked.states.available(ONE) == (True, "")


async def test_checks_are_made_again_and_again_and_cost_no_tokens() -> None:
    checked = Checked()
    listed = asyncio.Event()
    calls = 0

    class Counting(StubProvider):
        async def models(self) -> Sequence[ModelInfo]:
            nonlocal calls
            calls += 1
            if calls == 3:
                listed.set()
            return ()

    provider = Counting()
    checks = HealthChecks(checked.states, {"stub": provider}.__getitem__, 0.001)
    running = asyncio.create_task(checks.run())
    await listed.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert provider.requests == []
