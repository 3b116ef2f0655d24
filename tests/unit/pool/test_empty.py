"""Which answers count as empty, and what asking elsewhere costs."""

from __future__ import annotations

import pytest

import penstock
from penstock import Chunk, Complete, ReasoningDelta, StreamEvent, ToolUse, assistant, user
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.contract.messages import Content, Image, Message, Reasoning, Text
from penstock.pool.error_policy import is_empty
from penstock.testing import FakeProvider, FakeReply, engine_with

ASK = (user("hi"),)
PICTURE = Image(data="aGk=", mime_type="image/png")


@pytest.mark.parametrize(
    ("content", "reason", "empty"),
    [
        ((), "endTurn", True),
        ((Text(""),), "endTurn", True),
        ((Reasoning("Hm."),), "endTurn", True),
        ((Text(" "),), "endTurn", False),
        ((PICTURE,), "endTurn", False),
        ((ToolUse("a", "f", {}),), "toolUse", False),
        ((), "maxTokens", False),
        ((), "stopSequence", False),
        ((), "of_tomorrow", False),
    ],
)
def test_what_is_empty(content: tuple[Content, ...], reason: str, empty: bool) -> None:
    reply = Reply(content, "m", reason, Usage())
    assert is_empty(reply, SamplingRequest(messages=ASK, max_tokens=9)) is empty


@pytest.mark.parametrize(("messages", "stops"), [(ASK, ("END",)), ((*ASK, assistant("It is")), ())])
def test_what_may_be_empty(messages: tuple[Message, ...], stops: tuple[str, ...]) -> None:
    request = SamplingRequest(messages=messages, max_tokens=9, stop_sequences=stops)
    assert not is_empty(Reply((), "m", "endTurn", Usage()), request)


async def test_thoughts_without_an_answer_are_followed_by_another_answer() -> None:
    first = FakeProvider([FakeReply(reasoning="Hm, hm.")], name="first")
    second = FakeProvider([FakeReply(reasoning="Oh.", text="An answer.")], name="second")
    async with engine_with(first, second) as engine:
        stream = await engine.create_message_stream("Hi", max_tokens=9)
        events: list[StreamEvent] = [event async for event in stream]
    *deltas, last = events
    assert [type(each) for each in deltas] == [ReasoningDelta, ReasoningDelta, Chunk, Chunk]
    assert isinstance(last, Complete)
    assert last.result.text == "An answer."
    assert last.result.metadata.provider == "second"


async def test_both_answers_are_counted() -> None:
    used = Usage(input_tokens=5, output_tokens=1)
    first = FakeProvider([FakeReply(usage=used)], name="first")
    second = FakeProvider([FakeReply(text="Yes.", usage=used)], name="second")
    async with engine_with(first, second) as engine:
        result = await engine.create_message("Hi", max_tokens=9)
    assert (result.text, result.metadata.attempts) == ("Yes.", 2)
    assert result.usage == used + used


async def test_a_target_that_is_left_alone_is_not_asked_for_it() -> None:
    first, second = FakeProvider([FakeReply()], name="first"), FakeProvider(name="second")
    async with engine_with(first, second) as engine:
        engine.mark_down("second/echo", "closed")
        result = await engine.create_message("Hi", max_tokens=9)
    assert (result.text, result.metadata.provider) == ("", "first")
    assert second.requests == []


async def test_many_empty_answers_do_not_double_the_load() -> None:
    first = FakeProvider([FakeReply()] * 200, name="first")
    second = FakeProvider(["Yes."] * 200, name="second")
    async with engine_with(first, second) as engine:
        for _ in range(100):
            await engine.create_message("Hi", max_tokens=9)
    # A fifth of the requests, and ten more, as for any retry.
    assert len(second.requests) <= 30
    assert isinstance(engine, penstock.Engine)
