"""From keyword arguments to one request, or to what is wrong with them."""

from typing import Any, cast

import pytest

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import Message, Text, assistant, user
from penstock.contract.options import ModelPreferences, OutputSchema, ToolChoice, ToolDefinition
from penstock.contract.requests import RequestOptions, build_embedding_request, build_request


def build(messages: Any = "hi", **options: Any) -> SamplingRequest:
    """As a caller without a type checker would call it."""
    return build_request(messages, cast(RequestOptions, {"max_tokens": 9, **options}))


def problems(messages: Any = "hi", **options: Any) -> list[Problem]:
    with pytest.raises(InvalidRequest) as caught:
        build(messages, **options)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    "messages",
    [
        "hi",
        user("hi"),
        [user("hi")],
        (user("hi"),),
        iter([user("hi")]),
        [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    ],
)
def test_messages_may_be_a_text_a_message_or_several(messages: Any) -> None:
    assert build(messages) == SamplingRequest(messages=(user("hi"),), max_tokens=9)


def test_a_history_keeps_its_order() -> None:
    history = [user("a"), assistant("b"), user("c")]
    assert build(history).messages == tuple(history)


def test_every_option_finds_its_field() -> None:
    tool = ToolDefinition("now")
    request = build(
        model="m",
        system_prompt="s",
        temperature=1,
        stop_sequences=["END"],
        model_preferences=ModelPreferences(hints=("claude",), cost=0.2),
        include_context="thisServer",
        tools=[tool],
        tool_choice=ToolChoice.tool("now"),
        parallel_tools=False,
        output_schema=OutputSchema({"type": "string"}),
        reasoning_level="low",
        metadata={"user": "u1"},
        timeout=3,
        ignore_invalid_options=True,
        adapt="adapt",
    )
    assert request == SamplingRequest(
        messages=(user("hi"),),
        max_tokens=9,
        model="m",
        system_prompt="s",
        temperature=1.0,
        stop_sequences=("END",),
        model_preferences=ModelPreferences(hints=("claude",), cost=0.2),
        include_context="thisServer",
        tools=(tool,),
        tool_choice=ToolChoice("tool", "now"),
        parallel_tools=False,
        output_schema=OutputSchema({"type": "string"}),
        reasoning_level="low",
        metadata={"user": "u1"},
        timeout=3.0,
        ignore_invalid_options=True,
        adapt="adapt",
    )
    assert set(RequestOptions.__annotations__) == {*SamplingRequest.__struct_fields__} - {
        "messages",
        "fallback_models",
    }


def test_plain_words_and_plain_schemas_are_taken_too() -> None:
    request = build(tool_choice="required", output_schema={"type": "integer"})
    assert request.tool_choice == ToolChoice("required")
    assert request.output_schema == OutputSchema({"type": "integer"})


WRONG_OPTIONS: list[tuple[str, Any, str]] = [
    ("max_tokens", "many", "max_tokens"),
    ("max_tokens", True, "max_tokens"),
    ("temperature", "hot", "temperature"),
    ("stop_sequences", "END", "stop_sequences"),
    ("stop_sequences", ["a", 1], "stop_sequences[1]"),
    ("tools", [{"name": 1}], "tools[0].name"),
    ("tools", [{}], "tools[0].name"),
    ("tools", [{"name": "a", "parameters": []}], "tools[0].parameters"),
    ("tools", [1], "tools[0]"),
    ("model", [], "model"),
    ("model", ["a", 1], "model[1]"),
    ("tool_choice", "sometimes", "tool_choice.mode"),
    ("reasoning_level", "extreme", "reasoning_level"),
    ("include_context", "everything", "include_context"),
    ("output_schema", [], "output_schema"),
    ("output_schema", {1: 2}, "output_schema.schema"),
    ("metadata", 3, "metadata"),
    ("model", 3, "model"),
]


@pytest.mark.parametrize(
    ("option", "value", "path"),
    WRONG_OPTIONS,
)
def test_a_value_of_the_wrong_type_is_named_by_its_path(option: str, value: Any, path: str) -> None:
    (problem,) = problems(**{option: value})
    assert problem.path == path
    assert problem.message


def test_all_unknown_options_and_the_missing_limit_are_reported_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        build_request("hi", cast(RequestOptions, {"temprature": 1, "top_k": 2}))
    assert [problem.path for problem in caught.value.problems] == [
        "temprature",
        "top_k",
        "max_tokens",
    ]


WRONG_MESSAGES: list[tuple[Any, str]] = [
    (None, "messages"),
    (7, "messages"),
    (b"hi", "messages[0]"),
    ([user("hi"), {"role": "tool", "content": []}], "messages[1].role"),
    ([{"role": "user", "content": 7}], "messages[0].content"),
    ([{"role": "user", "content": ["hi"]}], "messages[0].content[0]"),
]


@pytest.mark.parametrize(
    ("messages", "path"),
    WRONG_MESSAGES,
)
def test_messages_of_the_wrong_type_are_named_by_their_path(messages: Any, path: str) -> None:
    (problem,) = problems(messages)
    assert problem.path == path


def test_a_built_message_is_not_copied() -> None:
    message = Message("user", (Text("hi"),))
    assert build(message).messages[0] is message


def test_an_embedding_request_takes_any_sequence_of_texts() -> None:
    request = build_embedding_request(["a", "b"], model="m", dimensions=4, timeout=1)
    assert request == EmbeddingRequest(texts=("a", "b"), model="m", dimensions=4, timeout=1.0)


def test_a_single_text_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(InvalidRequest, match="texts: is a single text; give a list of texts"):
        build_embedding_request("hello", model="m", dimensions=None, timeout=None)


@pytest.mark.parametrize(
    ("texts", "dimensions", "path"), [([1], None, "texts[0]"), (["a"], "many", "dimensions")]
)
def test_an_embedding_option_of_the_wrong_type_is_named(
    texts: Any, dimensions: Any, path: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        build_embedding_request(texts, model="m", dimensions=dimensions, timeout=None)
    assert caught.value.problems[0].path == path
