"""Requests in, JSON bodies out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import AuthenticationFailed, InvalidRequest, PenstockError, Problem
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.gemini.catalogue import CATALOGUE
from penstock.providers.gemini.contents import CONTINUATION, SIGNATURE
from penstock.providers.gemini.encode import encode, relax, resume
from penstock.providers.profiles import ModelProfile

HELLO = (user("Hello"),)
HELLO_WIRE = [{"role": "user", "parts": [{"text": "Hello"}]}]
WEATHER = ToolDefinition("weather", "Tells the weather", {"type": "object"})
USE = ToolUse("c1", "weather", {"city": "Rome"})
CALL = {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Rome"}}}
PNG = Image(data="aW1n", mime_type="image/png")
PNG_WIRE = {"inlineData": {"mimeType": "image/png", "data": "aW1n"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def profile(model: str = "m", **options: Any) -> ModelProfile:
    return CATALOGUE.profile("gemini", model, options)


def request(**fields: Any) -> SamplingRequest:
    given_fields: dict[str, Any] = {"messages": HELLO, "max_tokens": 10, **fields}
    return SamplingRequest(**given_fields)


def body_of(*, model: str = "m", stream: bool = False, **fields: Any) -> dict[str, Any]:
    call = encode(model, request(**fields), profile(model), stream)
    assert (call.method, call.headers) == ("POST", {})
    assert call.body is not None
    return msgspec.json.decode(call.body)


def contents_of(*messages: Message, model: str = "m") -> list[dict[str, Any]]:
    return body_of(messages=messages, model=model)["contents"]


def config_of(**fields: Any) -> dict[str, Any]:
    return body_of(**fields)["generationConfig"]


def test_the_least_request() -> None:
    assert body_of() == {"contents": HELLO_WIRE, "generationConfig": {"maxOutputTokens": 10}}


@pytest.mark.parametrize(
    ("model", "stream", "options", "path"),
    [
        ("m", False, {}, "/v1beta/models/m:generateContent"),
        ("m", True, {}, "/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("models/m", False, {}, "/v1beta/models/m:generateContent"),
        ("tunedModels/m", False, {}, "/v1beta/tunedModels/m:generateContent"),
        ("m", False, {"api_version": "v1"}, "/v1/models/m:generateContent"),
        ("m", False, {"api_version": None}, "/v1beta/models/m:generateContent"),
        ("../x?y#z", False, {}, "/v1beta/models/..%2Fx%3Fy%23z:generateContent"),
        ("m", False, {"api_version": "../x"}, "/..%2Fx/models/m:generateContent"),
    ],
)
def test_paths(model: str, stream: bool, options: dict[str, Any], path: str) -> None:
    assert encode(model, request(), profile(model, **options), stream).path == path


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"stop_sequences": ("a", "b")}, {"stopSequences": ["a", "b"]}),
        (
            {"output_schema": OutputSchema(SCHEMA)},
            {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
        ),
        ({"metadata": {"cache": True, "user": "u"}}, {}),
    ],
)
def test_options(fields: dict[str, Any], config: dict[str, Any]) -> None:
    assert config_of(**fields) == {"maxOutputTokens": 10, **config}


@pytest.mark.parametrize(
    ("model", "level", "thinking"),
    [
        ("m", "none", {"thinkingLevel": "MINIMAL"}),
        ("m", "low", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("m", "med", {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-4-argon", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-3.8-flash", "none", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3.1-pro", "none", {"thinkingLevel": "LOW"}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024, "includeThoughts": True}),
        ("models/gemini-2.5-flash", "high", {"thinkingBudget": 24576, "includeThoughts": True}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", "high", {"thinkingBudget": 32768, "includeThoughts": True}),
        ("gemma-4-31b-it", "med", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-2.0-flash", "none", None),
    ],
)
def test_levels_of_thinking(model: str, level: str, thinking: dict[str, Any] | None) -> None:
    assert config_of(model=model, reasoning_level=level).get("thinkingConfig") == thinking


def test_system_texts_are_joined() -> None:
    body = body_of(messages=(system("And kind."), *HELLO), system_prompt="Be brief.")
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief.\n\nAnd kind."}]}
    assert body["contents"] == HELLO_WIRE


def test_tools() -> None:
    body = body_of(tools=(WEATHER, ToolDefinition("now")))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "weather",
                    "description": "Tells the weather",
                    "parametersJsonSchema": {"type": "object"},
                },
                {"name": "now", "parametersJsonSchema": {"type": "object"}},
            ]
        }
    ]
    assert "toolConfig" not in body


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice("auto"), {"mode": "AUTO"}),
        (ToolChoice("required"), {"mode": "ANY"}),
        (ToolChoice("none"), {"mode": "NONE"}),
        (ToolChoice.tool("weather"), {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
    ],
)
def test_tool_choice(choice: ToolChoice, config: dict[str, Any]) -> None:
    body = body_of(tools=(WEATHER,), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": config}
    assert "toolConfig" not in body_of(tool_choice=choice)


def test_with_tools_the_schema_is_a_part_of_the_instructions() -> None:
    output = OutputSchema(SCHEMA, description="A number")
    body = body_of(tools=(WEATHER,), output_schema=output, system_prompt="Be brief.")
    said = body["systemInstruction"]["parts"][0]["text"]
    assert said.startswith(
        "Be brief.\n\nWhen you give your final answer (A number), it must be one"
    )
    assert said.endswith('\n{"type":"object","properties":{"a":{"type":"integer"}}}')
    assert body["generationConfig"] == {"maxOutputTokens": 10}


def test_media() -> None:
    turn = user(
        "Look",
        PNG,
        Audio("d2F2", "audio/wav"),
        Image(url="https://x.org/cat.png?size=1"),
        Image(url="https://x.org/cat", mime_type="image/webp"),
        Image(url="https://x.org/cat"),
    )
    assert contents_of(turn)[0]["parts"] == [
        {"text": "Look"},
        PNG_WIRE,
        {"inlineData": {"mimeType": "audio/wav", "data": "d2F2"}},
        {"fileData": {"fileUri": "https://x.org/cat.png?size=1", "mimeType": "image/png"}},
        {"fileData": {"fileUri": "https://x.org/cat", "mimeType": "image/webp"}},
        {"fileData": {"fileUri": "https://x.org/cat"}},
    ]


def _result(*parts: Text | Image | Audio, error: bool = False) -> tuple[Message, ...]:
    return (*HELLO, assistant(USE), user(ToolResult("c1", parts, is_error=error)))


@pytest.mark.parametrize(
    ("parts", "error", "response"),
    [
        ((Text("fine"),), False, {"output": "fine"}),
        ((), False, {"output": ""}),
        ((Text("broken"),), True, {"error": "broken"}),
        ((), True, {"error": "the tool failed without a message"}),
    ],
)
def test_results(parts: tuple[Text, ...], error: bool, response: dict[str, str]) -> None:
    turns = contents_of(*_result(*parts, error=error))
    assert turns[1:] == [
        {"role": "model", "parts": [CALL]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": response}}],
        },
    ]


def test_a_structured_result_is_json() -> None:
    result = ToolResult("c1", structured_content={"t": 21})
    turns = contents_of(*HELLO, assistant(USE), user(result))
    assert turns[2]["parts"][0]["functionResponse"]["response"] == {"output": '{"t":21}'}


def test_pictures_in_results_follow_or_are_held() -> None:
    linked = Image(url="https://x.org/cat.png")
    older = contents_of(*_result(Text("see"), PNG))[2]["parts"]
    assert older[0]["functionResponse"].keys() == {"id", "name", "response"}
    assert older[1:] == [{"text": "From the tool call c1:"}, PNG_WIRE]
    newer = contents_of(*_result(PNG, linked), model="gemini-3.8-flash")[2]["parts"]
    assert newer[0]["functionResponse"]["parts"] == [PNG_WIRE]
    assert [part.keys() for part in newer[1:]] == [{"text"}, {"fileData"}]


def test_a_result_without_its_call_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.content\[0\]\.tool_use_id"):
        contents_of(user(ToolResult("c1")))


@pytest.mark.parametrize(
    "message", [user(USE), assistant(USE, ToolResult("c1"))], ids=["call", "result"]
)
def test_parts_in_the_wrong_turn_are_refused(message: Message) -> None:
    with pytest.raises(InvalidRequest, match="on Gemini"):
        contents_of(message)


def test_signatures_go_back_with_their_parts() -> None:
    turn = assistant(
        Reasoning("why", signature="s1"),
        Reasoning("a summary"),
        Text("Hm.", meta={SIGNATURE: "s2"}),
        Text("x", meta={"other": 1}),
        ToolUse("c1", "weather", {"city": "Rome"}, meta={SIGNATURE: "s3"}),
        ToolUse("c2", "now", {}),
        Image(data="aW1n", mime_type="image/png", meta={SIGNATURE: "s4"}),
    )
    assert contents_of(turn, model="gemini-3.8-flash")[0] == {
        "role": "model",
        "parts": [
            {"text": "why", "thought": True, "thoughtSignature": "s1"},
            {"text": "Hm.", "thoughtSignature": "s2"},
            {"text": "x"},
            {**CALL, "thoughtSignature": "s3"},
            {"functionCall": {"id": "c2", "name": "now", "args": {}}},
            {**PNG_WIRE, "thoughtSignature": "s4"},
        ],
    }


def test_a_call_of_another_model_gets_the_documented_placeholder() -> None:
    turn = assistant(USE, ToolUse("c2", "now", {}))
    parts = contents_of(turn, model="gemini-3.8-flash")[0]["parts"]
    assert parts[0] == {**CALL, "thoughtSignature": "skip_thought_signature_validator"}
    assert "thoughtSignature" not in parts[1]
    assert contents_of(turn, model="gemini-2.5-pro")[0]["parts"][0] == CALL


def test_calls_before_the_users_last_words_need_no_signature() -> None:
    round_of = (assistant(USE), user(ToolResult("c1", (Text("fine"),))))
    turns = contents_of(user("A"), *round_of, user("B"), *round_of, model="gemini-3.8-flash")
    calls = [turn["parts"][0] for turn in turns if turn["role"] == "model"]
    assert [call.get("thoughtSignature") for call in calls] == [
        None,
        "skip_thought_signature_validator",
    ]


def test_no_turn_is_sent_empty() -> None:
    turns = contents_of(user(), assistant(Reasoning("a summary")), user("x", Reasoning("y")))
    assert turns == [
        {"role": "user", "parts": [{"text": ""}]},
        {"role": "user", "parts": [{"text": "x"}]},
    ]


def _reply(*content: Text) -> Reply:
    return Reply(content, "m", "", Usage(), "r", "CONTINUATION")


def test_a_paused_answer_is_asked_for_again_with_its_token() -> None:
    first = request()
    assert resume(first, _reply(Text("x"))) is None
    assert resume(first, _reply()) is None
    follow = resume(first, _reply(Text("x", meta={CONTINUATION: "t1"})))
    assert follow is not None
    again = resume(follow, _reply(Text("y", meta={CONTINUATION: "t2"})))
    assert again is not None
    for asked, token in ((follow, "t1"), (again, "t2")):
        call = encode("m", asked, profile(), False)
        assert msgspec.json.decode(call.body or b"") == {**body_of(), "continuationToken": token}


def _refusal(*paths: str, status: int | None = 400) -> InvalidRequest:
    return InvalidRequest("no", problems=[Problem(path, "no") for path in paths], status=status)


@pytest.mark.parametrize(
    ("level", "error", "relaxed"),
    [
        ("high", _refusal(""), True),
        ("none", _refusal(), True),
        ("high", _refusal("generation_config.thinking_config"), True),
        ("high", _refusal("contents", "generationConfig.thinkingLevel"), True),
        ("high", _refusal("contents[0].parts"), False),
        ("high", _refusal("", status=None), False),
        (None, _refusal(""), False),
        ("high", AuthenticationFailed("no", status=400), False),
    ],
)
def test_a_refused_level_is_left_out(
    level: str | None, error: PenstockError, relaxed: bool
) -> None:
    asked = request(reasoning_level=level)
    found = relax(asked, error)
    assert found == ((request(), "reasoning_level") if relaxed else None)


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="JSON"):
        body_of(tools=(ToolDefinition("t", "", {"a": object()}),))


def _message(role: Role, parts: list[Content]) -> Message:
    return Message(role, tuple(parts))


def _picture(data: str) -> Content:
    return Image(data=data, mime_type="image/png")


def _linked(url: str) -> Content:
    return Image(url=f"https://{url}")


def _thinking(text: str, signature: str | None) -> Content:
    return Reasoning(text, signature=signature)


PARTS: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, st.text()),
    st.text().map(_picture),
    st.text().map(_linked),
    st.builds(Audio, st.text(), st.text()),
    st.builds(_thinking, st.text(), st.text() | st.none()),
)
ROLES: tuple[Role, ...] = ("user", "assistant", "system")


@given(st.lists(st.builds(_message, st.sampled_from(ROLES), st.lists(PARTS))), st.text())
def test_any_conversation_is_valid_json(messages: list[Message], model: str) -> None:
    try:
        body = body_of(messages=tuple(messages), model=model)
    except InvalidRequest:
        return
    assert all(turn["parts"] for turn in body["contents"])
