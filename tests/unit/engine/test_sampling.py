"""What an engine offers around a request: MCP's params, ids, routes and counts."""

import asyncio
import json
import threading
import warnings
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import penstock
from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.errors import InvalidRequest, ModelNotFound, RateLimited, RequestCancelled
from penstock.contract.events import Cancelled, Chunk
from penstock.contract.exchange import SamplingRequest, Usage, Vectors
from penstock.contract.messages import user
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Target
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, engine_with
from tests.support.stub import FINISHED, Pause, StubProvider

PARAMS: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
    "maxTokens": 20,
    "systemPrompt": "Be brief.",
}


def engine_on(*stubs: StubProvider) -> Engine:
    """Each is a model of its own name, and `default` has them all."""
    targets: dict[str, tuple[str, ...]] = {stub.name: (f"{stub.name}/m",) for stub in stubs}
    targets["default"] = tuple(f"{stub.name}/m" for stub in stubs)
    engine = Engine(
        Config(
            pool=PoolConfig(retries=0, mid_stream="error"),
            models={n: ModelConfig(targets=t) for n, t in targets.items()},
        )
    )
    for stub in stubs:
        engine.use(stub)
    return engine


# MCP's params


async def test_options_beside_the_params_are_honoured() -> None:
    one, two = FakeProvider(name="one"), FakeProvider(name="two")
    async with engine_with(one, two) as engine:
        result = await engine.sample({**PARAMS, "_provider": "two", "_timeout": 30_000})
        stream = await engine.sample_stream({**PARAMS, "_provider": "two", "_stream": True})
        assert (await stream.result()).metadata.provider == "two"
    assert result.metadata.provider == "two"
    assert two.requests[0].timeout == 30


@pytest.mark.parametrize(
    ("name", "extra", "problem"),
    [
        ("sample", {"_provider": "none"}, "_provider: there is no provider 'none'"),
        ("sample", {"_stream": True}, "_stream: is true, which sample() cannot do; call sample_"),
        ("sample_stream", {"_stream": False}, "_stream: is false, which sample_stream() cannot"),
        ("sample", {"_callback": 1}, "_callback: is not supported; read the events of sample_st"),
        ("sample_stream", {"_timeout": 0}, "_timeout: 0 is not a positive number of milliseconds"),
    ],
)
async def test_options_that_cannot_be_honoured_are_refused_by_name(
    name: str, extra: dict[str, Any], problem: str
) -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await getattr(engine, name)({**PARAMS, **extra})
    assert [str(each)[: len(problem)] for each in caught.value.problems] == [problem]


@pytest.mark.parametrize("params", [PARAMS, json.dumps(PARAMS), json.dumps(PARAMS).encode()])
async def test_mcp_params_are_answered(params: Any) -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        result = await engine.sample(params, model="fake/echo", timeout=30, request_id="mine")
        stream = await engine.sample_stream(params)
        assert (await stream.result()).text == "Hello"
    assert result.request_id == "mine"
    assert result.to_mcp()["content"] == {"type": "text", "text": "Hello"}
    assert fake.requests[0] == SamplingRequest(
        messages=(user("Hello"),),
        max_tokens=20,
        system_prompt="Be brief.",
        model="fake/echo",
        timeout=30,
        adapt="adapt",
    )


async def test_a_missing_limit_is_a_thousand_tokens_and_a_warning_to_the_caller() -> None:
    fake = FakeProvider()
    params = {"messages": PARAMS["messages"]}
    async with engine_with(fake) as engine:
        with pytest.warns(DeprecationWarning, match="maxTokens is missing and taken for 1000") as w:
            await engine.sample(params)
        with pytest.warns(DeprecationWarning, match="give it, for MCP requires it") as v:
            stream = await engine.sample_stream(params)
        await stream.result()
    assert [request.max_tokens for request in fake.requests] == [1000, 1000]
    # It points to the code that has to change.
    assert {warning.filename for warning in (*w, *v)} == {__file__}
    assert params == {"messages": PARAMS["messages"]}


async def test_the_strict_calls_know_no_such_default() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidRequest, match="maxTokens: is required"):
            SamplingRequest.from_mcp({"messages": PARAMS["messages"]})
        async with engine_with(FakeProvider()) as engine:
            with pytest.raises(InvalidRequest, match="max_tokens: is required"):
                await cast(Any, engine).create_message("Hello")


async def test_problems_that_the_engine_finds_are_spelled_as_in_mcp() -> None:
    wrong = {**PARAMS, "temperature": 9, "stopSequences": [""] * 11, "maxTokens": 2**40}
    async with engine_with(FakeProvider()) as engine:
        for call in (engine.sample, engine.sample_stream):
            with pytest.raises(InvalidRequest) as caught:
                await call(wrong)
            paths = [problem.path for problem in caught.value.problems]
            assert paths[:4] == ["maxTokens", "temperature", "stopSequences", "stopSequences[0]"]
            assert caught.value.request_id is not None


# Ids and cancelling


@pytest.fixture
def pause() -> Pause:
    return Pause()


@pytest.fixture
async def slow(pause: Pause) -> AsyncIterator[Engine]:
    """An engine whose model is silent before its first token."""
    async with engine_on(StubProvider([pause, [Chunk("a")], [FINISHED]])) as engine:
        yield engine


async def test_the_callers_own_id_names_the_request_everywhere() -> None:
    async with engine_on(StubProvider()) as engine:
        result = await engine.create_message("Hello", max_tokens=9, request_id="mine-1")
        assert result.request_id == "mine-1"
        stream = await engine.create_message_stream("Hello", max_tokens=9, request_id="mine-2")
        assert stream.request_id == (await stream.result()).request_id == "mine-2"
        with pytest.raises(ModelNotFound) as caught:
            await engine.create_message("Hello", max_tokens=9, model="no", request_id="mine-3")
        assert caught.value.request_id == "mine-3"
        request = SamplingRequest(messages=(user("Hello"),), max_tokens=9)
        assert (await engine.create_message(request, request_id="r")).request_id == "r"


async def test_a_whole_answer_is_cancelled_by_its_id(slow: Engine, pause: Pause) -> None:
    call = asyncio.ensure_future(
        slow.create_message("Hello", max_tokens=9, timeout=30, request_id="mine")
    )
    await pause.reached.wait()
    assert await slow.cancel_request("mine") is True
    assert await slow.cancel_request("mine") is False
    with pytest.raises(RequestCancelled) as caught:
        await call
    assert caught.value.request_id == "mine"
    assert cast(StubProvider, slow.provider("stub")).open_streams == 0
    assert await slow.cancel_request("mine") is False
    assert call.cancelling() == 0


async def test_a_stream_is_cancelled_before_its_first_event(slow: Engine, pause: Pause) -> None:
    call = asyncio.ensure_future(
        slow.create_message_stream("Hello", max_tokens=9, request_id="mine")
    )
    await pause.reached.wait()
    assert await slow.cancel_request("mine") is True
    with pytest.raises(RequestCancelled):
        await call
    assert cast(StubProvider, slow.provider("stub")).open_streams == 0


async def test_the_task_goes_on_after_its_call_was_cancelled(slow: Engine, pause: Pause) -> None:
    async def twice() -> str:
        with pytest.raises(RequestCancelled):
            await slow.create_message("Hello", max_tokens=9, request_id="mine")
        pause.over.set()
        async with asyncio.timeout(30):
            return (await slow.create_message("Hello", max_tokens=9, request_id="mine")).text

    task = asyncio.ensure_future(twice())
    await pause.reached.wait()
    await slow.cancel_request("mine")
    assert await task == "Hello"


async def test_a_task_that_is_cancelled_by_others_is_not_told_otherwise(
    slow: Engine, pause: Pause
) -> None:
    call = asyncio.ensure_future(slow.create_message("Hello", max_tokens=9, request_id="mine"))
    await pause.reached.wait()
    await slow.cancel_request("mine")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    again = asyncio.ensure_future(slow.create_message("Hello", max_tokens=9, request_id="mine"))
    await asyncio.sleep(0)
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again


async def test_an_id_belongs_to_one_running_request(slow: Engine, pause: Pause) -> None:
    call = asyncio.ensure_future(slow.create_message("Hello", max_tokens=9, request_id="mine"))
    await pause.reached.wait()
    for create in (slow.create_message, slow.create_message_stream):
        with pytest.raises(InvalidRequest, match="request_id: 'mine' is the id of a request that"):
            await create("Hello", max_tokens=9, request_id="mine")
    pause.over.set()
    await call
    stream = await slow.create_message_stream("Hello", max_tokens=9, request_id="mine")
    with pytest.raises(InvalidRequest, match="still runs"):
        await slow.create_message("Hello", max_tokens=9, request_id="mine")
    await stream.result()
    await slow.create_message("Hello", max_tokens=9, request_id="mine")


@pytest.mark.parametrize("wrong", ["", "a b", "a\n", "é", "x" * 129, 7])
async def test_an_id_that_no_header_can_carry_is_refused(wrong: Any) -> None:
    async with engine_on(StubProvider()) as engine:
        with pytest.raises(
            InvalidRequest, match=r"request_id: .* is not a valid id; give 1 to 128"
        ):
            await engine.create_message("Hello", max_tokens=9, request_id=wrong)


async def test_another_thread_cancels_a_call_and_a_stream(slow: Engine, pause: Pause) -> None:
    found: list[bool] = []

    def cancel() -> None:
        found.append(slow.cancel_request_threadsafe("mine").result(timeout=10))

    assert slow.cancel_request_threadsafe("mine").result(timeout=0) is False
    call = asyncio.ensure_future(slow.create_message("Hello", max_tokens=9, request_id="mine"))
    await pause.reached.wait()
    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(RequestCancelled):
        await call
    await asyncio.to_thread(thread.join)

    pause.over.set()
    stream = await slow.create_message_stream("Hello", max_tokens=9, request_id="mine")
    await asyncio.to_thread(cancel)
    await asyncio.to_thread(cancel)
    assert [event async for event in stream] == [Cancelled()]
    assert found == [True, True, False]


async def test_closing_the_engine_cancels_the_answers_that_are_waited_for(pause: Pause) -> None:
    async with engine_on(StubProvider([pause, [FINISHED]])) as engine:
        call = asyncio.ensure_future(engine.create_message("Hello", max_tokens=9))
        await pause.reached.wait()
    with pytest.raises(RequestCancelled):
        await call
    assert await asyncio.wrap_future(engine.cancel_request_threadsafe("mine")) is False


# Routes

FLEET = Config(
    providers={"fake": ProviderConfig(), "spare": ProviderConfig(kind="fake")},
    models={
        "default": ModelConfig(targets=("fake/echo", "spare/words-3")),
        "long": ModelConfig(targets=("spare/words-9",)),
    },
)


async def test_a_route_is_explained_and_nobody_is_called() -> None:
    async with penstock.open(FLEET) as engine:
        fake = FakeProvider()
        engine.use(fake)
        decision = await engine.route(
            "Hello", model_preferences=ModelPreferences(("WORDS-9", "spare"))
        )
        assert [str(target) for target in decision.targets] == [
            "spare/words-9",
            "spare/words-3",
            "fake/echo",
        ]
        assert decision.ranked[0].reasons == ("matches hint 1, 'WORDS-9'", "target 1 of 'long'")
        assert fake.requests == []
        with pytest.raises(ModelNotFound):
            await engine.route("Hello", model="nowhere")
        with pytest.raises(InvalidRequest, match="temperature"):
            await engine.route("Hello", temperature=9)


async def test_the_route_that_is_explained_is_the_route_that_is_taken() -> None:
    request = SamplingRequest(
        messages=(user("Hello"),), max_tokens=9, model_preferences=ModelPreferences(("spare",))
    )
    async with penstock.open(FLEET) as engine:
        decision = await engine.route(request)
        result = await engine.create_message(request)
        stream = await engine.create_message_stream(request)
        assert decision.targets[0] == Target("spare", "words-3")
        assert result.metadata.provider == "spare"
        assert stream.attempt.target == decision.targets[0]
        await stream.aclose()


# Counts


async def test_usage_counts_answers_streams_and_failures_once_each() -> None:
    async with engine_on(StubProvider()) as engine:
        await engine.create_message("Hello", max_tokens=9)
        await (await engine.create_message_stream("Hello", max_tokens=9)).result()
        with pytest.raises(ModelNotFound):
            await engine.create_message("Hello", max_tokens=9, model="nowhere")
        with pytest.raises(InvalidRequest):
            await engine.create_message_stream("", max_tokens=9)
        await engine.count_tokens("Hello")
        await engine.route("Hello")
        stats = await engine.usage_stats()
    assert [(row.provider, row.model, row.requests) for row in stats.models] == [
        (None, None, 2),
        ("stub", "m", 2),
    ]
    assert stats.models[0].failures == {"ModelNotFound": 1, "InvalidRequest": 1}
    assert stats.models[1].failures == {}
    assert stats.total.usage == Usage(6, 4)
    assert (stats.total.requests, stats.total.failed) == (4, 2)


async def test_streams_count_where_they_break_or_are_left() -> None:
    pause = Pause()
    breaking = StubProvider([[Chunk("a")], RateLimited("slow down")], name="breaking")
    silent = StubProvider([[Chunk("a")], pause], name="silent")
    async with engine_on(breaking, silent) as engine:
        with pytest.raises(RateLimited):
            await (await engine.create_message_stream("Hello", max_tokens=9)).result()
        stream = await engine.create_message_stream("Hello", max_tokens=9, model="silent")
        await stream.cancel()
        async with await engine.create_message_stream("Hello", max_tokens=9, model="silent"):
            pass
        call = asyncio.ensure_future(
            engine.create_message("Hello", max_tokens=9, model="silent", request_id="mine")
        )
        await pause.reached.wait()
        await engine.cancel_request("mine")
        with pytest.raises(RequestCancelled):
            await call
        stats = await engine.usage_stats()
    failures = {row.provider: row.failures for row in stats.models}
    assert failures == {
        "silent": {"RequestCancelled": 2},
        "breaking": {"RateLimited": 1},
        None: {"RequestCancelled": 1},
    }
    assert stats.total.requests == 4


async def test_embeddings_are_counted_too() -> None:
    vectors = Vectors(((1.0,),), "m", Usage(4))
    async with engine_on(StubProvider(vectors=lambda _: vectors)) as engine:
        await engine.embed(["red"], model="default")
        stats = await engine.usage_stats()
    assert (stats.total.requests, stats.total.usage) == (1, Usage(4))
