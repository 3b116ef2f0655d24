"""Requests out, literal for literal; the oracle tests hold the same to boto3."""

from __future__ import annotations

import itertools
import re
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest, ModelNotFound
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.bedrock import DIALECT
from tests.unit.providers.bedrock.bedrock_wire import call, encoded, request

SONNET = "eu.anthropic.claude-sonnet-5"
USE = ToolUse("t1", "weather", {"city": "Paris"})
RESULT = ToolResult("t1", (Text("Sun"),))
WEATHER = ToolDefinition("weather")


def test_whole_answers_and_streams_have_paths_of_their_own() -> None:
    assert call(model="amazon.nova-micro-v1:0").path == "/model/amazon.nova-micro-v1%3A0/converse"
    assert call(model="m", stream=True).path == "/model/m/converse-stream"
    arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.m"
    assert call(model=arn).path.endswith("inference-profile%2Feu.m/converse")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_model_is_one_segment_of_the_path_whatever_its_name(model: str) -> None:
    """With nothing in it that an HTTP client or a proxy might write otherwise."""
    if model in (".", ".."):
        with pytest.raises(ModelNotFound):
            call(model=model)
        return
    path = call(model=model).path
    assert re.fullmatch(r"/model/[\w.~%-]+/converse", path, re.ASCII)
    assert unquote(path) == f"/model/{model}/converse"


def test_blank_texts_are_left_out() -> None:
    asked = request(user("a", " "), assistant(""), user("b"), system_prompt="  ")
    assert encoded(asked)["messages"] == [
        {"role": "user", "content": [{"text": "a"}, {"text": "b"}]}
    ]
    assert "system" not in encoded(asked)


def test_system_messages_follow_the_system_prompt() -> None:
    body = encoded(request(system("And kind."), user("Hi"), system_prompt="Be brief."))
    assert body["system"] == [{"text": "Be brief."}, {"text": "And kind."}]
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_tools_of_the_history_are_declared_when_the_request_has_none() -> None:
    """The API refuses calls and results without a toolConfig."""
    config = encoded(request(user("?"), assistant(USE), user(RESULT)))["toolConfig"]
    spec = {"name": "weather", "inputSchema": {"json": {"type": "object"}}}
    assert config == {"tools": [{"toolSpec": spec}]}


def test_a_tool_without_a_type_takes_an_object() -> None:
    tool = ToolDefinition("t", "", {"properties": {}})
    spec = encoded(request(tools=(tool,)))["toolConfig"]["tools"][0]["toolSpec"]
    assert spec["inputSchema"] == {"json": {"type": "object", "properties": {}}}


def test_a_choice_without_tools_is_not_sent() -> None:
    assert "toolConfig" not in encoded(request(tool_choice=ToolChoice("auto")))


def test_ids_that_the_api_refuses_are_replaced_alike_in_call_and_result() -> None:
    strange = ToolUse("call|1" * 20, "weather", {})
    body = encoded(request(user("?"), assistant(strange), user(ToolResult(strange.id))))
    use = body["messages"][1]["content"][0]["toolUse"]["toolUseId"]
    result = body["messages"][2]["content"][0]["toolResult"]["toolUseId"]
    assert use == result
    assert use.startswith("call_")
    assert len(use) <= 64


def test_a_sound_in_a_result_follows_the_results() -> None:
    result = ToolResult("t1", (Text("Listen:"), Audio("QUJD", "audio/wav")))
    content = encoded(request(user("?"), assistant(USE), user(result)))["messages"][2]["content"]
    assert content == [
        {"toolResult": {"toolUseId": "t1", "content": [{"text": "Listen:"}]}},
        {"text": "From the tool call t1:"},
        {"audio": {"format": "wav", "source": {"bytes": "QUJD"}}},
    ]


def test_text_of_a_result_wins_over_its_structure() -> None:
    result = ToolResult("t1", (Text("Sun"),), structured_content={"sun": True})
    content = encoded(request(user("?"), assistant(USE), user(result)))["messages"][2]["content"]
    assert content[0]["toolResult"]["content"] == [{"text": "Sun"}]


def test_thinking_without_a_signature_stays_here() -> None:
    turn = assistant(Reasoning("Hm."), "Yes.")
    asked = request(user("a"), turn, user("b"))
    assert encoded(asked)["messages"][1]["content"] == [{"text": "Yes."}]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Image(data="QUJD", mime_type="image/tiff"), "PNG, JPEG, GIF or WebP"),
        (Image(url="https://example.com/cat.png"), "by its bytes"),
        (Audio("QUJD", "audio/midi"), "WAV, MP3"),
    ],
)
def test_media_that_the_wire_does_not_take_is_refused_by_its_place(
    part: Content, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        call(request(user("?", part)))
    assert caught.value.problems[0].path == "messages[0].content[1]"


@pytest.mark.parametrize("kind", ["image/jpg", "IMAGE/JPEG", "image/jpeg; q=1"])
def test_types_of_media_are_read_as_people_write_them(kind: str) -> None:
    content = encoded(request(user(Image(data="QUJD", mime_type=kind))))["messages"][0]["content"]
    assert content[0]["image"]["format"] == "jpeg"


@pytest.mark.parametrize(
    ("model", "level", "limit", "effort", "additional"),
    [
        ("m", "none", 64, None, None),
        ("m", "low", 64, "low", None),
        ("m", "high", 64, "high", None),
        (SONNET, None, 64, None, None),
        (SONNET, "none", 64, None, {"thinking": {"type": "disabled"}}),
        (SONNET, "med", 64, "medium", {"thinking": {"type": "adaptive"}}),
        ("anthropic.claude-opus-5-5", "none", 64, "low", None),
        ("anthropic.claude-opus-5-5", "high", 64, "high", None),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "none", 9999, None, None),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "high", 1024, None, None),
        (
            "anthropic.claude-sonnet-4-5-20250929-v1:0",
            "high",
            1025,
            None,
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ),
        (
            "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
            "high",
            64_000,
            None,
            {"thinking": {"type": "enabled", "budget_tokens": 16_384}},
        ),
        ("anthropic.claude-3-haiku-20240307-v1:0", "none", 64, None, None),
        ("amazon.nova-2-lite-v1:0", "none", 64, None, {"reasoningConfig": {"type": "disabled"}}),
        (
            "amazon.nova-2-lite-v1:0",
            "high",
            64,
            None,
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "medium"}},
        ),
        ("openai.gpt-oss-20b-1:0", "none", 64, None, {"reasoning_effort": "low"}),
    ],
)
def test_a_reasoning_level_is_said_as_the_model_wants_it(
    model: str, level: Any, limit: int, effort: str | None, additional: dict[str, Any] | None
) -> None:
    body = encoded(request(reasoning_level=level, max_tokens=limit), model)
    assert body.get("outputConfig", {}).get("effort") == effort
    assert body.get("additionalModelRequestFields") == additional
    assert body["inferenceConfig"] == {"maxTokens": limit}


def test_only_true_is_a_cache_hint() -> None:
    for hint in (False, None, "yes", 1):
        assert "cachePoint" not in str(encoded(request(metadata={"cache": hint}), SONNET))
    assert "cachePoint" in str(encoded(request(metadata={"cache": True}), SONNET))


def test_no_cache_point_follows_a_prefill() -> None:
    asked = request(user("a"), assistant("b"), metadata={"cache": True})
    assert "cachePoint" not in str(encoded(asked, SONNET))


def test_values_without_a_json_form_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="as JSON"):
        call(request(user("?"), assistant(ToolUse("t", "n", {"a": object()})), user("b")))


PARTS = st.one_of(
    st.builds(Text, st.text()),
    st.builds(Image, data=st.just("QUJD"), mime_type=st.just("image/png")),
    st.builds(Audio, st.just("QUJD"), st.just("audio/ogg")),
    st.builds(ToolUse, st.text(), st.text(), st.dictionaries(st.text(), st.text())),
    st.builds(Reasoning, st.text(), signature=st.none() | st.text(), redacted=st.booleans()),
    st.builds(ToolResult, st.text(), st.lists(st.builds(Text, st.text())).map(tuple)),
)


@given(
    st.lists(st.lists(PARTS, max_size=4), max_size=4),
    st.sampled_from(["m", SONNET, "amazon.nova-2-lite-v1:0"]),
    st.sampled_from([None, "none", "low", "med", "high"]),
    st.sampled_from([None, ToolChoice("none"), ToolChoice("required"), ToolChoice.tool("weather")]),
    st.booleans(),
)
def test_whatever_is_asked_is_valid_json_with_alternating_roles(
    turns: list[list[Content]], model: str, level: Any, choice: ToolChoice | None, rich: bool
) -> None:
    messages = [(user, assistant)[at % 2](*parts) for at, parts in enumerate(turns)]
    body = encoded(
        request(
            *messages,
            reasoning_level=level,
            tool_choice=choice,
            tools=(WEATHER,) if rich else (),
            output_schema=OutputSchema({"type": "object"}) if rich else None,
            metadata={"cache": rich},
        ),
        model,
    )
    roles = [message["role"] for message in body["messages"]]
    assert all(first != second for first, second in itertools.pairwise(roles))
    assert all(message["content"] for message in body["messages"])


@pytest.mark.parametrize(
    ("model", "counted"),
    [
        (SONNET, True),
        ("anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("us.amazon.nova-pro-v1:0", False),
        ("openai.gpt-oss-120b-1:0", False),
        ("some.model-that-nobody-knows", False),
    ],
)
def test_only_the_models_that_the_endpoint_knows_are_counted(model: str, counted: bool) -> None:
    count = DIALECT.count
    assert count is not None
    call = count.encode(model, request(), DIALECT.catalogue.profile("bedrock", model, {}))
    assert (call is not None) == counted


def test_counting_asks_for_the_model_behind_an_inference_profile() -> None:
    count = DIALECT.count
    assert count is not None
    profile = DIALECT.catalogue.profile("bedrock", SONNET, {})
    for model, path in (
        (SONNET, "anthropic.claude-sonnet-5"),
        ("global.anthropic.claude-opus-5-5", "anthropic.claude-opus-5-5"),
        ("zai.glm-4.7", "zai.glm-4.7"),
    ):
        asked = count.encode(model, request(reasoning_level="none"), profile)
        assert asked is not None
        assert asked.path == f"/model/{path}/count-tokens"
        assert asked.body is not None
        sent = msgspec.json.decode(asked.body)["input"]["converse"]
        assert sent.keys() == {"messages", "additionalModelRequestFields"}
