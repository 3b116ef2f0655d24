"""Tools: what is declared, what is called, and what goes back."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock import (
    Message,
    Result,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolUse,
    ToolUseDelta,
    assistant,
    user,
)
from tests.conformance.case import Case, collect, completed
from tests.support.wire.scenario import Call, Scenario


def _schema(**properties: dict[str, object]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


WEATHER = ToolDefinition(
    "weather", "The weather in a city.", _schema(city={"enum": ["Paris", "Rome"]})
)
CLOCK = ToolDefinition("clock", "The time in a zone.", _schema(zone={"enum": ["UTC", "CET"]}))
TOOLS = (WEATHER, CLOCK)
PARIS = Call.of("call_a", "weather", {"city": "Paris"})
ROME = Call.of("call_b", "weather", {"city": "Rome"})
UTC = Call.of("call_c", "clock", {"zone": "UTC"}, pieces=2)
OK = Scenario(text=("Sunny.",))


def _same(case: Case, uses: Sequence[ToolUse], calls: Sequence[Call]) -> None:
    """The calls are these; ids that no wire carries are made up, and tell the calls apart."""
    assert [(use.name, use.input) for use in uses] == [
        (call.name, call.arguments) for call in calls
    ]
    if case.upstream.call_ids:
        assert [use.id for use in uses] == [call.id for call in calls]
    assert all(use.id for use in uses)
    assert len({use.id for use in uses}) == len(uses)


async def declared(case: Case) -> None:
    case.play(OK)
    await case.ask(tools=TOOLS)
    assert case.seen.tools == TOOLS
    assert case.seen.tool_choice in (None, ToolChoice("auto"))


async def declared_live(case: Case) -> None:
    """Tools are a part of the prompt, and counted as such."""
    without = (await case.ask(max_tokens=1)).usage.input_tokens
    declared = (await case.ask(max_tokens=1, tools=TOOLS)).usage.input_tokens
    assert without is not None
    assert declared is not None
    assert declared > without


async def called(case: Case) -> None:
    case.play(Scenario(calls=(PARIS,), stop="tool_use"))
    result = await case.ask(tools=TOOLS)
    _same(case, result.tool_uses, (PARIS,))
    assert result.stop_reason == "toolUse"
    assert result.text == ""


async def called_live(case: Case) -> None:
    _valid_call(await case.ask("Weather in Rome?", tools=TOOLS, tool_choice="required"))


def _valid_call(result: Result, *names: str) -> None:
    (use,) = result.tool_uses
    assert result.stop_reason == "toolUse"
    assert use.id
    allowed = {"weather": ("city", ("Paris", "Rome")), "clock": ("zone", ("UTC", "CET"))}
    assert use.name in (names or allowed)
    argument, values = allowed[use.name]
    assert use.input.keys() == {argument}
    assert use.input[argument] in values


async def called_after_text(case: Case) -> None:
    scenario = Scenario(text=("Let me look.",), calls=(PARIS,), stop="tool_use")
    case.play(scenario, scenario)
    streamed = await collect(await case.stream(tools=TOOLS))
    for result in (await case.ask(tools=TOOLS), completed(streamed)):
        assert result.text == "Let me look."
        assert [type(part) for part in result.content] == [Text, ToolUse]
        assert result.stop_reason == "toolUse"


async def called_without_arguments(case: Case) -> None:
    bare = Call("call_d", "now", ("{}",))
    case.play(Scenario(calls=(bare,), stop="tool_use"))
    result = await case.ask(tools=[ToolDefinition("now", "The time.")])
    _same(case, result.tool_uses, (bare,))


async def called_without_arguments_live(case: Case) -> None:
    now = ToolDefinition("now", "The time.", _schema())
    result = await case.ask(tools=[now], tool_choice="required")
    assert [(use.name, use.input) for use in result.tool_uses] == [("now", {})]


async def arguments_streamed(case: Case) -> None:
    case.play(Scenario(calls=(PARIS,), stop="tool_use"))
    events = await collect(await case.stream(tools=TOOLS))
    deltas = [event for event in events if isinstance(event, ToolUseDelta)]
    assert deltas[0].name == "weather"
    assert deltas[0].id
    assert len(deltas) > 1
    assert not any(delta.id or delta.name for delta in deltas[1:])
    assert json.loads("".join(delta.arguments for delta in deltas)) == PARIS.arguments
    _same(case, completed(events).tool_uses, (PARIS,))


async def parallel(case: Case) -> None:
    calls = (PARIS, ROME, UTC)
    scenario = Scenario(calls=calls, stop="tool_use")
    case.play(scenario, scenario)
    _same(case, (await case.ask(tools=TOOLS)).tool_uses, calls)
    events = await collect(await case.stream(tools=TOOLS))
    _same(case, completed(events).tool_uses, calls)
    for index, call in enumerate(calls):
        own = [event for event in events if isinstance(event, ToolUseDelta)]
        written = "".join(event.arguments for event in own if event.index == index)
        assert json.loads(written) == call.arguments


async def parallel_switch(case: Case) -> None:
    case.play(OK, OK)
    for wanted in (False, True):
        await ask_with_switch(case, wanted)
        assert case.seen.parallel_tools is wanted


async def ask_with_switch(case: Case, wanted: bool = False) -> None:
    await case.ask(tools=TOOLS, parallel_tools=wanted)


def _history(*results: ToolResult) -> tuple[Message, ...]:
    uses = [
        ToolUse(call.id, call.name, call.arguments)
        for call in (PARIS, UTC)
        if any(result.tool_use_id == call.id for result in results)
    ]
    return (user("Weather and time?"), assistant(*uses), user(*results))


SUNNY = ToolResult(PARIS.id, (Text("Sunny, 21 °C"),))
NOON = ToolResult(UTC.id, (Text("12:00"),))
BROKEN = ToolResult(PARIS.id, (Text("the station is down"),), is_error=True)


async def result_returned(case: Case) -> None:
    history = _history(SUNNY, NOON)
    case.play(OK)
    result = await case.ask(history, tools=TOOLS)
    assert result.text == "Sunny."
    _same_history(case, history)


async def result_returned_live(case: Case) -> None:
    for history in (_history(SUNNY, NOON), _history(SUNNY)):
        result = await case.ask(history, tools=TOOLS, tool_choice="none", max_tokens=8)
        assert result.text
        assert not result.tool_uses


async def error_returned(case: Case) -> None:
    history = _history(BROKEN, NOON)
    case.play(OK)
    await case.ask(history, tools=TOOLS)
    _same_history(case, history)


async def error_returned_live(case: Case) -> None:
    result = await case.ask(_history(BROKEN), tools=TOOLS, tool_choice="none", max_tokens=8)
    assert result.text


async def round_trip(case: Case) -> None:
    """The model's own turn goes back as it came, with the ids that it got."""
    case.play(Scenario(calls=(PARIS, UTC), stop="tool_use"), OK)
    first = await case.ask("Weather and time?", tools=TOOLS)
    results = [ToolResult(use.id, (Text("fine"),)) for use in first.tool_uses]
    history = (user("Weather and time?"), first.message, user(*results))
    assert (await case.ask(history, tools=TOOLS)).text == "Sunny."
    _same_history(case, history)


async def round_trip_live(case: Case) -> None:
    first = await case.ask("Weather in Rome?", tools=TOOLS, tool_choice="required")
    results = [ToolResult(use.id, (Text("fine"),)) for use in first.tool_uses]
    history = (user("Weather in Rome?"), first.message, user(*results))
    assert (await case.ask(history, tools=TOOLS, max_tokens=24)).content


def _same_history(case: Case, history: Sequence[Message]) -> None:
    if case.upstream.call_ids:
        assert case.seen.messages == tuple(history)
    else:
        assert [_nameless(each) for each in case.seen.messages] == [
            _nameless(each) for each in history
        ]


def _nameless(message: Message) -> object:
    parts: list[object] = []
    for part in message.content:
        if isinstance(part, ToolUse):
            parts.append((part.name, part.input))
        elif isinstance(part, ToolResult):
            parts.append((part.text, part.is_error))
        else:
            parts.append(part)
    return message.role, parts


async def forced(case: Case) -> None:
    case.play(Scenario(calls=(UTC,), stop="tool_use"))
    result = await case.ask(tools=TOOLS, tool_choice=ToolChoice.tool("clock"))
    assert case.seen.tool_choice == ToolChoice.tool("clock")
    _same(case, result.tool_uses, (UTC,))


async def forced_live(case: Case) -> None:
    for name in ("clock", "weather"):
        choice = ToolChoice.tool(name)
        _valid_call(await case.ask("Hello!", tools=TOOLS, tool_choice=choice), name)


async def required(case: Case) -> None:
    case.play(Scenario(calls=(PARIS,), stop="tool_use"))
    await case.ask(tools=TOOLS, tool_choice="required")
    assert case.seen.tool_choice == ToolChoice("required")


async def required_live(case: Case) -> None:
    events = await collect(await case.stream("Hello!", tools=TOOLS, tool_choice="required"))
    _valid_call(completed(events))


async def forbidden(case: Case) -> None:
    case.play(OK)
    await case.ask(tools=TOOLS, tool_choice="none")
    # Not to offer the tools at all says the same.
    assert case.seen.tool_choice == ToolChoice("none") or not case.seen.tools


async def forbidden_live(case: Case) -> None:
    result = await case.ask("Weather in Rome?", tools=TOOLS, tool_choice="none", max_tokens=8)
    assert result.text
    assert not result.tool_uses
