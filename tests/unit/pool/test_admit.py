"""A request is fitted to one model, or the options that it cannot take are named."""

from typing import Any

import msgspec
import pytest

from penstock.contract.adaptation import Adaptation, dropped
from penstock.contract.errors import UnsupportedOption
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Image, Text, ToolResult, ToolUse, assistant, user
from penstock.contract.options import (
    Capabilities,
    Extra,
    MCPTool,
    OutputSchema,
    ToolChoice,
    ToolDefinition,
)
from penstock.contract.ports import Target
from penstock.pool.fit import Fitted, admit

TARGET = Target("groq", "llama")
FULL = SamplingRequest(
    messages=(user("hi"),),
    max_tokens=9,
    system_prompt="Be brief.",
    temperature=0.5,
    stop_sequences=("a", "b"),
    tools=(ToolDefinition("now"),),
    tool_choice=ToolChoice("required"),
    parallel_tools=False,
    output_schema=OutputSchema({"type": "string"}),
    reasoning_level="high",
)
LENIENT = msgspec.structs.replace(FULL, ignore_invalid_options=True)
PICTURE = Image(data="aGk=", mime_type="image/png")
LINK = Image(url="https://x/y.png")
SOUND = Audio(data="aGk=", mime_type="audio/wav")


@pytest.mark.parametrize(
    ("lacking", "option", "emptied"),
    [
        ({"temperature": False}, "temperature", {"temperature": None}),
        ({"max_temperature": 0.4}, "temperature", {"temperature": 0.4}),
        (
            {"tools": False},
            "tools",
            {"tools": (), "tool_choice": None, "parallel_tools": None},
        ),
        ({"tool_choice": False}, "tool_choice", {"tool_choice": None}),
        ({"parallel_tools_switch": False}, "parallel_tools", {"parallel_tools": None}),
        ({"output_schema": False}, "output_schema", {"output_schema": None}),
        ({"reasoning": False}, "reasoning_level", {"reasoning_level": None}),
    ],
)
def test_an_option_that_the_model_lacks_is_refused_or_dropped(
    lacking: dict[str, Any], option: str, emptied: dict[str, Any]
) -> None:
    able = msgspec.structs.replace(Capabilities(), **lacking)
    with pytest.raises(UnsupportedOption) as caught:
        admit(FULL, able, TARGET)
    assert caught.value.options == (option,)
    assert str(caught.value) == (
        f"groq/llama does not support {option}; leave it out, or set ignore_invalid_options=True"
    )
    assert (caught.value.provider, caught.value.model) == ("groq", "llama")
    fitted = admit(LENIENT, able, TARGET)
    assert dropped(fitted.adapted) == (option,)
    assert fitted.request == msgspec.structs.replace(LENIENT, **emptied)


def test_a_limit_above_the_models_own_is_refused_or_lowered_to_it() -> None:
    asked = msgspec.structs.replace(FULL, max_tokens=5000)
    able = Capabilities(max_output=4096)
    with pytest.raises(UnsupportedOption) as caught:
        admit(asked, able, TARGET)
    assert caught.value.options == ("max_tokens",)
    assert str(caught.value) == (
        "groq/llama does not support max_tokens above 4096 (5000 asked for); "
        "lower it, or set ignore_invalid_options=True"
    )
    lenient = msgspec.structs.replace(asked, ignore_invalid_options=True)
    fitted = admit(lenient, able, TARGET)
    assert fitted.adapted == (Adaptation("max_tokens", "adapted", "4096"),)
    assert fitted.request == msgspec.structs.replace(lenient, max_tokens=4096)
    assert admit(asked, Capabilities(max_output=5000), TARGET) == Fitted(asked)


def test_a_remedy_is_given_for_every_option_at_once() -> None:
    asked = msgspec.structs.replace(FULL, max_tokens=5000)
    with pytest.raises(UnsupportedOption, match="lower max_tokens and leave the rest out"):
        admit(asked, Capabilities(max_output=4096, temperature=False), TARGET)


def test_a_model_that_always_thinks_is_not_told_to_stop() -> None:
    asked = msgspec.structs.replace(FULL, reasoning_level="none")
    able = Capabilities(reasoning_off=False)
    with pytest.raises(UnsupportedOption) as caught:
        admit(asked, able, TARGET)
    assert caught.value.options == ("reasoning_level",)
    assert str(caught.value).startswith(
        "groq/llama does not support reasoning_level 'none', as it always thinks; leave it out"
    )
    # The dialects say "none" to such a model as the least that it takes.
    lenient = msgspec.structs.replace(asked, ignore_invalid_options=True)
    adapted = (Adaptation("reasoning_level", "adapted", "least"),)
    assert admit(lenient, able, TARGET) == Fitted(lenient, adapted)
    assert admit(FULL, able, TARGET) == Fitted(FULL)


def test_thinking_with_a_budget_needs_room_for_it() -> None:
    able = Capabilities(min_reasoning_tokens=1024)
    asked = msgspec.structs.replace(FULL, max_tokens=1024)
    with pytest.raises(UnsupportedOption, match="reasoning_level with max_tokens up to 1024"):
        admit(asked, able, TARGET)
    lenient = msgspec.structs.replace(asked, ignore_invalid_options=True)
    fitted = admit(lenient, able, TARGET)
    assert fitted.request.reasoning_level is None
    assert fitted.adapted == (Adaptation("reasoning_level", "adapted"),)
    for fits in ({"max_tokens": 1025}, {"reasoning_level": "none"}, {"reasoning_level": None}):
        passing = msgspec.structs.replace(asked, **fits)
        assert admit(passing, able, TARGET) == Fitted(passing)


def test_the_beginning_of_an_answer_is_content_and_never_dropped() -> None:
    asked = msgspec.structs.replace(LENIENT, messages=(user("Count."), assistant("One,")))
    assert admit(asked, Capabilities(prefill=True), TARGET) == Fitted(asked)
    # Most APIs that do not go on with it answer behind it, which is no reason to refuse.
    assert admit(asked, Capabilities(), TARGET) == Fitted(asked)
    with pytest.raises(UnsupportedOption) as caught:
        admit(asked, Capabilities(assistant_last=False), TARGET)
    assert caught.value.options == ("prefill",)
    assert str(caught.value) == (
        "groq/llama does not support prefill; end with a user's turn, or choose another model"
    )


def test_a_request_that_fits_is_handed_on_as_it_is() -> None:
    able = Capabilities(max_temperature=0.5, max_stop_sequences=2)
    fitted = admit(FULL, able, TARGET)
    assert fitted.request is FULL
    assert fitted == Fitted(FULL)


def test_all_options_that_are_refused_are_named_at_once() -> None:
    able = Capabilities(temperature=False, max_temperature=0.1, reasoning=False)
    with pytest.raises(UnsupportedOption) as caught:
        admit(FULL, able, TARGET)
    assert caught.value.options == ("temperature", "reasoning_level")
    assert dropped(admit(LENIENT, able, TARGET).adapted) == ("temperature", "reasoning_level")


def test_what_was_not_asked_for_is_not_missed() -> None:
    plain = SamplingRequest(
        messages=(user("hi"),),
        max_tokens=9,
        tool_choice=ToolChoice("auto"),
        reasoning_level="none",
    )
    unable: dict[str, Any] = {
        name: False
        for name, value in msgspec.structs.asdict(Capabilities()).items()
        if value is True
    }
    assert admit(plain, Capabilities(**unable, max_stop_sequences=0), TARGET) == Fitted(plain)


@pytest.mark.parametrize(
    ("part", "lacking", "name"),
    [
        (PICTURE, {"images": False}, "images"),
        (LINK, {"images": False}, "images"),
        (LINK, {"image_urls": False}, "images by url"),
        (SOUND, {"audio": False}, "audio"),
    ],
)
@pytest.mark.parametrize("inside_a_tool_result", [False, True])
def test_content_is_never_dropped(
    part: Image | Audio, lacking: dict[str, bool], name: str, inside_a_tool_result: bool
) -> None:
    history = (user("a"), assistant(ToolUse("c", "see", {})), user(ToolResult("c", (part,))))
    messages = history if inside_a_tool_result else (user("What is this?", part),)
    asked = msgspec.structs.replace(LENIENT, messages=messages)
    able = msgspec.structs.replace(Capabilities(audio=True), **lacking)
    with pytest.raises(UnsupportedOption) as caught:
        admit(asked, able, TARGET)
    assert caught.value.options == (name,)
    assert str(caught.value) == f"groq/llama does not support {name}; choose another model"


@pytest.mark.parametrize(
    ("part", "able"),
    [
        (PICTURE, Capabilities(image_urls=False)),
        (SOUND, Capabilities(images=False, audio=True)),
        (Text("a"), Capabilities(images=False)),
        (ToolResult("c", (Text("a"),)), Capabilities(images=False)),
    ],
)
def test_content_that_the_model_takes_passes(part: Any, able: Capabilities) -> None:
    asked = SamplingRequest(messages=(user(part),), max_tokens=9)
    assert admit(asked, able, TARGET) == Fitted(asked)


SERVED = msgspec.structs.replace(LENIENT, mcp_tools=(MCPTool("https://host/", "docs"),))
SERVED_ONLY = msgspec.structs.replace(SERVED, tools=())


def test_servers_are_for_providers_that_connect_to_them() -> None:
    assert admit(SERVED, Capabilities(native_mcp=True), TARGET) == Fitted(SERVED)
    with pytest.raises(UnsupportedOption, match="llama does not support mcp_tools; leave"):
        admit(msgspec.structs.replace(SERVED, ignore_invalid_options=False), Capabilities(), TARGET)


def test_a_choice_among_dropped_servers_goes_with_them_unless_functions_are_left() -> None:
    left_out = (Adaptation("mcp_tools", "adapted"),)
    assert admit(SERVED, Capabilities(), TARGET) == Fitted(LENIENT, left_out)
    emptied = {"mcp_tools": (), "tool_choice": None, "parallel_tools": None}
    bare = msgspec.structs.replace(SERVED_ONLY, **emptied)
    assert admit(SERVED_ONLY, Capabilities(), TARGET) == Fitted(bare, left_out)


EXTRA = Extra("anthropic", {"top_k": 5, "speed": "fast", "vendor": 1}, frozenset({"speed"}))


def test_fields_of_a_dialect_are_for_those_who_speak_it() -> None:
    request = SamplingRequest(messages=(user("hi"),), max_tokens=9, extra=EXTRA)
    assert admit(request, Capabilities(extra_of="anthropic"), TARGET) == Fitted(request)
    for able in (Capabilities(), Capabilities(extra_of="openai-chat")):
        with pytest.raises(UnsupportedOption, match="groq/llama does not support top_k, vendor;"):
            admit(request, able, TARGET)
        lenient = msgspec.structs.replace(request, ignore_invalid_options=True)
        bare = msgspec.structs.replace(lenient, extra=None)
        left_out = (Adaptation("top_k", "adapted"), Adaptation("vendor", "adapted"))
        assert admit(lenient, able, TARGET) == Fitted(bare, left_out)


def test_fields_that_change_no_answer_hinder_nobody() -> None:
    hints = Extra("anthropic", {"speed": "fast"}, frozenset({"speed"}))
    request = SamplingRequest(messages=(user("hi"),), max_tokens=9, extra=hints)
    assert admit(request, Capabilities(), TARGET) == Fitted(request)
