"""The scripted provider keeps the promises of the real seam."""

import asyncio
import math
from typing import Any

import msgspec
import pytest

from penstock.contract.errors import RateLimited, StreamInterrupted
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest, Usage
from penstock.contract.messages import Reasoning, Text, ToolResult, ToolUse, assistant, user
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.testing import FakeProvider, FakeReply

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def ask(text: str = "Say hello", **options: Any) -> SamplingRequest:
    fields: dict[str, Any] = {"messages": (user(text),), "max_tokens": 99, **options}
    return SamplingRequest(**fields)


async def events_of(
    fake: FakeProvider, request: SamplingRequest, model: str = "echo"
) -> list[ProviderEvent]:
    return [event async for batch in fake.stream(model, request) for event in batch]


async def reply_of(
    fake: FakeProvider, request: SamplingRequest | None = None, model: str = "echo"
) -> Reply:
    """The reply, once it is certain that stream and whole answer agree on it."""
    return await fake.generate(model, request or ask())


async def test_the_script_is_played_one_step_a_call_and_then_the_echo_takes_over() -> None:
    fake = FakeProvider(["One.", FakeReply(text="Two."), lambda request: request.messages[0].text])
    said = [(await reply_of(fake)).text for _ in range(4)]
    assert said == ["One.", "Two.", "Say hello", "Say hello"]
    assert len(fake.requests) == 4


async def test_a_stream_comes_word_by_word_and_ends_with_its_reply() -> None:
    step = FakeReply(reasoning="let me see", text="Hello there, you.", usage=Usage(1, 2))
    events = await events_of(FakeProvider([step]), ask())
    assert events[:-1] == [
        ReasoningDelta("let "),
        ReasoningDelta("me "),
        ReasoningDelta("see"),
        Chunk("Hello "),
        Chunk("there, "),
        Chunk("you."),
    ]
    reply = Reply(
        (Reasoning("let me see"), Text("Hello there, you.")),
        "echo",
        "endTurn",
        Usage(1, 2),
        "fake",
        "completed",
    )
    assert events[-1] == Finished(reply)
    assert await reply_of(FakeProvider([step])) == reply


async def test_tokens_are_counted_in_words_unless_the_script_counts() -> None:
    reply = await reply_of(FakeProvider(["Hello there, you."]), ask("three small words"))
    assert reply.usage == Usage(3, 3)


async def test_an_error_in_the_script_is_raised() -> None:
    fake = FakeProvider([RateLimited("slow down"), lambda _: RateLimited("slow down")])
    with pytest.raises(RateLimited):
        await reply_of(fake)
    with pytest.raises(RateLimited):
        await events_of(fake, ask())


async def test_an_error_may_come_after_some_text() -> None:
    fake = FakeProvider([FakeReply(text="Hel lo", error=StreamInterrupted("cut"))])
    stream = fake.stream("echo", ask())
    assert [await anext(stream), await anext(stream)] == [[Chunk("Hel ")], [Chunk("lo")]]
    with pytest.raises(StreamInterrupted):
        await anext(stream)


async def test_scripted_tool_calls_are_streamed_and_collected() -> None:
    uses = (ToolUse("c1", "weather", {"city": "Oslo"}), ToolUse("c2", "now", {}))
    events = await events_of(FakeProvider([FakeReply(text="Wait.", tool_uses=uses)]), ask())
    assert events[:-1] == [
        Chunk("Wait."),
        ToolUseDelta(0, "c1", "weather"),
        ToolUseDelta(0, arguments='{"city":"Oslo"}'),
        ToolUseDelta(1, "c2", "now"),
        ToolUseDelta(1, arguments="{}"),
    ]
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.reply.content == (Text("Wait."), *uses)
    assert end.reply.stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("stops", "said"),
    [(("three",), "one two "), (("three", "two"), "one "), (("two", "three"), "one ")],
)
async def test_the_earliest_stop_sequence_ends_the_answer(
    stops: tuple[str, ...], said: str
) -> None:
    reply = await reply_of(FakeProvider(), ask("one two three", stop_sequences=stops))
    assert (reply.text, reply.stop_reason) == (said, "stopSequence")


async def test_a_stop_sequence_that_is_not_said_changes_nothing() -> None:
    reply = await reply_of(FakeProvider(), ask("one", stop_sequences=("two",)))
    assert (reply.text, reply.stop_reason) == ("one", "endTurn")


async def test_no_more_words_than_allowed_are_said() -> None:
    fake = FakeProvider([FakeReply(text="one two three", error=StreamInterrupted("cut"))])
    reply = await reply_of(fake, ask(max_tokens=2))
    assert (reply.text, reply.stop_reason) == ("one two ", "maxTokens")
    exact = await reply_of(FakeProvider(), ask("one two", max_tokens=2))
    assert (exact.text, exact.stop_reason) == ("one two", "endTurn")


async def test_the_token_limit_holds_before_a_later_stop_sequence() -> None:
    reply = await reply_of(FakeProvider(), ask("a b c d", max_tokens=2, stop_sequences=("d",)))
    assert (reply.text, reply.stop_reason) == ("a b ", "maxTokens")


async def test_a_model_of_words_says_as_many_as_its_name_and_the_limit_allow() -> None:
    assert (await reply_of(FakeProvider(), model="words-3")).text == "word1 word2 word3"
    long = await reply_of(FakeProvider(), ask(max_tokens=2), "words-999999999")
    assert (long.text, long.stop_reason) == ("word1 word2 ", "maxTokens")
    assert (await reply_of(FakeProvider(), model="words-many")).text == "Say hello"


async def test_without_a_script_it_calls_the_tool_that_it_must_call() -> None:
    tools = (ToolDefinition("now"), ToolDefinition("weather", input_schema=CITY))
    forced = ask(tools=tools, tool_choice=ToolChoice.tool("weather"))
    (use,) = (await reply_of(FakeProvider(), forced)).content
    assert use == ToolUse("call_1", "weather", {"city": "text"})
    required = ask(tools=tools, tool_choice=ToolChoice("required"))
    (use,) = (await reply_of(FakeProvider(), required)).content
    assert use == ToolUse("call_1", "now", {})
    free = ask(tools=tools, tool_choice=ToolChoice("auto"))
    assert (await reply_of(FakeProvider(), free)).text == "Say hello"


async def test_without_a_script_it_fits_the_schema() -> None:
    reply = await reply_of(FakeProvider(), ask(output_schema=OutputSchema(CITY)))
    assert msgspec.json.decode(reply.text) == {"city": "text"}


async def test_without_a_script_it_repeats_the_tool_results() -> None:
    history = (
        user("a"),
        assistant(ToolUse("c1", "now", {}), ToolUse("c2", "now", {})),
        user(ToolResult("c1", (Text("noon"),)), ToolResult("c2", (), {"t": 4})),
    )
    reply = await reply_of(FakeProvider(), ask(messages=history))
    assert reply.text == 'noon {"t":4}'


async def test_every_piece_waits_for_its_delay() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await reply_of(FakeProvider([FakeReply(text="a b c", delay_s=0.02)]))
    assert loop.time() - started >= 0.055


async def test_an_empty_answer_is_an_answer() -> None:
    assert await events_of(FakeProvider([""]), ask()) == [
        Finished(Reply((), "echo", "endTurn", Usage(2, 0), "fake", "completed"))
    ]


async def test_vectors_of_the_same_words_are_the_same_and_of_length_one() -> None:
    fake = FakeProvider()
    request = EmbeddingRequest(texts=("red green", "GREEN red", "blue", "red green"))
    answer = await fake.embed("echo", request)
    first, same, other, again = answer.vectors
    assert first == same == again != other
    assert all(math.isclose(math.hypot(*vector), 1.0) for vector in answer.vectors)
    assert {len(vector) for vector in answer.vectors} == {64}
    assert answer.usage == Usage(input_tokens=7)


async def test_vectors_have_the_dimensions_that_are_asked_for_within_reason() -> None:
    fake = FakeProvider()
    small = await fake.embed("echo", EmbeddingRequest(texts=("a",), dimensions=8))
    assert len(small.vectors[0]) == 8
    huge = await fake.embed("echo", EmbeddingRequest(texts=("a",), dimensions=10**12))
    assert len(huge.vectors[0]) == 4096
    blank = await fake.embed("echo", EmbeddingRequest(texts=(" ",)))
    assert set(blank.vectors[0]) == {0.0}


async def test_it_lists_its_models_and_can_do_everything() -> None:
    fake = FakeProvider(name="other")
    assert fake.name == "other"
    assert [model.id for model in await fake.models()] == ["echo", "words-60"]
    able = fake.capabilities("echo")
    assert able.audio
    assert able.embeddings
    await fake.aclose()
