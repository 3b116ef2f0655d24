"""Requests become the chat JSON of llama.cpp; literals in, literals out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.contract.errors import InvalidRequest, UnsupportedOption
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
    Image,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.embedded.encode import ChatCall, encode

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDefinition("weather", "Weather of a city.", CITY)
CLOCK = ToolDefinition("clock", "The time.")
WEATHER_CALL = {
    "type": "object",
    "properties": {"name": {"const": "weather"}, "arguments": CITY},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
CLOCK_CALL = {
    "type": "object",
    "properties": {"name": {"const": "clock"}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
REPLY = {
    "type": "object",
    "properties": {"reply": {"type": "string"}},
    "required": ["reply"],
    "additionalProperties": False,
}


def write(*messages: Message, **options: Any) -> ChatCall:
    request = SamplingRequest(messages=messages, max_tokens=20, **options)
    return encode(request, provider="embedded", model="smollm2")


def body(call: ChatCall) -> dict[str, Any]:
    return json.loads(call.body)


def turns(call: ChatCall) -> list[tuple[str, str]]:
    return [(turn["role"], turn["content"]) for turn in body(call)["messages"]]


def schema(call: ChatCall) -> Any:
    return body(call)["response_format"]["json_schema"]["schema"]


def test_a_plain_request_is_written_whole() -> None:
    call = write(user("Hi"), system_prompt="Be brief.", temperature=0.5, stop_sequences=("END", ""))
    assert body(call) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "max_tokens": 20,
        "temperature": 0.5,
        "stream": True,
        "return_progress": True,
        "timings_per_token": True,
    }
    assert call.stop_sequences == ("END",)
    assert not call.calls


def test_an_absent_temperature_is_left_to_llama_cpp() -> None:
    assert "temperature" not in body(write(user("Hi")))


def test_system_messages_join_the_system_prompt() -> None:
    call = write(system("Second."), user("Hi"), system("Third."), system_prompt="First.")
    assert turns(call) == [("system", "First.\n\nSecond.\n\nThird."), ("user", "Hi")]


def test_neighbours_of_one_role_become_one_turn() -> None:
    call = write(user("a", "b"), user("c"), assistant(), user("d"), assistant("e"))
    assert turns(call) == [("user", "ab\n\nc\n\nd"), ("assistant", "e")]


def test_thinking_is_not_sent_back() -> None:
    call = write(user("a"), assistant(Reasoning("hm"), "b"), user("c"))
    assert turns(call)[1] == ("assistant", "b")


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Image(data="AAAA", mime_type="image/png"), "image"),
        (Audio("AAAA", "audio/wav"), "audio"),
        (ToolResult("call_1", (Image(url="x"),)), "image"),
    ],
)
def test_media_are_refused_by_name(part: Image | Audio | ToolResult, kind: str) -> None:
    with pytest.raises(
        UnsupportedOption, match=f"embedded/smollm2 reads text only, no {kind}"
    ) as e:
        write(user("see", part))
    assert e.value.options == (kind,)


def test_structured_output_is_constrained_and_explained() -> None:
    call = write(user("Hi"), system_prompt="Be brief.", output_schema=OutputSchema(CITY))
    assert schema(call) == CITY
    assert turns(call)[0] == (
        "system",
        f"Be brief.\n\nAnswer with JSON only, in this schema:\n{json.dumps(CITY)}",
    )
    assert not call.calls


def test_tools_become_variants_of_one_object() -> None:
    call = write(user("Hi"), tools=(WEATHER, CLOCK))
    assert call.calls
    assert schema(call) == {"anyOf": [WEATHER_CALL, CLOCK_CALL, REPLY]}
    assert turns(call)[0] == (
        "system",
        "You can call functions. Answer with one JSON object.\n"
        'To call a function: {"name": "<function>", "arguments": {...}}\n'
        'To answer without a function, or when you have its result: {"reply": "<text>"}\n'
        "Functions:\n"
        f"- weather: Weather of a city. Arguments: {json.dumps(CITY)}\n"
        '- clock: The time. Arguments: {"type": "object"}',
    )


def test_a_required_call_leaves_no_reply() -> None:
    call = write(user("Hi"), tools=(WEATHER, CLOCK), tool_choice=ToolChoice("required"))
    assert schema(call) == {"anyOf": [WEATHER_CALL, CLOCK_CALL]}
    assert "reply" not in turns(call)[0][1]


def test_a_forced_tool_is_the_only_one_offered() -> None:
    call = write(user("Hi"), tools=(WEATHER, CLOCK), tool_choice=ToolChoice.tool("clock"))
    assert schema(call) == {"anyOf": [CLOCK_CALL]}
    assert "weather" not in turns(call)[0][1]


def test_forcing_an_unknown_tool_is_an_error_with_its_path() -> None:
    with pytest.raises(InvalidRequest, match=r"tool_choice\.name: there is no tool 'nope'"):
        write(user("Hi"), tools=(WEATHER,), tool_choice=ToolChoice.tool("nope"))


def test_no_choice_means_no_tools() -> None:
    call = write(user("Hi"), tools=(WEATHER,), tool_choice=ToolChoice("none"))
    assert turns(call) == [("user", "Hi")]
    assert "response_format" not in body(call)


def test_references_inside_a_tools_schema_still_point_to_their_definitions() -> None:
    place = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}, "or": [{"$ref": "#"}]},
        "$defs": {"Place": {"type": "string"}},
    }
    call = write(user("Hi"), tools=(WEATHER, ToolDefinition("go", "", place)))
    arguments = schema(call)["anyOf"][1]["properties"]["arguments"]
    root = "#/anyOf/1/properties/arguments"
    assert arguments["properties"]["at"] == {"$ref": f"{root}/$defs/Place"}
    assert arguments["properties"]["or"] == [{"$ref": root}]
    assert arguments["$defs"] == {"Place": {"type": "string"}}


def test_with_tools_the_output_schema_shapes_the_reply() -> None:
    call = write(user("Hi"), tools=(WEATHER,), output_schema=OutputSchema(CITY))
    assert schema(call)["anyOf"][1]["properties"] == {"reply": CITY}
    assert "Reply with JSON only, in this schema" in turns(call)[0][1]


def test_the_grammar_has_limits_that_the_model_is_not_told_of() -> None:
    number = {"type": "integer"}
    limited = {"type": "integer", "minimum": -(2**53 - 1), "maximum": 2**53 - 1}
    call = write(
        user("Hi"), tools=(ToolDefinition("add", "", number),), output_schema=OutputSchema(number)
    )
    add, reply = schema(call)["anyOf"]
    assert add["properties"]["arguments"] == limited
    assert reply["properties"] == {"reply": limited}
    assert "minimum" not in turns(call)[0][1]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"output_schema": OutputSchema({"type": "integer", "minimum": 10**17})}, "output_schema"),
        (
            {"tools": (CLOCK, ToolDefinition("add", "", {"type": "integer", "maximum": -1e17}))},
            "tools.add.input_schema",
        ),
    ],
)
def test_integers_out_of_reach_are_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(
        UnsupportedOption, match=f"embedded/smollm2 cannot follow {field}: it asks for an integer"
    ) as caught:
        write(user("Hi"), **options)
    assert caught.value.options == (field,)


def test_an_answer_that_may_be_anything_stays_so_beside_tools() -> None:
    call = write(user("Hi"), tools=(WEATHER,), output_schema=OutputSchema({}))
    assert schema(call)["anyOf"][1]["properties"] == {"reply": {}}


def test_the_history_shows_calls_and_results_as_text() -> None:
    call = write(
        user("Paris?"),
        assistant("Let me see.", ToolUse("call_7", "weather", {"city": "Orléans"})),
        user(ToolResult("call_7", (Text("18 degrees"),))),
        tools=(WEATHER,),
    )
    assert turns(call)[1:] == [
        ("user", "Paris?"),
        (
            "assistant",
            '{"reply": "Let me see."}\n{"name": "weather", "arguments": {"city": "Orléans"}}',
        ),
        (
            "user",
            'Result of weather: 18 degrees\nIf this is enough, answer with {"reply": ...}.',
        ),
    ]
    assert call.call_id == "call_8"


def test_a_history_without_tools_on_offer_stays_plain() -> None:
    call = write(
        user("Paris?"),
        assistant("Let me see.", ToolUse("x", "weather", {})),
        user(
            ToolResult("x", structured_content={"degrees": 18}),
            ToolResult("gone", (Text("no"),), is_error=True),
            "Well?",
        ),
    )
    assert turns(call)[1:] == [
        ("assistant", 'Let me see.\n{"name": "weather", "arguments": {}}'),
        ("user", 'Result of weather: {"degrees":18}\nError of gone: no\nWell?'),
    ]
    assert call.call_id == "call_1"


def test_a_last_assistant_turn_is_continued() -> None:
    call = write(user("Count"), assistant("1, 2"))
    assert turns(call)[-1] == ("assistant", "1, 2")
    assert call.prefix == ""


def test_with_tools_a_begun_answer_is_an_open_reply() -> None:
    call = write(user("Count"), assistant('1 "2'), assistant("3"), tools=(WEATHER,))
    assert turns(call)[-1] == ("assistant", '{"reply": "1 \\"2\\n\\n3')
    assert call.prefix == '{"reply": "1 \\"2\\n\\n3'


def test_a_begun_answer_cannot_become_a_required_call() -> None:
    with pytest.raises(InvalidRequest, match="a tool call cannot continue an answer"):
        write(user("Go"), assistant("1"), tools=(WEATHER,), tool_choice=ToolChoice("required"))
