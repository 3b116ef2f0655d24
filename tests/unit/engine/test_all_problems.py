"""All problems of a request come in one error: of shape, of limits, of names."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import InvalidRequest
from penstock.testing import FakeProvider, engine_with

HI = {"role": "user", "content": {"type": "text", "text": "hi"}}


async def problems_of(params: dict[str, Any]) -> list[str]:
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.sample(params, timeout=-1)
        with pytest.raises(InvalidRequest) as streamed:
            await engine.sample_stream(params, timeout=-1)
    paths = [each.path for each in caught.value.problems]
    assert paths == [each.path for each in streamed.value.problems]
    return paths


PARAMS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"messages": [HI], "maxTokens": "many", "temperature": 9, "stopSequences": [""] * 11},
        [
            "maxTokens",
            "temperature",
            "stopSequences",
            *[f"stopSequences[{n}]" for n in range(10)],
        ],
    ),
    (
        {"messages": [HI], "maxTokens": 0, "modelPreferences": {"costPriority": 9}},
        ["maxTokens", "modelPreferences.costPriority"],
    ),
    ({"messages": "hi", "maxTokens": 9, "temperature": 9}, ["messages", "temperature"]),
    (
        {
            "messages": [
                {"role": "user", "content": {"type": "image", "data": "", "mimeType": "a"}},
                {"role": "user", "content": {"type": "video"}},
                {"role": "user", "content": "  "},
            ],
            "maxTokens": 9,
        },
        ["messages[1].content.type", "messages[0].content[0]", "messages[2].content"],
    ),
    # A tool call that cannot be read makes no problem of its result.
    (
        {
            "messages": [
                HI,
                {"role": "assistant", "content": {"type": "tool_use", "id": "1", "input": {}}},
                {
                    "role": "user",
                    "content": {"type": "tool_result", "toolUseId": "1", "content": []},
                },
            ],
            "maxTokens": 9,
        },
        ["messages[1].content.name"],
    ),
    # The numbers of items behind one that cannot be read are not guessed.
    ({"messages": [HI], "maxTokens": 9, "stopSequences": [1, ""]}, ["stopSequences[0]"]),
    (
        {
            "messages": [HI],
            "maxTokens": 9,
            "tools": [{"name": "a"}, {"name": "", "inputSchema": {}}],
        },
        ["tools[0].inputSchema", "tools[1].name"],
    ),
]


@pytest.mark.parametrize(("params", "paths"), PARAMS)
async def test_problems_of_shape_and_of_limits_come_together(
    params: dict[str, Any], paths: list[str]
) -> None:
    assert sorted(await problems_of(params)) == sorted([*paths, "timeout"])


async def test_all_types_that_are_wrong_are_named() -> None:
    options: dict[str, Any] = {
        "temperature": "hot",
        "timeout": "long",
        "model": [],
        "tools": [{}],
        "tempo": 1,
    }
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.create_message("Hi", max_tokens=True, **options)
    paths = {each.path for each in caught.value.problems}
    assert paths == {"temperature", "timeout", "model", "tools[0].name", "tempo", "max_tokens"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"model_preferences": {"costPriority": 0.5}},
            "model_preferences.costPriority: there is no such field; did you mean cost?",
        ),
        (
            {"model_preferences": {"hint": ["a"]}},
            "model_preferences.hint: there is no such field; did you mean hints?",
        ),
        (
            {"tool_choice": {"bogus": 1}},
            "tool_choice.bogus: there is no such field; there are: mode, name",
        ),
        (
            {"mcp_tools": [{"url": "https://a.example", "name": "a", "headers": {"a": "b"}}]},
            "mcp_tools[0].headers: there is no such field; did you mean http_headers?",
        ),
        (
            {"extra": {"dialect": "openai-chat", "field": {}}},
            "extra.field: there is no such field; did you mean fields?",
        ),
    ],
)
async def test_an_unknown_key_of_a_dict_is_refused(options: Any, problem: str) -> None:
    async with engine_with(FakeProvider([])) as engine:
        for call in (engine.create_message, engine.route, engine.count_tokens, engine.estimate):
            with pytest.raises(InvalidRequest) as caught:
                await call("Hi", max_tokens=9, **options)
            assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "user", "content": "hi", "name": "ada"}, "[0].name: there is no such field"),
        (
            {"role": "user", "content": [{"type": "text", "txt": "hi"}]},
            "[0].content[0].txt: there is no such field; did you mean text?",
        ),
        (
            {"role": "user", "content": [{"type": "image", "data": "", "mime_type": "a"}]},
            "[0].content[0].mime_type: there is no such field; did you mean mimeType?",
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "t": 1}]}
                ],
            },
            "[0].content[0].content[0].t: there is no such field",
        ),
    ],
)
async def test_an_unknown_key_of_a_message_is_refused(message: Any, problem: str) -> None:
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.create_message([message], max_tokens=9)
        assert f"messages{problem}" in str(caught.value)
        with pytest.raises(InvalidRequest) as caught:
            engine.conversation(history=[message])
        assert f"history{problem}" in str(caught.value)


async def test_known_keys_of_dicts_are_taken() -> None:
    provider = FakeProvider(["Yes."])
    content = [{"type": "text", "text": "hi", "_meta": {"a": 1}}]
    async with engine_with(provider) as engine:
        await engine.create_message(
            [{"role": "user", "content": content, "_meta": {}}],
            max_tokens=9,
            model_preferences={"hints": ["fake"], "cost": 1},
            tools=[{"name": "a"}],
            tool_choice={"mode": "tool", "name": "a"},
        )
    (request,) = provider.requests
    assert request.tool_choice == penstock.ToolChoice.tool("a")
    assert request.model_preferences == penstock.ModelPreferences(("fake",), 1)
