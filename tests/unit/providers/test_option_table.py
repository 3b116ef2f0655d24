"""Every option at every dialect and every model of the catalogues has one of four answers."""

import itertools
from typing import Any

import msgspec
import pytest

from penstock.contract.adaptation import (
    OPTIONS,
    PENSTOCKS_OWN,
    PORTABLE_FIELDS,
    Adaptation,
    answer,
)
from penstock.contract.errors import UnsupportedOption
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Image, assistant, user
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
from tests.support.option_table import OptionRow, rows

TARGET = Target("p", "m")
ROWS = list(rows())
TOOLS = {"tools": (ToolDefinition("now"),)}
SCHEMA = OutputSchema({"type": "object"})
ROOM = {"max_tokens": 2000}
ASKED: dict[str, dict[str, Any]] = {
    "system_prompt": {"system_prompt": "Be brief."},
    "max_tokens": {"max_tokens": 10**9},
    "temperature": {"temperature": 0.5},
    "temperature_above_maximum": {"temperature": 99.0},
    "stop_sequences": {"stop_sequences": ("a",)},
    "stop_sequences_above_maximum": {"stop_sequences": tuple("abcdefghij")},
    "reasoning_level": {"reasoning_level": "med", **ROOM},
    "reasoning_level_minimal": {"reasoning_level": "minimal", **ROOM},
    "reasoning_level_xhigh": {"reasoning_level": "xhigh", **ROOM},
    "reasoning_level_max": {"reasoning_level": "max", **ROOM},
    "reasoning_level_none": {"reasoning_level": "none"},
    "reasoning_level_without_room": {"reasoning_level": "high", "max_tokens": 1},
    "tools": TOOLS,
    "tool_choice": {**TOOLS, "tool_choice": ToolChoice("required")},
    "tool_choice_none": {**TOOLS, "tool_choice": ToolChoice("none")},
    "parallel_tools": {**TOOLS, "parallel_tools": False},
    "mcp_tools": {"mcp_tools": (MCPTool("https://host/", "docs"),)},
    "output_schema": {"output_schema": SCHEMA},
    "output_schema_prompted": {"output_schema": msgspec.structs.replace(SCHEMA, prompted=True)},
    "images": {"messages": (user(Image(data="aGk=", mime_type="image/png")),)},
    "image_urls": {"messages": (user(Image(url="https://x/y.png")),)},
    "audio": {"messages": (user(Audio(data="aGk=", mime_type="audio/wav")),)},
    "prefill": {"messages": (user("Count."), assistant("One,"))},
    "advisory_field": {"extra": Extra("another", {"context_management": {}})},
    "essential_field": {"extra": Extra("another", {"logprobs": True})},
    **{name: {"extra": Extra("another", {name: 1})} for name in PORTABLE_FIELDS},
}
"""For each row of the table, a request that asks for it."""
NAMES = {"images": {"images"}, "image_urls": {"images", "images by url"}}
"""Where an error names an option otherwise."""


def asked(option: str) -> SamplingRequest:
    plain: dict[str, Any] = {"messages": (user("Hi"),), "max_tokens": 1}
    return SamplingRequest(**{**plain, **ASKED[option]}, adapt="adapt")


def field_of(option: str) -> str:
    """The option as adaptations and errors name it."""
    given = ASKED[option]
    if "extra" in given:
        return next(iter(given["extra"].fields))
    kinds = ("temperature", "stop_sequences", "reasoning_level", "output_schema", "tool_choice")
    return next((kind for kind in kinds if option.startswith(kind)), option)


def test_the_table_knows_every_field_of_a_request() -> None:
    fields = {*SamplingRequest.__struct_fields__} - PENSTOCKS_OWN - {"extra"}
    assert fields <= OPTIONS.keys()
    assert ASKED.keys() == OPTIONS.keys()


def test_every_capability_that_says_no_is_in_the_table() -> None:
    """Each switch of `Capabilities` that concerns an answer changes a cell."""
    apart = {"streaming", "native_mcp", "mcp_headers", "mcp_allow_list", "embeddings", "prefill"}
    apart |= {"transcription", "transcription_prompt", "assistant_last"}
    for name, value in msgspec.structs.asdict(Capabilities()).items():
        if value is True and name not in apart:
            lacking = msgspec.structs.replace(Capabilities(), **{name: False})
            changed = [
                option
                for option in OPTIONS
                if answer(option, lacking) != answer(option, Capabilities())
            ]
            assert changed, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}/{row.models or '*'}")
def test_what_the_table_says_is_what_a_request_gets(row: OptionRow) -> None:
    for option in OPTIONS:
        request, expected = asked(option), answer(option, row.able)
        refused, fitted = None, None
        try:
            fitted = admit(request, row.able, TARGET)
        except UnsupportedOption as error:
            refused = error
        said = f"{row.kind}/{row.models}: {option} is {expected}"
        name = field_of(option)
        if expected == "refused":
            assert refused is not None, said
            assert NAMES.get(option, {name}) & {*refused.options}, said
            continue
        if refused is not None:
            # Another option of the same request, such as the tools of a choice.
            assert name not in refused.options, said
            assert set(refused.options) <= {"tools", "prefill"}, said
            continue
        assert fitted is not None
        told = [each for each in fitted.adapted if each.option == name]
        assert [each.answer for each in told] == ([] if expected == "native" else [expected]), said
        if expected == "native" and "extra" not in ASKED[option]:
            changed = {
                field
                for field in ASKED[option]
                if getattr(fitted.request, field) != getattr(request, field)
            }
            assert changed <= {"max_tokens"} - {name}, said


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}/{row.models or '*'}")
def test_emulation_needs_no_leave_and_adaptation_does(row: OptionRow) -> None:
    for option in OPTIONS:
        strict = msgspec.structs.replace(asked(option), adapt="refuse")
        expected = answer(option, row.able)
        try:
            admit(strict, row.able, TARGET)
            refused: tuple[str, ...] = ()
        except UnsupportedOption as error:
            refused = error.options
        named = bool(NAMES.get(option, {field_of(option)}) & {*refused})
        assert named == (expected in ("adapted", "refused")), (row.kind, row.models, option)


# ---- what takes the place of an option


def fitted(able: Capabilities, **given: Any) -> Fitted[SamplingRequest]:
    plain: dict[str, Any] = {"messages": (user("Hi"),), "max_tokens": 9, "adapt": "adapt"}
    return admit(SamplingRequest(**{**plain, **given}), able, TARGET)


def test_a_value_beyond_the_limit_becomes_the_nearest() -> None:
    able = Capabilities(max_temperature=1.0, max_output=4096)
    found = fitted(able, temperature=1.7, max_tokens=32_000)
    assert (found.request.temperature, found.request.max_tokens) == (1.0, 4096)
    assert list(map(str, found.adapted)) == ["temperature=1", "max_tokens=4096"]


@pytest.mark.parametrize(
    ("levels", "asked", "used"),
    [
        (("low", "med", "high"), "max", "high"),
        (("low", "med", "high"), "xhigh", "high"),
        (("low", "med", "high", "max"), "xhigh", "high"),
        (("low", "med", "high", "xhigh"), "max", "xhigh"),
        (("low", "med", "high"), "minimal", "low"),
        (("low", "high"), "med", "low"),
    ],
)
def test_an_effort_becomes_the_nearest_that_is_not_above(
    levels: Any, asked: str, used: str
) -> None:
    found = fitted(Capabilities(reasoning_levels=levels), reasoning_level=asked)
    assert found.request.reasoning_level == used
    assert found.adapted == (Adaptation("reasoning_level", "adapted", used),)


@pytest.mark.parametrize("level", ["minimal", "low", "med", "high", "xhigh", "max"])
def test_an_effort_that_the_model_has_is_never_changed(level: Any) -> None:
    able = Capabilities(reasoning_levels=("minimal", "low", "med", "high", "xhigh", "max"))
    assert fitted(able, reasoning_level=level).request.reasoning_level == level


def test_options_of_one_dialect_are_said_in_the_words_of_another() -> None:
    extra = Extra(
        "openai-chat", {"top_p": 0.5, "seed": 7, "store": True}, frozenset({"seed", "store"})
    )
    able = Capabilities(
        sampling_fields={"top_p": "generationConfig.topP", "seed": "generationConfig.seed"}
    )
    found = fitted(able, extra=extra)
    assert found.request.extra == Extra(
        "", placed={"generationConfig.topP": 0.5, "generationConfig.seed": 7}
    )
    assert list(map(str, found.adapted)) == ["store=omitted"]


def test_a_model_that_takes_no_temperature_gets_no_top_p_of_its_own_dialect() -> None:
    extra = Extra("anthropic", {"top_p": 0.5, "vendor": 1})
    able = Capabilities(extra_of="anthropic", temperature=False)
    found = fitted(able, extra=extra)
    assert found.request.extra == Extra("anthropic", {"vendor": 1})
    assert list(map(str, found.adapted)) == ["top_p=omitted"]
    with pytest.raises(UnsupportedOption, match="does not support top_p"):
        fitted(able, extra=extra, adapt="refuse")


@pytest.mark.parametrize(
    "messages",
    [
        (user("Hi"),),
        (user(Image(data="aGk=", mime_type="image/png")),),
        (assistant("Well,"), user("Hi")),
        (assistant("Well,"),),
    ],
)
def test_a_system_prompt_stands_before_the_first_users_turn(messages: Any) -> None:
    found = fitted(Capabilities(system_prompt=False), system_prompt="Be brief.", messages=messages)
    assert found.request.system_prompt is None
    users = [turn for turn in found.request.messages if turn.role == "user"]
    assert users[0].text.startswith("Be brief.")
    assert found.adapted == (Adaptation("system_prompt", "emulated", "emulated"),)
    kept = itertools.chain.from_iterable(turn.content for turn in messages)
    assert all(
        part in itertools.chain.from_iterable(turn.content for turn in found.request.messages)
        for part in kept
        if isinstance(part, Image)
    )
