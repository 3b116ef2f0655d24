"""Requests above `at_once` wait for their turn; sessions take turns, and the queue has limits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer

from penstock.contract.errors import RateLimited
from penstock.mcp import (
    ApprovalQueue,
    Decision,
    Sampling,
    SamplingHost,
    SamplingPolicy,
    ServerRule,
    sample,
)
from penstock.mcp.host.fair_queue import FairQueue
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.mcp.asking.hosts import ERAS, said

MOST_BYTES = 1_000_000


def queue_of(slots: int = 1, most: int = 100, timeout_s: float = 30.0) -> FairQueue:
    return FairQueue(slots, most=most, most_bytes=MOST_BYTES, timeout_s=timeout_s)


class Crowd:
    """Requests that enter a queue, and the order in which they had their turn."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.refused: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def _request(self, name: str, size: int) -> None:
        try:
            await self.queue.enter(name[0], size)
        except RateLimited:
            self.refused.append(name)
            return
        self.order.append(name)
        self.queue.leave()

    async def come(self, *names: str, size: int = 0) -> None:
        """Let these queue up, in this order; the first letter is the session."""
        for name in names:
            self.tasks[name] = asyncio.create_task(self._request(name, size))
            # Until it waits, and until one that it displaced is refused.
            for _ in range(4):
                await asyncio.sleep(0)

    async def end(self) -> None:
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert (self.queue.running, self.queue.waiting) == (0, 0)


async def test_sessions_take_turns_and_each_keeps_its_order() -> None:
    queue = queue_of()
    crowd = Crowd(queue)
    await queue.enter("x")
    await crowd.come("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    assert queue.waiting == 7
    queue.leave()
    await crowd.end()
    assert crowd.order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_slots_are_used_and_never_exceeded() -> None:
    queue, most, running = queue_of(slots=3), 0, 0

    async def request(session: int) -> None:
        nonlocal most, running
        await queue.enter(session)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        queue.leave()

    await asyncio.gather(*(request(number % 4) for number in range(50)))
    assert most == 3
    assert (queue.running, queue.waiting) == (0, 0)


async def test_a_full_queue_refuses_the_session_that_fills_it() -> None:
    queue = queue_of(most=3)
    crowd = Crowd(queue)
    await queue.enter("x")
    await crowd.come("a1", "a2", "a3", "a4")
    assert crowd.refused == ["a4"]
    await crowd.come("b1")
    assert crowd.refused == ["a4", "a3"]
    await crowd.come("b2", "c1")
    assert crowd.refused == ["a4", "a3", "b2", "a2"]
    queue.leave()
    await crowd.end()
    assert crowd.order == ["a1", "b1", "c1"]


async def test_what_waits_has_a_limit_of_bytes() -> None:
    queue = queue_of()
    crowd = Crowd(queue)
    await queue.enter("x")
    await crowd.come("a1", size=2 * MOST_BYTES)
    await crowd.come("a2", size=1)
    assert crowd.refused == ["a2"]
    queue.leave()
    await crowd.come("a3", size=MOST_BYTES)
    await crowd.end()
    assert crowd.order == ["a1", "a3"]


async def test_a_wait_has_an_end() -> None:
    queue = queue_of(timeout_s=0.01)
    await queue.enter("x")
    with pytest.raises(RateLimited, match=r"none ended within 0.01 s"):
        await queue.enter("a")
    assert (queue.running, queue.waiting) == (1, 0)
    queue.leave()
    await queue.enter("a")
    queue.leave()
    assert queue.running == 0


@pytest.mark.parametrize("moment", ["waiting", "granted"])
async def test_a_request_that_is_cancelled_loses_no_slot(moment: str) -> None:
    queue = queue_of()
    crowd = Crowd(queue)
    await queue.enter("x")
    await crowd.come("a1", "b1")
    if moment == "granted":
        queue.leave()
    crowd.tasks["a1"].cancel()
    if moment == "waiting":
        await asyncio.sleep(0)
        queue.leave()
    await crowd.end()
    assert crowd.order == ["b1"]


@pytest.mark.parametrize("seed", range(20))
async def test_slots_survive_any_order_of_cancels_and_refusals(seed: int) -> None:
    chance = random.Random(seed)
    queue = queue_of(slots=2, most=5)
    crowd = Crowd(queue)
    for number in range(60):
        await crowd.come(f"{chance.choice('abc')}{number}", size=chance.randrange(400_000))
        if chance.random() < 0.3:
            chance.choice(list(crowd.tasks.values())).cancel()
        if chance.random() < 0.4:
            await queue.enter("x")
            await asyncio.sleep(0)
            queue.leave()
    await crowd.end()


def gathering(count: int) -> MCPServer[Any]:
    """A server whose tool asks so many questions at once."""
    server: MCPServer[Any] = MCPServer("gathering", extensions=[Sampling()])

    async def work(ctx: Context) -> str:
        asked = [sample(ctx, f"question {each}", max_tokens=9) for each in range(count)]
        return " ".join(each.text for each in await asyncio.gather(*asked))

    server.add_tool(work)
    return server


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_may_gather_more_than_the_default_at_once(era: str) -> None:
    replies = [FakeReply(text="yes", delay_s=0.01)] * 30
    async with engine_with(FakeProvider(replies)) as engine:
        host = SamplingHost(engine, approval="always")
        async with host.client("gathering", gathering(30), mode=era) as client:
            result = await client.call_tool("work")
    assert said(result).split() == ["yes"] * 30


async def test_a_server_that_asks_much_does_not_hold_up_another() -> None:
    """Each server has slots of its own, and each session of a server its turn."""
    approvals, waiting = ApprovalQueue(), asyncio.Event()
    seen: Counter[str] = Counter()

    def asked(each: Any) -> None:
        seen[each.review.server] += 1
        if seen["greedy"] == 2:
            waiting.set()
        if each.review.server == "modest":
            approvals.decide(each.id, Decision(approved=True))

    approvals.on_asked = asked
    policy = SamplingPolicy(approval="ask", servers={"*": ServerRule(at_once=2)})
    async with engine_with(FakeProvider()) as engine:
        host = SamplingHost(engine, policy=policy, approval=approvals)

        async def greedy(client: Client) -> None:
            await client.call_tool("work")

        async with (
            host.client("greedy", gathering(20), mode="legacy") as first,
            host.client("modest", gathering(1), mode="legacy") as second,
        ):
            much = asyncio.create_task(greedy(first))
            await waiting.wait()
            result = await second.call_tool("work")
            assert not result.is_error
            assert (host.limits("greedy").running, host.limits("greedy").waiting) == (2, 18)
            much.cancel()
            await asyncio.gather(much, return_exceptions=True)
    assert seen["greedy"] == 2
    assert said(result)
