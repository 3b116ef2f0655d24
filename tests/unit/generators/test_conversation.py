"""Prompts and histories that are given to a call, and conversations that remember their turns."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from pydantic import BaseModel

import penstock
from penstock import (
    Chunk,
    Complete,
    InvalidRequest,
    RateLimited,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from penstock.testing import FakeProvider, FakeReply, engine_with


class Point(BaseModel):
    x: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_prompt_may_be_given_to_the_call() -> None:
    provider = FakeProvider(["one", "two", "three"])
    generator = engine_with(provider).string_generator("Count.", system_prompt="Be brief.")
    assert (await generator.generate())[0] == "one"
    assert (await generator.generate("And then?", history=["Count.", assistant("one")]))[0] == "two"
    async with generator.stream("Last?") as stream:
        assert (await stream.result())[0] == "three"
    assert [request.messages for request in provider.requests] == [
        (user("Count."),),
        (user("Count."), assistant("one"), user("And then?")),
        (user("Last?"),),
    ]
    assert {request.system_prompt for request in provider.requests} == {"Be brief."}


async def test_a_structured_generator_takes_prompt_and_history_too() -> None:
    provider = FakeProvider(['{"x": 1}', '{"x": 2}'])
    generator = engine_with(provider).structured_generator(Point)
    assert (await generator.generate("First?"))[0] == Point(x=1)
    history = [{"role": "user", "content": "First?"}, {"role": "assistant", "content": "1"}]
    assert (await generator.generate("Next?", history=history))[0] == Point(x=2)
    assert provider.requests[1].messages == (user("First?"), assistant("1"), user("Next?"))


async def test_contexts_come_before_the_history() -> None:
    provider = FakeProvider(["yes"])
    generator = engine_with(provider).string_generator()
    generator.add_prompt_context("human", "I am Ada.")
    await generator.generate("Who am I?", history=[assistant("Hello.")])
    assert provider.requests[0].messages == (
        user("I am Ada."),
        assistant("Hello."),
        user("Who am I?"),
    )


@pytest.mark.parametrize(
    ("prompt", "history", "path"),
    [
        (None, (), "prompt"),
        (" ", (), "prompt"),
        ("Go.", 3, "history"),
        ("Go.", [3], "history[0]"),
        ("Go.", ["a", {"role": "robot", "content": "b"}], "history[1].role"),
    ],
)
async def test_a_bad_prompt_or_history_is_refused_by_its_name(
    prompt: Any, history: Any, path: str
) -> None:
    provider = FakeProvider(["never"])
    generator = engine_with(provider).string_generator()
    for call in (generator.generate, generator.stream):
        with pytest.raises(InvalidRequest) as caught:
            await cast(Any, call(prompt, history=history))
        assert [problem.path for problem in caught.value.problems] == [path]
    assert provider.requests == []


async def test_a_conversation_remembers_its_turns() -> None:
    provider = FakeProvider(["Hello.", "Ada."])
    talk = engine_with(provider).conversation(history=[user("Hi."), assistant("Hi!")])
    assert (await talk.send("I am Ada."))[0] == "Hello."
    text, metadata = await talk.send("Who am I?")
    assert (text, metadata.provider) == ("Ada.", "fake")
    assert provider.requests[1].messages == (
        user("Hi."),
        assistant("Hi!"),
        user("I am Ada."),
        assistant("Hello."),
        user("Who am I?"),
    )
    assert talk.messages == (*provider.requests[1].messages, assistant("Ada."))
    talk.clear()
    assert talk.messages == ()


async def test_calls_of_tools_are_turns_of_the_conversation() -> None:
    call = ToolUse("c1", "add", {"a": 1, "b": 2})
    provider = FakeProvider([FakeReply(tool_uses=(call,)), "3", "Add 1 and 2."])
    talk = engine_with(provider).conversation(tools=[add])
    assert (await talk.send("1 + 2?"))[0] == "3"
    roles = [message.role for message in talk.messages]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert talk.messages[1].content == (call,)
    result = talk.messages[2].content[0]
    assert isinstance(result, ToolResult)
    assert result.text == "3"
    await talk.send("What did you do?")
    assert provider.requests[-1].messages[:4] == talk.messages[:4]


async def test_a_streamed_turn_counts_when_its_end_is_read() -> None:
    talk = engine_with(FakeProvider(["one", "two"])).conversation()
    async with talk.stream("First?") as stream:
        assert isinstance(await anext(stream), Chunk)
    assert talk.messages == ()
    events = [event async for event in talk.stream("Second?")]
    assert isinstance(events[-1], Complete)
    assert talk.messages == (user("Second?"), assistant("two"))


async def test_a_failed_or_empty_turn_changes_nothing() -> None:
    talk = engine_with(FakeProvider([RateLimited("later"), "", "fine"])).conversation()
    with pytest.raises(penstock.PenstockError):
        await talk.send("Go.")
    assert (await talk.send("Go."))[0] == ""
    assert talk.messages == ()
    assert (await talk.send("Go."))[0] == "fine"
    assert talk.messages == (user("Go."), assistant("fine"))


async def test_one_turn_runs_at_a_time() -> None:
    talk = engine_with(FakeProvider([FakeReply(text="slow", delay_s=30)])).conversation()
    running = asyncio.create_task(talk.send("Go."))
    await asyncio.sleep(0)  # it starts, and waits for its answer
    with pytest.raises(RuntimeError, match="still answering"):
        await talk.send("Me too.")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert talk.messages == ()
