"""Generators: typed answers, contexts and the tool loop on top of every provider."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pydantic
import pytest

from penstock import (
    AnswerRejected,
    Chunk,
    Complete,
    MCPTool,
    MessageType,
    StringGenerator,
    StructuredGenerator,
    StructuredOutputInvalid,
    Text,
    ToolEnded,
    ToolProgress,
    ToolResult,
    ToolStarted,
    ToolUse,
    assistant,
    tool,
    user,
)
from tests.conformance.case import MAX_TOKENS, Case
from tests.support.mcp.processes import shared_server
from tests.support.wire.scenario import Call, Scenario, Tokens

OK = Scenario(text=("Hel", "lo."))
ADA: dict[str, Any] = {"name": "Ada", "tags": ["x"], "age": 36}
GOOD = Scenario(text=(json.dumps(ADA),))
BAD = Scenario(text=('{"name": 7, "tags": []}',))
PARIS = Call.of("call_a", "weather", {"city": "Paris"})


class Person(pydantic.BaseModel):
    name: str
    tags: list[str]
    age: int = 18


@dataclass
class Choice:
    city: Literal["Paris", "Rome"]
    sunny: bool


@tool
async def weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"city": city, "sky": "blue"}


def _text(case: Case, prompt: str = "Hello", **options: Any) -> StringGenerator:
    options = {"max_tokens": MAX_TOKENS, "model": f"{case.provider}/{case.model}"} | options
    return case.engine.string_generator(prompt, **options)


def _person(case: Case, **options: Any) -> StructuredGenerator[Person]:
    options = {"max_tokens": MAX_TOKENS, "model": f"{case.provider}/{case.model}"} | options
    return case.engine.structured_generator(Person, "Who?", **options)


async def text(case: Case) -> None:
    case.play(OK, OK)
    generator = _text(case)
    for _ in range(2):
        answer, metadata = await generator.generate()
        assert answer == "Hello."
        assert metadata.provider == case.provider
        assert metadata.usage.output_tokens is not None
        assert metadata.as_dict()["api_calls"] == "1"
    assert case.seen.messages == (user("Hello"),)


async def text_live(case: Case) -> None:
    answer, metadata = await _text(case).generate()
    assert answer
    assert metadata.usage.output_tokens


async def stream(case: Case) -> None:
    case.play(OK)
    async with _text(case).stream() as events:
        seen = [event async for event in events]
        assert [event for event in seen[:-1] if not isinstance(event, Chunk)] == []
        assert "".join(event.text for event in seen if isinstance(event, Chunk)) == "Hello."
        assert isinstance(seen[-1], Complete)
        assert (await events.result())[0] == "Hello."


async def stream_live(case: Case) -> None:
    async with _text(case).stream() as events:
        pieces = [piece async for piece in events.texts()]
        assert "".join(pieces) == (await events.result())[0]
        assert len(pieces) > 1


async def contexts(case: Case) -> None:
    case.play(OK)
    generator = _text(case, "Now?", system_prompt="Be brief.")
    generator.add_prompt_context(MessageType.HUMAN, "Before?")
    generator.add_prompt_context(MessageType.ASSISTANT, "Yes.")
    generator.add_prompt_context(MessageType.SYSTEM, "Be kind.")
    await generator.generate()
    assert case.seen.system == "Be brief.\n\nBe kind."
    assert case.seen.messages == (user("Before?"), assistant("Yes."), user("Now?"))


async def contexts_live(case: Case) -> None:
    short = (await _text(case).generate())[1].usage.input_tokens
    generator = _text(case)
    generator.add_prompt_context(MessageType.HUMAN, "I am a pirate of few words.")
    longer = (await generator.generate())[1].usage.input_tokens
    assert short is not None
    assert longer is not None
    assert longer > short


async def typed(case: Case) -> None:
    case.play(GOOD)
    person, _ = await _person(case).generate()
    assert person == Person(name="Ada", tags=["x"], age=36)
    schema = case.seen.schema
    assert schema is not None
    assert schema["properties"].keys() == {"name", "tags", "age"}


async def typed_live(case: Case) -> None:
    generator = case.engine.structured_generator(
        Choice, "Where is the sun?", max_tokens=64, model=f"{case.provider}/{case.model}"
    )
    choice, _ = await generator.generate()
    assert isinstance(choice, Choice)
    assert choice.city in ("Paris", "Rome")


async def typed_stream(case: Case) -> None:
    case.play(GOOD)
    async with _person(case).stream() as events:
        pieces = [piece async for piece in events.texts()]
        assert json.loads("".join(pieces)) == ADA
        assert (await events.result())[0] == Person(**ADA)


async def typed_stream_live(case: Case) -> None:
    generator = case.engine.structured_generator(
        Choice, "Where is the sun?", max_tokens=64, model=f"{case.provider}/{case.model}"
    )
    async with generator.stream() as events:
        pieces = [piece async for piece in events.texts()]
        choice, _ = await events.result()
    assert Choice(**json.loads("".join(pieces))) == choice


async def absent_as_null(case: Case) -> None:
    """Strict schemas have a model say null for what it leaves out; the type's default holds."""
    case.play(Scenario(text=('{"name": "Bob", "tags": [], "age": null}',)))
    person, metadata = await _person(case).generate()
    assert person == Person(name="Bob", tags=[])
    assert metadata.api_calls == 1


async def wrapped(case: Case) -> None:
    case.play(Scenario(text=('{"answer": [1, 2]}',)))
    generator = case.engine.structured_generator(
        list[int], "Count.", max_tokens=MAX_TOKENS, model=f"{case.provider}/{case.model}"
    )
    assert (await generator.generate())[0] == [1, 2]
    schema = case.seen.schema
    assert schema is not None
    assert schema["type"] == "object"


async def wrapped_live(case: Case) -> None:
    generator = case.engine.structured_generator(
        bool, "Is it so?", max_tokens=32, model=f"{case.provider}/{case.model}"
    )
    assert (await generator.generate())[0] in (True, False)


async def repaired(case: Case) -> None:
    case.play(BAD, GOOD)
    person, metadata = await _person(case).generate()
    assert person.name == "Ada"
    assert metadata.api_calls == 2
    assert metadata.usage.output_tokens == 2 * Tokens().output
    asked, answered, complaint = case.seen.messages
    assert asked == user("Who?")
    assert answered == assistant(BAD.whole_text)
    assert "name" in complaint.text
    assert case.seen.schema is not None


async def repaired_in_stream(case: Case) -> None:
    case.play(BAD, GOOD)
    async with _person(case).stream() as events:
        seen = [event async for event in events]
    void = next(at for at, event in enumerate(seen) if isinstance(event, AnswerRejected))
    assert "".join(event.text for event in seen[:void] if isinstance(event, Chunk)) == BAD.text[0]
    assert "".join(event.text for event in seen[void:] if isinstance(event, Chunk)) == GOOD.text[0]
    assert isinstance(seen[-1], Complete)


async def invalid(case: Case) -> None:
    case.play(BAD, Scenario(text=("I will not.",)))
    with pytest.raises(StructuredOutputInvalid) as caught:
        await _person(case).generate()
    assert caught.value.raw == "I will not."
    assert (caught.value.provider, caught.value.request_id is None) == (case.provider, False)


async def tool_loop(case: Case) -> None:
    case.play(Scenario(calls=(PARIS,), stop="tool_use"), OK)
    answer, metadata = await _text(case, tools=[weather]).generate()
    assert answer == "Hello."
    assert (metadata.tool_rounds, metadata.api_calls) == (1, 2)
    asked, called, answered = case.seen.messages
    assert asked == user("Hello")
    (use,) = [part for part in called.content if isinstance(part, ToolUse)]
    assert (use.name, use.input) == ("weather", {"city": "Paris"})
    (result,) = answered.content
    assert isinstance(result, ToolResult)
    assert json.loads(result.text) == {"city": "Paris", "sky": "blue"}
    assert result.tool_use_id == use.id


async def tool_loop_stream(case: Case) -> None:
    case.play(Scenario(calls=(PARIS,), stop="tool_use"), OK)
    async with _text(case, tools=[weather]).stream() as events:
        seen = [event async for event in events]
    (started,) = [event for event in seen if isinstance(event, ToolStarted)]
    (ended,) = [event for event in seen if isinstance(event, ToolEnded)]
    assert (started.name, started.input) == ("weather", {"city": "Paris"})
    assert (ended.id, ended.is_error) == (started.id, False)
    assert [type(part) for part in ended.content] == [Text]
    after = seen[seen.index(ended) :]
    assert "".join(event.text for event in after if isinstance(event, Chunk)) == "Hello."
    assert isinstance(seen[-1], Complete)


def _server(*tools: str) -> MCPTool:
    allowed = tools or ("add", "steps")
    return MCPTool(shared_server().url, "sums", allowed_tools=allowed, mode="adapter")


async def mcp_loop(case: Case) -> None:
    """Penstock connects to a server for a provider that may not be able to."""
    call = Call.of("call_a", "add", {"a": 40, "b": 2})
    case.play(Scenario(calls=(call,), stop="tool_use"), OK)
    answer, metadata = await _text(case, mcp_tools=[_server()], tools=[weather]).generate()
    assert answer == "Hello."
    assert (metadata.tool_rounds, metadata.api_calls, metadata.dropped_options) == (1, 2, ())
    offered = [tool.name for tool in case.upstream.seen[0].tools]
    assert sorted(offered) == ["add", "steps", "weather"]
    (result,) = case.seen.messages[-1].content
    assert isinstance(result, ToolResult)
    assert (result.text, result.is_error) == ("42", False)


async def mcp_loop_stream(case: Case) -> None:
    call = Call.of("call_a", "steps", {"count": 2})
    case.play(Scenario(calls=(call,), stop="tool_use"), OK)
    async with _text(case, mcp_tools=[_server()]).stream() as events:
        seen = [event async for event in events]
    started, *progress, ended = (
        event for event in seen if isinstance(event, ToolStarted | ToolProgress | ToolEnded)
    )
    assert isinstance(started, ToolStarted)
    assert (started.name, started.server, started.input) == ("steps", "sums", {"count": 2})
    assert progress == [
        ToolProgress(started.id, "steps", step, 2, f"step {step}") for step in (1, 2)
    ]
    assert ended == ToolEnded(started.id, "steps", False, (Text("finished"),))
    after = seen[seen.index(ended) :]
    assert "".join(event.text for event in after if isinstance(event, Chunk)) == "Hello."
    assert isinstance(seen[-1], Complete)


async def mcp_loop_live(case: Case) -> None:
    """A model under a grammar calls what it must call, and its server answers."""
    generator = _text(
        case,
        "What is 2 and 3?",
        mcp_tools=[_server("add")],
        tool_choice="required",
        max_tool_rounds=1,
    )
    async with generator.stream() as events:
        seen = [event async for event in events]
    (started,) = [event for event in seen if isinstance(event, ToolStarted)]
    (ended,) = [event for event in seen if isinstance(event, ToolEnded)]
    assert (started.name, started.server) == ("add", "sums")
    assert started.input.keys() == {"a", "b"}
    assert ended.content == (Text(str(started.input["a"] + started.input["b"])),)
    assert isinstance(seen[-1], Complete)


async def typed_with_tools(case: Case) -> None:
    case.play(Scenario(calls=(PARIS,), stop="tool_use"), BAD, GOOD)
    person, metadata = await _person(case, tools=[weather]).generate()
    assert person.name == "Ada"
    assert (metadata.tool_rounds, metadata.api_calls) == (1, 3)


async def rounds_end(case: Case) -> None:
    again = Scenario(calls=(PARIS,), stop="tool_use")
    case.play(again, again, OK)
    answer, metadata = await _text(case, tools=[weather], max_tool_rounds=2).generate()
    assert (answer, metadata.tool_rounds) == ("Hello.", 2)
    # Not every API can forbid the tools of a history, so the model is told in words as well.
    assert "no more tools" in (case.seen.system or "")


async def tool_loop_live(case: Case) -> None:
    """A model under a grammar calls what it must call, and then has the result in its prompt."""
    called: list[str] = []

    def sky(city: Literal["Paris", "Rome"]) -> str:
        """The sky over a city."""
        called.append(city)
        return "blue"

    generator = _text(
        case, "The sky over Rome?", tools=[sky], tool_choice="required", max_tool_rounds=1
    )
    async with generator.stream() as events:
        seen = [event async for event in events]
    assert len(called) == 1
    assert [event.content for event in seen if isinstance(event, ToolEnded)] == [(Text("blue"),)]
    assert isinstance(seen[-1], Complete)
