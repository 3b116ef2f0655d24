"""Tools in requests: when they may come, what they must look like, what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import ToolUse
from penstock.mcp import SamplingPolicy, ServerRule
from penstock.testing import FakeReply
from tests.mcp.host.connections import RefusedError, params
from tests.mcp.sampling.checks.support import WEATHER, Scene, call, results, scene
from tests.mcp.sampling.requirement import Way

INVALID_PARAMS = -32602
BY_RULE = SamplingPolicy(servers={"asking": ServerRule()})
WITHOUT = SamplingPolicy(servers={"asking": ServerRule(tools=False)})


async def sampling_is_declared(way: Way) -> None:
    async with scene(way) as there:
        declared = json.loads(await there.server.text("declared"))
    assert "sampling" in declared


async def tools_are_declared(way: Way) -> None:
    both: tuple[tuple[SamplingPolicy, dict[str, Any]], ...] = (
        (BY_RULE, {"tools": {}}),
        (WITHOUT, {}),
    )
    for policy, expected in both:
        async with scene(way, policy=policy) as there:
            declared = json.loads(await there.server.text("declared"))
            assert declared["sampling"] == expected


async def undeclared_tools_are_refused(way: Way) -> None:
    given: tuple[dict[str, Any], ...] = (
        {"tools": [WEATHER]},
        {"toolChoice": {"mode": "auto"}},
        {"tools": [], "toolChoice": {"mode": "none"}},
    )
    async with scene(way, policy=WITHOUT) as there:
        for fields in given:
            await _refused(there, params(**fields), "sampling.tools", *fields)
        assert there.model.requests == []


async def calls_come_back(way: Way) -> None:
    uses = tuple(ToolUse(each, "weather", {"city": each}) for each in ("paris", "london"))
    reply = FakeReply(text="Let me see.", tool_uses=uses)
    async with scene(way, reply) as there:
        result = await there.server.ask(params("Weather?", tools=[WEATHER]))
    assert result["stopReason"] == "toolUse"
    assert result["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "paris", "name": "weather", "input": {"city": "paris"}},
        {"type": "tool_use", "id": "london", "name": "weather", "input": {"city": "london"}},
    ]


async def one_call_comes_back(way: Way) -> None:
    async with scene(way, FakeReply(tool_uses=(ToolUse("1", "weather", {}),))) as there:
        result = await there.server.ask(params("Weather?", tools=[WEATHER]))
    assert result["content"] == {"type": "tool_use", "id": "1", "name": "weather", "input": {}}


async def without_tools_there_is_one_block(way: Way) -> None:
    async with scene(way, FakeReply(text="So.", reasoning="Well, well.")) as there:
        result = await there.server.ask()
    assert result["content"] == {"type": "text", "text": "So."}


async def history_with_results(way: Way) -> None:
    asked = params("Weather?", call("1", "2"), results("2", "1"), tools=[WEATHER])
    async with scene(way, "Sunny.") as there:
        result = await there.server.ask(asked)
        assert len(there.seen.messages) == 3
    assert result["content"] == {"type": "text", "text": "Sunny."}


async def mixed_results_are_refused(way: Way) -> None:
    mixed = results("1", beside=[{"type": "text", "text": "Here."}])
    await _unbalanced(way, (2, ["Weather?", call("1"), mixed]))


async def missing_results_are_refused(way: Way) -> None:
    """Wherever in the history the gap is, and not only at its end."""
    rest = ("And now?", call("3"), results("3"), "Thanks.")
    await _unbalanced(
        way,
        (2, ["Weather?", call("1", "2"), results("1")]),
        (1, ["Weather?", call("1")]),
        (2, ["Weather?", call("1", "2"), results("1"), *rest]),
        (2, ["Weather?", call("1"), "Never mind.", *rest]),
    )


async def results_of_no_call_are_refused(way: Way) -> None:
    await _unbalanced(
        way,
        (0, [results("1")]),
        (3, ["Weather?", call("1"), results("1"), results("1")]),
        (2, ["Weather?", call("1"), results("1", "9")]),
    )


async def roles_are_checked(way: Way) -> None:
    await _unbalanced(way, (0, [{"role": "user", "content": call("1")["content"]}]))


async def _unbalanced(way: Way, *cases: tuple[int, list[Any]]) -> None:
    async with scene(way) as there:
        for index, messages in cases:
            await _refused(there, params(*messages, tools=[WEATHER]), f"messages[{index}]")
        assert there.model.requests == []


async def _refused(there: Scene, asked: dict[str, Any], *words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await there.server.ask(asked)
    assert caught.value.code == INVALID_PARAMS
    assert [each for each in words if each not in caught.value.message] == []
    paths = [problem["path"] for problem in caught.value.data["problems"]]
    assert all(paths)
