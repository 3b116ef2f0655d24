"""Every parameter of a request reaches the model, or is left out for a reason."""

from __future__ import annotations

from penstock import ModelPreferences, Text, ToolChoice
from penstock.mcp import SamplingPolicy, ServerRule
from penstock.testing import FakeReply
from tests.mcp.host.connections import params, said
from tests.mcp.sampling.checks.support import WEATHER, call, results, scene
from tests.mcp.sampling.requirement import Way
from tests.support.mcp.server import PIXEL


async def messages_and_prompt(way: Way) -> None:
    async with scene(way) as there:
        asked = params(
            "What is the capital of France?",
            said("Paris.", "assistant"),
            "And of Spain?",
            systemPrompt="Be brief.",
        )
        result = await there.server.ask(asked)
        seen = there.seen
    assert result["role"] == "assistant"
    assert result["content"] == {"type": "text", "text": "Hi there."}
    assert [(each.role, each.text) for each in seen.messages] == [
        ("user", "What is the capital of France?"),
        ("assistant", "Paris."),
        ("user", "And of Spain?"),
    ]
    assert seen.system_prompt == "Be brief."


async def options(way: Way) -> None:
    async with scene(way) as there:
        await there.server.ask(
            temperature=0.3, stopSequences=["END", "STOP"], metadata={"user": "u1", "n": 3}
        )
        seen = there.seen
    assert (seen.temperature, seen.stop_sequences) == (0.3, ("END", "STOP"))
    assert seen.metadata == {"user": "u1", "n": 3}


async def max_tokens(way: Way) -> None:
    async with scene(way, "one two three four five") as there:
        result = await there.server.ask(maxTokens=2)
        assert there.seen.max_tokens == 2
    assert result["stopReason"] == "maxTokens"
    assert result["content"]["text"].split() == ["one", "two"]


async def media(way: Way) -> None:
    picture = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    sound = {"type": "audio", "data": "UklGRgAAAABXQVZF", "mimeType": "audio/wav"}
    words = {"type": "text", "text": "What is this?"}
    async with scene(way) as there:
        await there.server.ask(params({"role": "user", "content": [words, picture, sound]}))
        kinds = [type(part).__name__ for part in there.seen.messages[0].content]
    assert kinds == ["Text", "Image", "Audio"]


async def meta(way: Way) -> None:
    block = {"type": "text", "text": "Hello", "_meta": {"block": 1}}
    message = {"role": "user", "content": block, "_meta": {"message": 2}}
    async with scene(way) as there:
        await there.server.ask(params(message, _meta={"example.com/request": 3}))
        seen = there.seen
    part = seen.messages[0].content[0]
    assert isinstance(part, Text)
    assert part.meta == {"block": 1}
    assert seen.messages[0].meta == {"message": 2}
    # Questions of the modern era are no requests of their own, and have no `_meta`.
    assert (seen.meta or {}).get("example.com/request") == (3 if way[1] == "legacy" else None)


async def preferences(way: Way) -> None:
    async with scene(way) as there:
        await there.server.ask(
            modelPreferences={
                "hints": [{"name": "claude-sonnet"}, {"name": "claude"}],
                "costPriority": 0.3,
                "speedPriority": 0.8,
                "intelligencePriority": 0.5,
            }
        )
        seen = there.seen
    assert seen.model_preferences == ModelPreferences(("claude-sonnet", "claude"), 0.3, 0.8, 0.5)


async def stop_reasons(way: Way) -> None:
    reasons = ["endTurn", "stopSequence", "maxTokens", "made-up"]
    replies = [FakeReply(text="So.", stop_reason=reason) for reason in reasons]
    async with scene(way, *replies) as there:
        assert [(await there.server.ask())["stopReason"] for _ in reasons] == reasons


async def task_is_ignored(way: Way) -> None:
    async with scene(way) as there:
        result = await there.server.ask(task={"ttl": 60_000})
    assert result["content"] == {"type": "text", "text": "Hi there."}


async def choices(way: Way) -> None:
    async with scene(way) as there:
        for mode in ("auto", "required", "none"):
            await there.server.ask(tools=[WEATHER], toolChoice={"mode": mode})
            assert there.seen.tool_choice == ToolChoice(mode)
            assert [tool.name for tool in there.seen.tools] == ["weather"]


async def tool_rounds_end(way: Way) -> None:
    policy = SamplingPolicy(servers={"asking": ServerRule(max_tool_rounds=2)})
    history = ["Go.", call("1"), results("1"), call("2"), results("2")]
    async with scene(way, "One.", "Two.", policy=policy) as there:
        await there.server.ask(params(*history[:3], tools=[WEATHER]))
        assert there.seen.tool_choice is None
        await there.server.ask(params(*history, tools=[WEATHER], toolChoice={"mode": "required"}))
        assert there.seen.tool_choice == ToolChoice("none")
