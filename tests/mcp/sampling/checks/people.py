"""The human in the loop, limits, context, and what a server may learn of its host."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from penstock import AuthenticationFailed, Text
from penstock.mcp import ApprovalQueue, Decision, Review, SamplingPolicy, ServerRule
from tests.mcp.host.connections import RefusedError, params
from tests.mcp.sampling.checks.support import WEATHER, Asked, scene
from tests.mcp.sampling.requirement import Way

REJECTED, FAILED = -1, -32000


async def rejection(way: Way) -> None:
    async with scene(way, approval=Asked([False, Decision.deny("not today")])) as there:
        for words in ("rejected", "rejected.*not today"):
            with pytest.raises(RefusedError, match=words) as caught:
                await there.server.ask()
            assert caught.value.code == REJECTED
        assert there.model.requests == []


async def review_shows_everything(way: Way) -> None:
    asked = Asked()
    async with scene(way, approval=asked) as there:
        await there.server.ask(params("Weather?", tools=[WEATHER], systemPrompt="Be brief."))
    review = asked.shown[0]
    assert (review.server, review.claims, review.stage) == ("asking", "asking", "request")
    assert review.request.messages[0].text == "Weather?"
    assert review.request.system_prompt == "Be brief."
    assert [tool.name for tool in review.request.tools] == ["weather"]
    assert review.estimate.tokens > 0
    # The scripted model is not sold: a cost of nothing is known.
    assert review.estimate.cost_usd == 0


async def request_is_edited(way: Way) -> None:
    async def shorten(review: Review) -> Decision:
        if review.answer is not None:
            return Decision(approved=True)
        changed = msgspec.structs.replace(
            review.request, system_prompt="Say nothing of tides.", max_tokens=3
        )
        return Decision(approved=True, request=changed)

    async with scene(way, approval=shorten) as there:
        await there.server.ask()
        seen = there.seen
    assert (seen.system_prompt, seen.max_tokens) == ("Say nothing of tides.", 3)


async def answer_is_reviewed(way: Way) -> None:
    changed = Decision(approved=True, content=(Text("Nothing to say."),))
    asked = Asked([True, changed, True, False])
    async with scene(way, *["The secret is 42."] * 2, approval=asked) as there:
        result = await there.server.ask()
        with pytest.raises(RefusedError) as caught:
            await there.server.ask()
    assert result["content"] == {"type": "text", "text": "Nothing to say."}
    shown = asked.shown[1].answer
    assert shown is not None
    assert shown.text == "The secret is 42."
    assert caught.value.code == REJECTED
    assert "42" not in str(caught.value)


async def silence_is_a_no(way: Way) -> None:
    queue = ApprovalQueue(timeout_s=0.01)
    async with scene(way, approval=queue) as there:
        with pytest.raises(RefusedError, match="no decision") as caught:
            await there.server.ask()
        assert there.model.requests == []
    assert caught.value.code == REJECTED
    assert queue.waiting() == []


async def no_rule_is_a_no(way: Way) -> None:
    policy = SamplingPolicy(servers={"another": ServerRule()})
    async with scene(way, policy=policy) as there:
        with pytest.raises(RefusedError, match="asking") as caught:
            await there.server.ask()
        assert there.model.requests == []
    assert caught.value.code == REJECTED


async def rate_limit(way: Way) -> None:
    policy = SamplingPolicy(servers={"asking": ServerRule(requests_per_minute=3)})
    async with scene(way, "a", "b", "c", "d", policy=policy) as there:
        for _ in range(3):
            await there.server.ask()
        with pytest.raises(RefusedError, match="3 times a minute") as caught:
            await there.server.ask()
        assert len(there.model.requests) == 3
    assert caught.value.code == FAILED
    assert caught.value.data["reason"] == "rate_limit_exceeded"
    assert 0 < caught.value.data["retryAfter"] <= 60


async def at_once(way: Way) -> None:
    queue = ApprovalQueue()
    full = asyncio.Event()
    rule = ServerRule(at_once=2, max_queued=0)
    queue.on_asked = lambda _waiting: full.set() if len(queue.waiting()) == 2 else None
    policy = SamplingPolicy(servers={"asking": rule})
    async with scene(way, policy=policy, approval=queue) as there:
        first = [asyncio.create_task(there.server.ask()) for _ in range(2)]
        await full.wait()
        with pytest.raises(RefusedError, match="under way") as caught:
            await there.server.ask()
        for each in queue.waiting():
            queue.decide(each.id, Decision.deny())
        ends = await asyncio.gather(*first, return_exceptions=True)
    assert caught.value.code == FAILED
    assert [type(end) for end in ends] == [RefusedError, RefusedError]


async def content_is_validated(way: Way) -> None:
    wrong = {
        "messages": [],
        "temperature": 9.0,
        "stopSequences": [str(each) for each in range(11)],
        "maxTokens": 0,
    }
    async with scene(way) as there:
        for field, value in wrong.items():
            with pytest.raises(RefusedError) as caught:
                await there.server.ask({**params(), field: value})
            assert caught.value.code == -32602
            assert field in {each["path"] for each in caught.value.data["problems"]}
        assert there.model.requests == []


async def nothing_of_the_host_is_told(way: Way) -> None:
    error = AuthenticationFailed("key sk-secret is wrong at https://internal.example", status=401)
    async with scene(way, error) as there:
        with pytest.raises(RefusedError) as caught:
            await there.server.ask()
    told = json.dumps([caught.value.message, caught.value.data])
    assert caught.value.code == FAILED
    assert [word for word in ("secret", "internal", "fake", "echo") if word in told] == []


async def context_is_declared_and_attached(way: Way) -> None:
    policy = SamplingPolicy(servers={"asking": ServerRule(context="thisServer")})
    async with scene(way, policy=policy) as there:
        declared = json.loads(await there.server.text("declared"))
        assert "context" in declared["sampling"]
        await there.server.ask(includeContext="thisServer")
        first, question = there.seen.messages
    assert question.text == "Hello"
    assert first.role == "user"
    assert 'uri="note://tides"' in first.text
    assert "Tides come twice a day." in first.text
    assert "The moon pulls." in first.text


async def context_is_left_out_where_it_is_not_declared(way: Way) -> None:
    async with scene(way) as there:
        declared = json.loads(await there.server.text("declared"))
        assert "context" not in declared["sampling"]
        for asked in ("none", "thisServer", "allServers"):
            await there.server.ask(includeContext=asked)
            assert [each.text for each in there.seen.messages] == ["Hello"]


async def hints_choose_among_the_allowed(way: Way) -> None:
    rule = ServerRule(models=("fake/small", "fake/large-sonnet"), max_tokens=50)
    policy = SamplingPolicy(servers={"asking": rule})
    chosen: list[str] = []
    async with scene(way, *["ok"] * 4, policy=policy) as there:
        for hints in ([], ["SONNET"], ["opus", "sonnet"], ["echo"]):
            named = {"hints": [{"name": each} for each in hints]}
            chosen.append((await there.server.ask(modelPreferences=named))["model"])
        assert there.seen.max_tokens == 50
    assert chosen == ["small", "large-sonnet", "large-sonnet", "small"]
