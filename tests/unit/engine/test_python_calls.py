"""What Python callers may give: lists of models, types, functions, and no limit."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

import penstock
from penstock import Config, InvalidRequest, ModelNotFound, StructuredOutputInvalid
from penstock.budget.pricing.rates import NANOS
from penstock.engine.engine import Engine
from penstock.keys.policy import KeyTerms
from penstock.keys.records import Key, KeyHash, hash_of
from penstock.testing import FakeProvider, FakeReply, engine_with


class Recipe(pydantic.BaseModel):
    minutes: int


@dataclass
class Plain:
    minutes: int


def stock(article: str) -> int:
    """Count pieces."""
    raise AssertionError("it is declared only")


def two(first: FakeProvider, second: FakeProvider, **sections: Any) -> Engine:
    """An engine of two models, each with one target."""
    models = {"one": {"targets": ["first/echo"]}, "two": {"targets": ["second/echo"]}}
    kinds = {"first": {"kind": "fake"}, "second": {"kind": "fake"}}
    given = {"providers": kinds, "models": models, "pool": {"retries": 0}, **sections}
    engine = Engine(Config.model_validate(given))
    engine.use(first)
    engine.use(second)
    return engine


def failing() -> FakeProvider:
    return FakeProvider([penstock.ProviderUnavailable("down")] * 5, name="first")


BOTH = ["one", "two"]


async def test_the_next_model_answers_when_the_one_before_it_fails() -> None:
    second = FakeProvider(["Hello."] * 3, name="second")
    async with two(failing(), second) as engine:
        result = await engine.create_message("Hi", model=BOTH, max_tokens=9)
        assert (result.text, result.metadata.provider, result.metadata.attempts) == (
            "Hello.",
            "second",
            2,
        )
        async with await engine.create_message_stream("Hi", model=BOTH, max_tokens=9) as stream:
            assert (await stream.result()).metadata.provider == "second"
        text, metadata = await engine.string_generator("Hi", model=BOTH).generate()
        assert (text, metadata.provider) == ("Hello.", "second")
    assert [each.model for each in second.requests] == ["one"] * 3


async def test_the_order_of_the_list_is_the_order_of_the_targets() -> None:
    async with two(FakeProvider(name="first"), FakeProvider(name="second")) as engine:
        for names, targets in (
            (BOTH, ["first/echo", "second/echo"]),
            (["two", "one"], ["second/echo", "first/echo"]),
            (["two", "second/echo", "two"], ["second/echo"]),
        ):
            route = await engine.route("Hi", model=names)
            assert [str(each) for each in route.targets] == targets
            estimate = await engine.estimate("Hi", model=names, max_tokens=9)
            assert [f"{each.provider}/{each.model}" for each in estimate.targets] == targets
            counted = await engine.count_tokens("Hi", model=names)
            assert f"{counted.provider}/{counted.model}" == targets[0]


async def test_a_target_that_is_down_ranks_last() -> None:
    async with two(FakeProvider(name="first"), FakeProvider(name="second")) as engine:
        engine.mark_down("first/echo", "test")
        route = await engine.route("Hi", model=BOTH)
        assert [str(each) for each in route.targets] == ["second/echo", "first/echo"]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ([], "model: is an empty list"),
        (["one", 3], r"model\[1\]: is 3"),
        (["one", ""], r"model\[1\]: is ''"),
        (3, "model: is 3; give a name, or a list"),
        (["one"] * 17, "at most 16"),
    ],
)
async def test_a_bad_list_of_models_is_refused_by_name(model: Any, problem: str) -> None:
    async with two(FakeProvider(name="first"), FakeProvider(name="second")) as engine:
        for call in (engine.create_message, engine.estimate, engine.route, engine.count_tokens):
            with pytest.raises(InvalidRequest, match=problem):
                await call("Hi", model=model, max_tokens=9)
        if model != ["one"] * 17:
            with pytest.raises(InvalidRequest, match=problem):
                engine.string_generator("Hi", model=model)
    with pytest.raises(InvalidRequest, match=problem):
        penstock.sync.open(Config()).create_message("Hi", model=model, max_tokens=9)


async def test_an_unknown_model_of_the_list_is_named() -> None:
    async with two(FakeProvider(name="first"), FakeProvider(name="second")) as engine:
        with pytest.raises(ModelNotFound, match="'thre'"):
            await engine.create_message("Hi", model=["one", "thre"], max_tokens=9)


async def test_a_key_must_be_allowed_each_model_of_the_list() -> None:
    key = Key(name="ada", hashes=(KeyHash(hash_of("x")),), models=("one",))
    caller = KeyTerms(key, {"one": ("first/echo",), "two": ("second/echo",)}).caller
    second = FakeProvider(name="second")
    async with two(failing(), second) as engine:
        with pytest.raises(ModelNotFound, match="'two' for this key"):
            await engine.create_message("Hi", model=BOTH, max_tokens=9, caller=caller)
        with pytest.raises(penstock.PenstockError, match="down"):
            await engine.create_message("Hi", model=["one"], max_tokens=9, caller=caller)
    assert not second.requests


async def test_budgets_hold_for_each_target_of_the_list(tmp_path: Path) -> None:
    price = {"input": 1000, "output": 1000}
    models = {
        "one": {"targets": ["first/echo"], "prices": {"first/echo": price}},
        "two": {"targets": ["second/echo"], "prices": {"second/echo": price}},
    }
    budgets = {"first": {"limit_usd": 0.000001, "provider": "first"}}
    storage = {"url": f"sqlite:///{tmp_path / 'x.db'}"}
    first, second = FakeProvider(["No."], name="first"), FakeProvider(["Yes."], name="second")
    engine = two(first, second, models=models, budgets=budgets, storage=storage)
    async with engine:
        result = await engine.create_message("Hi", model=BOTH, max_tokens=9)
        assert result.text == "Yes."
        assert result.metadata.cost_nanos == (result.usage.total_tokens or 0) * NANOS // 1000
    assert not first.requests


async def test_a_generator_of_its_own_takes_a_list() -> None:
    generator = penstock.string_generator("Hi", provider="fake", model=["echo", "words-3"])
    _, metadata = await generator.generate()
    assert metadata.model == "echo"
    with pytest.raises(InvalidRequest, match="empty list"):
        penstock.string_generator("Hi", provider="fake", model=[])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Recipe, '{"minutes": 3}', Recipe(minutes=3)),
        (Plain, '{"minutes": 3}', Plain(3)),
        (list[int], '{"answer": [1, 2]}', [1, 2]),
    ],
)
async def test_a_type_as_schema_gives_a_value(kind: Any, text: str, value: Any) -> None:
    provider = FakeProvider([text, text])
    async with engine_with(provider) as engine:
        result = await engine.create_message("Go.", max_tokens=9, output_schema=kind)
        assert result.parsed == value
        async with await engine.create_message_stream(
            "Go.", max_tokens=9, output_schema=kind
        ) as stream:
            events = [event async for event in stream]
    assert isinstance(end := events[-1], penstock.Complete)
    assert end.result.parsed == value
    assert pickle.loads(pickle.dumps(result)).parsed == value
    assert "parsed" not in json.loads(msgspec.json.encode(result))
    schema = provider.requests[0].output_schema
    assert schema is not None
    assert schema.schema["type"] == "object"


async def test_an_answer_that_does_not_fit_the_type_is_an_error_with_its_text() -> None:
    text = '{"minutes": "long"}'
    async with engine_with(FakeProvider([text, text])) as engine:
        with pytest.raises(StructuredOutputInvalid, match="minutes: ") as caught:
            await engine.create_message("Go.", max_tokens=9, output_schema=Recipe)
        assert (caught.value.raw, caught.value.provider) == (text, "fake")
        assert caught.value.request_id
        stream = await engine.create_message_stream("Go.", max_tokens=9, output_schema=Recipe)
        batches = [batch async for batch in stream.batches()]
        assert isinstance(batches[-1][-1], penstock.Error)
        with pytest.raises(StructuredOutputInvalid):
            await stream.result()


async def test_a_dict_as_schema_has_no_parsed_value() -> None:
    async with engine_with(FakeProvider(["{}"])) as engine:
        schema = {"type": "object"}
        result = await engine.create_message("Go.", max_tokens=9, output_schema=schema)
    assert result.parsed is None


@pytest.mark.parametrize("schema", ["Recipe", 3, stock, [Recipe]])
async def test_what_is_no_type_is_refused(schema: Any) -> None:
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest, match="output_schema"):
            await engine.create_message("Go.", max_tokens=9, output_schema=schema)


async def test_functions_as_tools_are_declared_and_not_run() -> None:
    call = FakeReply(tool_uses=(penstock.ToolUse("1", "stock", {"article": "lamp"}),))
    provider = FakeProvider([call])
    made = penstock.tool(stock, name="made")
    given: dict[str, Any] = {
        "type": "function",
        "function": {"name": "given", "parameters": {}},
        "handler": stock,
    }
    async with engine_with(provider) as engine:
        tools: list[Any] = [stock, made, given, penstock.ToolDefinition("own")]
        result = await engine.create_message("Go.", max_tokens=9, tools=tools, output_schema=Recipe)
        await engine.route("Go.", tools=tools)
        await engine.count_tokens("Go.", tools=tools)
    assert [each.name for each in provider.requests[0].tools] == ["stock", "made", "given", "own"]
    assert provider.requests[0].tools[0].description == "Count pieces."
    assert result.tool_uses
    assert result.parsed is None


@pytest.mark.parametrize(
    "form",
    [
        {"name": "a", "parameters": {"type": "object", "required": ["b"]}},
        {"name": "a", "inputSchema": {"type": "object", "required": ["b"]}},
        {"type": "function", "function": {"name": "a", "parameters": {"required": ["b"]}}},
    ],
)
async def test_a_dict_as_tool_keeps_its_schema(form: dict[str, Any]) -> None:
    provider = FakeProvider(["Yes."])
    async with engine_with(provider) as engine:
        await engine.create_message("Go.", max_tokens=9, tools=[form])
    (tool,) = provider.requests[0].tools
    assert tool.input_schema == {"type": "object", "required": ["b"]}


async def test_every_bad_tool_is_named() -> None:
    async with engine_with(FakeProvider([])) as engine:
        tools: Any = [{"name": "a", "paramters": {}}, {"parameters": {}}]
        with pytest.raises(InvalidRequest) as caught:
            await engine.create_message("Go.", max_tokens=9, tools=tools)
    paths = [each.path for each in caught.value.problems]
    assert paths == ["tools[0].paramters", "tools[1].name"]


async def test_the_configuration_has_the_default_of_max_tokens() -> None:
    provider = FakeProvider(["One."] * 5, name="first")
    models = {
        "one": {"targets": ["first/echo"], "max_tokens": 77},
        "two": {"targets": ["second/echo"], "max_tokens": 50},
    }
    async with two(provider, FakeProvider(name="second"), models=models) as engine:
        result = await engine.create_message("Hi", model="one")
        assert result.metadata.max_tokens == 77
        assert result.metadata.to_dict()["max_tokens"] == 77
        assert result.metadata.as_dict()["max_tokens"] == "77"
        given = await engine.create_message("Hi", model="one", max_tokens=9)
        assert given.metadata.max_tokens is None
        assert (await engine.create_message("Hi", model=BOTH)).metadata.max_tokens == 50
        stream = await engine.create_message_stream("Hi", model="one")
        assert (await stream.result()).metadata.max_tokens == 77
        await engine.string_generator("Hi", model="one").generate()
        assert (await engine.estimate("Hi", model="one")).targets[0].max_output_tokens == 77
    assert [each.max_tokens for each in provider.requests] == [77, 9, 50, 77, 77]


async def test_the_profile_of_the_model_has_the_default_of_max_tokens() -> None:
    config = Config.model_validate({"providers": {"openai": {"auth_token": "x"}, "embedded": {}}})
    async with penstock.open(config) as engine:
        assert engine.default_max_tokens(["openai/gpt-4o"]) == 4096
        assert engine.default_max_tokens(["openai/gpt-4o", "embedded/smollm2"]) == 4096


async def test_max_tokens_is_required_where_nothing_is_known_of_the_model() -> None:
    async with engine_with(FakeProvider([])) as engine:
        for call in (engine.create_message, engine.create_message_stream, engine.estimate):
            with pytest.raises(InvalidRequest, match=r"max_tokens: is required.*\[models.NAME\]"):
                await call("Hi")
