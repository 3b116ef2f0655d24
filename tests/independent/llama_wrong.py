"""What llama.cpp's server gets wrong, each with its proof in its own bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.independent.llama import Llama
from tests.independent.plain_http import call
from tests.independent.rows import Wrong

_PROMPT = [{"role": "user", "content": "Weather in Rome?"}]
_YES = {"type": "object", "properties": {"said": {"enum": ["yes"]}}, "required": ["said"]}
_TOOL = {"name": "weather", "description": "The weather in a city."}
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
_LIMIT = 12


async def text_format_ignored(server: Llama) -> None:
    form = {"type": "json_schema", "name": "x", "schema": _YES, "strict": True}
    said = _response(server, text={"format": form})
    with pytest.raises(json.JSONDecodeError):
        json.loads(said["output"][0]["content"][0]["text"])


async def cut_is_complete(server: Llama) -> None:
    story = "Tell me a long story about the sea."
    said = _response(server, input=story, max_output_tokens=5)
    assert said["usage"]["output_tokens"] == 5
    assert said["status"] == "completed"
    assert not said.get("incomplete_details")


async def output_config_ignored(server: Llama) -> None:
    said = _message(server, output_config={"format": {"type": "json_schema", "schema": _YES}})
    with pytest.raises(json.JSONDecodeError):
        json.loads(said["content"][0]["text"])


async def stop_sequence_is_end_of_turn(server: Llama) -> None:
    said = _message(server, stop_sequences=list("aeiou"))
    assert said["stop_sequence"] in set("aeiou")
    assert said["stop_reason"] == "end_turn"


async def chat_choice_not_enforced(server: Llama) -> None:
    tool = {"type": "function", "function": {**_TOOL, "parameters": _CITY}}
    body = {"model": "m", "messages": _PROMPT, "max_tokens": _LIMIT, "tools": [tool]}
    said = call(server, "/v1/chat/completions", {**body, "tool_choice": "required"}).json
    assert not said["choices"][0]["message"].get("tool_calls")


async def responses_choice_not_enforced(server: Llama) -> None:
    tool = {"type": "function", **_TOOL, "parameters": _CITY, "strict": False}
    said = _response(server, tools=[tool], tool_choice="required")
    assert [item["type"] for item in said["output"]] == ["message"]


async def messages_choice_not_enforced(server: Llama) -> None:
    tool = {**_TOOL, "input_schema": _CITY}
    said = _message(server, tools=[tool], tool_choice={"type": "any"})
    assert [block["type"] for block in said["content"]] == ["text"]


async def dimensions_ignored(server: Llama) -> None:
    body = {"model": "m", "input": ["Hi"], "dimensions": 16}
    assert len(call(server, "/v1/embeddings", body).json["data"][0]["embedding"]) == 576


def _response(server: Llama, **options: Any) -> Any:
    common = {"model": "m", "input": _PROMPT, "max_output_tokens": _LIMIT, "temperature": 0}
    body = {**common, **options}
    return call(server, "/v1/responses", body).json


def _message(server: Llama, **options: Any) -> Any:
    common = {"model": "m", "messages": _PROMPT, "max_tokens": _LIMIT, "temperature": 0}
    body = {**common, **options}
    return call(server, "/v1/messages", body).json


TEXT_FORMAT_IGNORED = Wrong("`/v1/responses` ignores `text.format`.", text_format_ignored)
CUT_IS_COMPLETE = Wrong(
    "`/v1/responses` says `completed` of an answer that its token limit has cut.", cut_is_complete
)
OUTPUT_CONFIG_IGNORED = Wrong(
    "`/v1/messages` ignores `output_config.format`.", output_config_ignored
)
STOP_SEQUENCE_IS_END_OF_TURN = Wrong(
    "`/v1/messages` names the stop sequence that ended an answer, and calls the reason `end_turn`.",
    stop_sequence_is_end_of_turn,
)
_CHOICE = "`{}` answers in text although `tool_choice` requires a call."
CHAT_CHOICE = Wrong(_CHOICE.format("/v1/chat/completions"), chat_choice_not_enforced)
RESPONSES_CHOICE = Wrong(_CHOICE.format("/v1/responses"), responses_choice_not_enforced)
MESSAGES_CHOICE = Wrong(_CHOICE.format("/v1/messages"), messages_choice_not_enforced)
DIMENSIONS_IGNORED = Wrong("`/v1/embeddings` ignores `dimensions`.", dimensions_ignored)
