"""The queue of what waits for a decision, and the rules and limits beside it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from penstock import ConfigurationError, RateLimited, SamplingRequest
from penstock.config.load import parse
from penstock.contract.approval import ApprovalMode
from penstock.contract.ports import Target
from penstock.engine.build.pool import sampling_policy
from penstock.mcp import ApprovalQueue, Decision, Estimate, Review, SamplingPolicy, ServerRule
from penstock.mcp.host.limits import Minute, ServerLimits
from penstock.mcp.host.policy import shaped
from tests.mcp.host.connections import params
from tests.support.clock import ManualClock

REQUEST = SamplingRequest.from_mcp(params())
REVIEW = Review(request=REQUEST, estimate=Estimate(1, None), server="docs")


async def test_the_first_decision_counts() -> None:
    queue = ApprovalQueue()
    waiting = [asyncio.create_task(queue(REVIEW)) for _ in range(2)]
    await asyncio.sleep(0)
    first, second = queue.waiting()
    assert queue.decide(second.id, Decision(approved=True))
    assert not queue.decide(second.id, Decision.deny())
    assert queue.get(second.id) is None
    assert [each.id for each in queue.waiting()] == [first.id]
    assert queue.decide(first.id, Decision.deny("no"))
    assert [each.approved for each in await asyncio.gather(*waiting)] == [False, True]
    assert queue.waiting() == []
    assert not queue.decide(first.id, Decision(approved=True))


async def test_silence_is_a_no_and_says_so() -> None:
    decision = await ApprovalQueue(timeout_s=0.001)(REVIEW)
    assert (decision.approved, decision.reason) == (False, "no decision within 0.001 s")


async def test_a_full_queue_takes_no_more() -> None:
    queue = ApprovalQueue(most=1)
    first = asyncio.create_task(queue(REVIEW))
    await asyncio.sleep(0)
    decision = await queue(REVIEW)
    assert (decision.approved, decision.reason) == (False, "1 others wait for approval")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert queue.waiting() == []


@pytest.mark.parametrize(
    ("general", "own", "expected"),
    [
        ("always", None, "always"),
        ("always", ServerRule(approval="ask"), "ask"),
        ("always", ServerRule(approval="never"), "never"),
        ("ask", None, "ask"),
        ("ask", ServerRule(), "ask"),
        ("ask", ServerRule(approval="always"), "always"),
        ("policy", None, "never"),
        ("policy", ServerRule(), "always"),
        ("policy", ServerRule(approval="ask"), "ask"),
        ("never", ServerRule(approval="always"), "never"),
    ],
)
def test_who_decides(general: ApprovalMode, own: ServerRule | None, expected: str) -> None:
    servers = {} if own is None else {"docs": own}
    policy = SamplingPolicy(approval=general, servers=servers)
    assert policy.mode("docs") == expected
    for_all = SamplingPolicy(approval=general, servers={} if own is None else {"*": own})
    assert for_all.mode("docs") == expected


@pytest.mark.parametrize(
    "name", ["max_tokens", "requests_per_minute", "at_once", "timeout_s", "queue_timeout_s"]
)
def test_a_limit_that_lets_nothing_through_is_refused(name: str) -> None:
    given: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigurationError, match=f"{name}=0"):
        ServerRule(**given)


def test_the_policy_of_a_configuration() -> None:
    config = parse(
        """
        [sampling]
        approval = "ask"
        approval_timeout_s = 7
        review_answers = false
        [sampling.servers.docs]
        models = ["default"]
        max_tokens = 9
        budget = { limit_usd = 1 }
        tags = { team = "search" }
        [sampling.servers."*"]
        approval = "never"
        """
    )
    policy = sampling_policy(config)
    assert (policy.approval, policy.timeout_s, policy.review_answers) == ("ask", 7, False)
    assert policy.rule("docs") == ServerRule(
        models=("default",), max_tokens=9, tags={"team": "search"}
    )
    assert policy.mode("another") == "never"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[sampling]\napproval = "maybe"', "'always', 'policy', 'ask' or 'never'"),
        ('[sampling.servers."a b"]\nmax_tokens = 9', "'a b' is not a valid server name"),
        ('[sampling.servers."*"]\nbudget = { limit_usd = 1 }', "cannot have a budget"),
        ("[sampling.servers.docs]\nmax_tokens = 0", "max_tokens"),
        ("[sampling.servers.docs]\nmax_queued = -1", "max_queued"),
        ("[sampling.servers.docs]\nqueue_timeout_s = 0", "queue_timeout_s"),
        ("[sampling.servers.docs]\nmodel = 'x'", "model"),
    ],
)
def test_mistakes_in_the_configuration_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert words in str(caught.value)


def test_a_minute_slides() -> None:
    clock = ManualClock()
    minute = Minute(3, clock)
    assert minute.take(2)
    clock.now += 30
    assert minute.take(1)
    assert minute.take(1) is None
    assert minute.wait_s(1) == 30
    assert minute.wait_s(3) == 60
    clock.now += 30
    assert (minute.used, minute.wait_s(1)) == (1, 0)
    assert minute.take(2)


async def test_requests_under_way_are_counted_however_they_end() -> None:
    limits = ServerLimits("docs", ServerRule(at_once=1, max_queued=0))
    with contextlib.suppress(KeyError):
        async with limits.turn("a", 0, limits.count_request()):
            assert limits.running == 1
            raise KeyError
    assert limits.running == 0
    async with limits.turn("a", 0, limits.count_request()):
        with pytest.raises(RateLimited, match="1 requests of this server are under way"):
            async with limits.turn("b", 0, limits.count_request()):
                pass
    assert limits.running == 0


async def test_a_request_that_gets_no_turn_does_not_count() -> None:
    limits = ServerLimits("docs", ServerRule(at_once=1, max_queued=0, requests_per_minute=2))
    async with limits.turn("a", 0, limits.count_request()):
        for _ in range(5):
            with pytest.raises(RateLimited, match="under way"):
                async with limits.turn("a", 0, limits.count_request()):
                    pass
    limits.count_request()
    with pytest.raises(RateLimited, match="2 times a minute"):
        limits.count_request()


def test_a_rule_never_widens_a_request() -> None:
    def targets(model: str) -> list[Target]:
        return [Target("fake", model)]

    rule = ServerRule(max_tokens=1000, models=("a", "b"))
    assert shaped(REQUEST, rule, targets).max_tokens == 100
    assert shaped(REQUEST, ServerRule(max_tokens=5), targets).max_tokens == 5
    assert shaped(REQUEST, rule, targets).model == "a"
    assert shaped(REQUEST, ServerRule(), targets, "own").model == "own"
    assert shaped(REQUEST, ServerRule(), targets).model is None
