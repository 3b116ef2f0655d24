"""Misspelled options in Python code are answered with the name that was meant."""

from collections.abc import Callable
from inspect import isawaitable, iscoroutinefunction
from typing import Any

import pytest

import penstock
from penstock.contract.checks.spelling import did_you_mean, suggests_names
from penstock.testing import FakeProvider, engine_with

WRONG: dict[str, Any] = {"temprature": 1}
OPTION = "temprature: there is no such option; did you mean temperature?"
FACTORIES: tuple[tuple[Callable[..., object], tuple[Any, ...]], ...] = (
    (penstock.string_generator, ("x",)),
    (penstock.structured_generator, (int, "x")),
    (penstock.conversation, ()),
    (penstock.sync.string_generator, ("x",)),
)
PLAIN: tuple[tuple[Callable[..., object], dict[str, Any], str], ...] = (
    (penstock.ask, {"prompt": "x", "temprature": 1}, "temperature"),
    (penstock.open, {"confg": "x"}, "config"),
    (penstock.sync.open, {"confg": "x"}, "config"),
    (penstock.image, {"mime": "x"}, "mime_type"),
    (penstock.audio, {"source": b"", "mimetype": "x"}, "mime_type"),
    (penstock.MCPTool, {"url": "https://x", "name": "a", "allowed_tool": []}, "allowed_tools"),
    (penstock.ModelPreferences, {"hint": ()}, "hints"),
    (penstock.ModelPreferences, {"costPriority": 1}, "cost"),
    (penstock.ModelPreferences, {"intelligencePriority": 1}, "intelligence"),
    (penstock.ToolChoice, {"mod": "auto"}, "mode"),
    (penstock.ToolDefinition, {"nme": "x"}, "name"),
    (penstock.OutputSchema, {"schma": {}}, "schema"),
    (penstock.Config, {"servr": {}}, "server"),
    (penstock.Tool, {"input_shema": {}}, "input_schema"),
    (penstock.SamplingRequest, {"messages": (), "max_tokens": 3, **WRONG}, "temperature"),
)


@pytest.mark.parametrize(("make", "arguments"), FACTORIES)
def test_a_generator_names_the_option_that_was_meant(
    make: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(penstock.InvalidRequest) as caught:
        make(*arguments, **WRONG)
    assert str(caught.value) == OPTION


async def test_an_engine_names_the_option_that_was_meant() -> None:
    async with engine_with(FakeProvider()) as engine:
        calls: tuple[Callable[..., Any], ...] = (
            engine.create_message,
            engine.create_message_stream,
            engine.route,
        )
        for call in calls:
            with pytest.raises(penstock.InvalidRequest) as caught:
                await call("x", max_tokens=3, **WRONG)
            assert str(caught.value) == OPTION
        for method, arguments, wrong, meant in TYPED:
            with pytest.raises(TypeError, match=rf"'{wrong}'; did you mean {meant}\?$"):
                await getattr(engine, method)(*arguments, **{wrong: 1})
        marking: Any = engine.mark_down
        with pytest.raises(TypeError, match=r"mark_down\(\) .*'reson'; did you mean reason\?$"):
            marking("a/b", reson="x")


TYPED: tuple[tuple[str, tuple[Any, ...], str, str], ...] = (
    ("record_feedback", ("req_1",), "scre", "score"),
    ("embed", (["x"],), "dimension", "dimensions"),
    ("record_usage", ("a/b", {}), "qualty", "quality"),
    ("provider_health", (), "name", "names"),
    ("sample", ({},), "modle", "model"),
    ("sample_stream", ({},), "modle", "model"),
    ("set_budget", (1,), "perod", "period"),
    ("cancel_request", ("x",), "ky", "key"),
)
SYNC: tuple[tuple[str, tuple[Any, ...], str, str], ...] = (
    ("sample", ({},), "modle", "model"),
    ("embed", (["x"],), "dimension", "dimensions"),
    ("record_usage", ("a/b", {}), "qualty", "quality"),
    ("provider_health", (), "name", "names"),
    ("mark_down", ("a/b",), "reson", "reason"),
    ("mark_up", (), "targt", "target"),
    ("set_budget", (1,), "perod", "period"),
    ("record_feedback", ("x",), "scre", "score"),
    ("cancel_request", (), "request", "request_id"),
)


@pytest.mark.parametrize(("method", "arguments", "given", "meant"), SYNC)
def test_a_synchronous_engine_names_the_argument_that_was_meant(
    method: str, arguments: tuple[Any, ...], given: str, meant: str
) -> None:
    message = rf"{method}\(\) .*'{given}'; did you mean {meant}\?$"
    with (
        penstock.sync.open(penstock.Config()) as engine,
        pytest.raises(TypeError, match=message),
    ):
        getattr(engine, method)(*arguments, **{given: 1})


@pytest.mark.parametrize(
    ("wrong", "meant"), [("providr", "provider"), ("max_tool_round", "max_tool_rounds")]
)
@pytest.mark.parametrize(("make", "arguments"), FACTORIES)
def test_a_generator_knows_the_names_of_all_its_options(
    make: Callable[..., object], arguments: tuple[Any, ...], wrong: str, meant: str
) -> None:
    with pytest.raises(penstock.InvalidRequest, match=rf"{wrong}: .*did you mean {meant}\?"):
        make(*arguments, **{wrong: 1})


async def test_a_generator_of_an_engine_knows_the_names_of_all_its_options() -> None:
    wrong: Any = {"max_tool_round": 1}
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(penstock.InvalidRequest, match=r"did you mean max_tool_rounds\?"):
            engine.string_generator("x", **wrong)


@pytest.mark.parametrize("make", [penstock.embedding_generator, penstock.transcription_generator])
def test_other_generators_name_it_too(make: Callable[..., object]) -> None:
    with pytest.raises(penstock.InvalidRequest, match=r"modell: .* did you mean model\?"):
        make(modell="x")


@pytest.mark.parametrize(("call", "given", "meant"), PLAIN)
def test_an_unknown_argument_names_the_one_that_was_meant(
    call: Callable[..., object], given: dict[str, Any], meant: str
) -> None:
    with pytest.raises(TypeError, match=rf"unexpected keyword argument .*did you mean {meant}\?$"):
        call(**given)


def test_other_mistakes_keep_their_own_message() -> None:
    with pytest.raises(TypeError, match="Missing required argument 'url'"):
        penstock.MCPTool(name="a")  # pyright: ignore[reportCallIssue]


def test_names_of_other_apis_lead_to_ours() -> None:
    known = ("max_tokens", "stop_sequences", "system_prompt")
    assert did_you_mean("max_completion_tokens", known) == "; did you mean max_tokens?"
    assert did_you_mean("stop", known) == "; did you mean stop_sequences?"
    assert did_you_mean("maxTokens", known) == "; did you mean max_tokens?"
    assert not did_you_mean("zzz", known)
    assert not did_you_mean("x" * 10**6, known)


async def test_a_coroutine_function_stays_one() -> None:
    @suggests_names
    async def double(*, number: int) -> int:
        return 2 * number

    assert iscoroutinefunction(double)
    answer = double(number=2)
    assert isawaitable(answer)
    assert await answer == 4
