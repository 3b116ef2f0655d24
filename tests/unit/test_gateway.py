"""The facade: one engine, its providers, its streams, and the one-line `ask`."""

import asyncio
import gc
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

import penstock
from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.errors import (
    ConfigurationError,
    InvalidRequest,
    ModelNotFound,
    ProviderTimeout,
    RateLimited,
    RequestCancelled,
)
from penstock.contract.events import Cancelled, Chunk, Complete
from penstock.contract.exchange import SamplingRequest, Usage, Vectors
from penstock.contract.messages import user
from penstock.contract.ports import ModelInfo, Target
from penstock.engine.engine import Engine
from penstock.engine.health import ProviderHealth
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.raw import Peer, RawServer, answering, unused_port, whole
from tests.support.stub import FINISHED, Pause, StubProvider

FAKE = Config(
    providers={"fake": ProviderConfig(), "spare": ProviderConfig(kind="fake")},
    models={"default": ModelConfig(targets=("fake/echo", "spare/words-3"))},
)


def engine_on(*stubs: StubProvider) -> Engine:
    engine = Engine(
        Config(models={"default": ModelConfig(targets=tuple(f"{s.name}/m" for s in stubs))})
    )
    for stub in stubs:
        engine.use(stub)
    return engine


# Asking


async def test_messages_and_options_become_one_request() -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        result = await engine.create_message(
            [user("Hello")], max_tokens=20, temperature=0.2, stop_sequences=["END"]
        )
    assert result.text == "Hello"
    assert fake.requests == [
        SamplingRequest(
            messages=(user("Hello"),), max_tokens=20, temperature=0.2, stop_sequences=("END",)
        )
    ]


async def test_one_request_says_everything() -> None:
    request = SamplingRequest(messages=(user("Hello"),), max_tokens=20)
    async with penstock.open(FAKE) as engine:
        assert (await engine.create_message(request)).text == "Hello"
        assert (await (await engine.create_message_stream(request)).result()).text == "Hello"
        with pytest.raises(TypeError, match="options belong inside the SamplingRequest"):
            await cast(Any, engine).create_message(request, max_tokens=3)


async def test_a_text_is_enough_and_the_model_may_be_named() -> None:
    async with penstock.open(FAKE) as engine:
        assert (await engine.create_message("Hello", max_tokens=9)).text == "Hello"
        spelled = await engine.create_message("Hello", max_tokens=9, model="spare/words-2")
        assert (spelled.text, spelled.metadata.provider) == ("word1 word2", "spare")


async def test_mistakes_are_invalid_requests() -> None:
    async with penstock.open(FAKE) as engine:
        unchecked = cast(Any, engine)
        with pytest.raises(InvalidRequest, match="max_tokens: is required"):
            await unchecked.create_message("Hello")
        with pytest.raises(InvalidRequest, match="temprature: there is no such option"):
            await unchecked.create_message("Hello", max_tokens=9, temprature=1)
        with pytest.raises(InvalidRequest, match="messages: give a text"):
            await unchecked.create_message_stream(None, max_tokens=9)
        with pytest.raises(ModelNotFound, match="did you mean 'default'"):
            await engine.create_message("Hello", max_tokens=9, model="defualt")


async def test_a_failing_target_is_failed_over_and_a_silent_engine_says_how_often() -> None:
    first = FakeProvider([RateLimited("slow down")], name="first")
    async with engine_with(first, FakeProvider(name="second")) as engine:
        result = await engine.create_message("Hello", max_tokens=9)
    assert (result.metadata.provider, result.metadata.attempts) == ("second", 2)


# Streams


async def test_a_stream_gives_its_events() -> None:
    async with engine_with(FakeProvider(["One two."])) as engine:
        stream = await engine.create_message_stream("Hello", max_tokens=9)
        events = [event async for event in stream]
    assert events[:-1] == [Chunk("One "), Chunk("two.")]
    assert isinstance(events[-1], Complete)


async def test_a_stream_is_cancelled_by_its_id() -> None:
    pause = Pause()
    provider = StubProvider([[Chunk("a")], pause, [FINISHED]])
    async with engine_on(provider) as engine:
        stream = await engine.create_message_stream("Hello", max_tokens=9)
        reader = asyncio.ensure_future(_collect(stream))
        await pause.reached.wait()
        assert await engine.cancel_request(stream.request_id) is True
        assert await reader == [Chunk("a"), Cancelled()]
        assert provider.open_streams == 0
        assert await engine.cancel_request(stream.request_id) is False


async def _collect(stream: penstock.StreamHandle) -> list[penstock.StreamEvent]:
    return [event async for event in stream]


async def test_only_a_running_stream_can_be_cancelled() -> None:
    async with engine_on(StubProvider()) as engine:
        assert await engine.cancel_request("req_unknown") is False
        stream = await engine.create_message_stream("Hello", max_tokens=9)
        await stream.result()
        assert await engine.cancel_request(stream.request_id) is False


async def test_a_dropped_stream_is_forgotten_and_its_upstream_closed() -> None:
    provider = StubProvider()
    async with engine_on(provider) as engine:
        stream = await engine.create_message_stream("Hello", max_tokens=9)
        identifier = stream.request_id
        del stream
        gc.collect()
        async with asyncio.timeout(30):
            await provider.idle.wait()
        assert await engine.cancel_request(identifier) is False


async def test_a_thousand_finished_streams_leave_nothing_behind() -> None:
    async with engine_on(StubProvider()) as engine:
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(1000):
            await (await engine.create_message_stream("Hello", max_tokens=9)).result()
        await asyncio.sleep(0)
        gc.collect()
        grown = len(gc.get_objects()) - before
        # The stub keeps each request, a handful of objects; a stream with its parts has dozens.
    assert grown < 10_000


async def test_closing_the_engine_stops_its_streams_and_closes_its_providers() -> None:
    pause = Pause()
    provider = StubProvider([[Chunk("a")], pause, [FINISHED]])
    async with engine_on(provider) as engine:
        waiting = await engine.create_message_stream("Hello", max_tokens=9)
        idle = await engine.create_message_stream("Hello", max_tokens=9)
        reader = asyncio.ensure_future(_collect(waiting))
        await pause.reached.wait()
    assert await reader == [Chunk("a"), Cancelled()]
    with pytest.raises(RequestCancelled):
        await idle.result()
    assert provider.closed
    assert provider.open_streams == 0
    await engine.aclose()


# Over the wire, end to end


async def test_timeouts_of_the_configuration_reach_the_transport() -> None:
    async def stay_silent(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with RawServer(stay_silent) as server:
        config = Config(
            providers={"local": ProviderConfig(kind="vllm", url=server.url)},
            models={"m": ModelConfig(targets=("local/x",))},
            pool=PoolConfig(request_timeout_s=0.1, slowest_tokens_per_s=100),
        )
        async with penstock.open(config) as engine:
            # The time for headers, and for ten tokens beside.
            with pytest.raises(ProviderTimeout, match=r"no response within 0\.2 s") as caught:
                await engine.create_message("Hello", max_tokens=10)
    assert (caught.value.provider, caught.value.model) == ("local", "x")
    assert caught.value.request_id is not None


async def test_a_key_with_a_line_end_is_sent_without_it() -> None:
    async with RawServer(answering(whole(b'{"data": []}'))) as server:
        token = SecretStr(" sk-1\n")
        local = ProviderConfig(kind="vllm", url=server.url, auth_token=token)
        async with penstock.open(Config(providers={"local": local})) as engine:
            await engine.provider("local").models()
    assert server.requests[0].headers["authorization"] == "Bearer sk-1"


# Embedding


async def test_texts_become_vectors() -> None:
    async with penstock.open(FAKE) as engine:
        result = await engine.embed(["red", "green"], model="fake/echo", dimensions=8)
    assert [len(vector) for vector in result.vectors] == [8, 8]
    assert (result.metadata.embedding_count, result.metadata.embedding_dims) == (2, 8)
    assert result.metadata.as_dict()["input_tokens"] == "2"


async def test_a_single_text_is_not_split_into_letters() -> None:
    async with penstock.open(FAKE) as engine:
        with pytest.raises(InvalidRequest, match="give a list of texts"):
            await engine.embed("red", model="fake/echo")


async def test_an_embedding_goes_to_the_first_target_only() -> None:
    def refuse(_: object) -> Vectors:
        raise RateLimited("slow down")

    first = StubProvider(name="a", vectors=refuse)
    second = StubProvider(name="b", vectors=lambda _: Vectors(((1.0,),), "m", Usage()))
    async with engine_on(first, second) as engine:
        with pytest.raises(RateLimited) as caught:
            await engine.embed(["red"], model="default")
    assert caught.value.request_id is not None


# Providers


async def test_a_provider_is_built_once_and_only_when_it_is_needed() -> None:
    config = Config(providers={"broken": ProviderConfig(kind="nonsense"), "fake": ProviderConfig()})
    async with penstock.open(config) as engine:
        assert engine.provider("fake") is engine.provider("fake")
        with pytest.raises(ConfigurationError, match="there is no provider 'nonsense'"):
            engine.provider("broken")


async def test_targets_are_shown_without_a_call() -> None:
    async with penstock.open(FAKE) as engine:
        assert list(engine.targets()) == [Target("fake", "echo"), Target("spare", "words-3")]
        assert list(engine.targets("groq/llama")) == [Target("groq", "llama")]
        with pytest.raises(ModelNotFound):
            engine.targets("nowhere")


async def test_the_health_of_all_providers_is_asked_at_once() -> None:
    both = asyncio.Barrier(2)

    class Waiting(StubProvider):
        async def models(self) -> list[ModelInfo]:
            await both.wait()
            return [ModelInfo("m")]

    names = {"a": ProviderConfig(kind="fake"), "b": ProviderConfig(kind="fake")}
    async with penstock.open(Config(providers=names)) as engine:
        engine.use(Waiting(name="a"))
        engine.use(Waiting(name="b"))
        async with asyncio.timeout(30):
            health = await engine.provider_health()
    assert [(h.provider, h.status, h.models) for h in health] == [
        ("a", "up", (ModelInfo("m"),)),
        ("b", "up", (ModelInfo("m"),)),
    ]


async def test_a_provider_that_fails_its_check_is_down_with_the_reason() -> None:
    port = await unused_port()
    config = Config(
        providers={
            "gone": ProviderConfig(kind="vllm", url=f"http://127.0.0.1:{port}/v1"),
            "keyless": ProviderConfig(kind="groq"),
        }
    )
    async with penstock.open(config) as engine:
        engine.use(StubProvider(name="mute", models=RateLimited("")))
        gone, keyless, mute = await engine.provider_health(["gone", "keyless", "mute"])
    assert (gone.status, keyless.status, mute.status) == ("down", "down", "down")
    assert "cannot connect" in (gone.error or "")
    assert "GROQ_API_KEY" in (keyless.error or "")
    assert mute == ProviderHealth("mute", "down", mute.latency_ms, (), "", mute.checked_at, "check")


# Opening, and asking in one line


async def test_an_engine_is_opened_from_a_file_a_path_or_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n')
    for given in (file, str(file)):
        async with penstock.open(given) as engine:
            assert (await engine.create_message("Hello", max_tokens=9)).text == "Hello"
    monkeypatch.chdir(tmp_path)
    assert penstock.open().config.default_model == "default"
    with pytest.raises(ConfigurationError, match="No such file"):
        penstock.open(tmp_path / "nowhere.toml")


@pytest.fixture
def echoing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("echoing")
def test_one_line_is_enough_again_and_again() -> None:
    assert penstock.ask("Hello") == "Hello"
    assert penstock.ask("Hello again", max_tokens=1) == "Hello "
    assert penstock.ask("x", model="fake/words-2", system_prompt="s", temperature=0.1) == (
        "word1 word2"
    )


@pytest.mark.usefixtures("echoing")
async def test_one_line_is_enough_inside_a_running_loop() -> None:
    assert penstock.ask("Hello") == "Hello"
    assert penstock.ask("Hello") == "Hello"


@pytest.mark.usefixtures("echoing")
def test_one_line_raises_the_same_errors() -> None:
    with pytest.raises(InvalidRequest, match="is blank"):
        penstock.ask(" ")
    with pytest.raises(ModelNotFound):
        penstock.ask("Hello", model="nowhere")


# The shipped test helpers


async def test_the_shipped_fake_fits_the_example_in_its_docstring() -> None:
    fake = FakeProvider(["Hello!", RateLimited("slow down"), FakeReply(text="Bye")])
    async with engine_with(fake) as engine:
        assert (await engine.create_message("Hi", max_tokens=9)).text == "Hello!"
        with pytest.raises(RateLimited):
            await engine.create_message("Hi", max_tokens=9)
    assert fake.requests[0].messages[0].text == "Hi"


async def test_messages_may_be_written_as_in_other_libraries() -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        for messages in (
            [{"role": "user", "content": "hi there"}],
            ["hi there"],
            [{"role": "user", "content": [{"type": "text", "text": "hi there"}]}],
        ):
            assert (await engine.create_message(messages, max_tokens=9)).text == "hi there"


def test_a_gateway_does_not_let_its_callers_name_files(tmp_path: Path) -> None:
    config = Config(
        providers={"embedded": ProviderConfig()},
        models={"own": ModelConfig(targets=("embedded//models/mine.gguf",))},
    )
    served = Engine(config, model_files=False)
    assert served.targets("own")[0].model == "/models/mine.gguf"
    assert served.targets("embedded//models/mine.gguf")[0].model == "/models/mine.gguf"
    with pytest.raises(ModelNotFound, match="not among the configured targets"):
        served.targets(f"embedded/{tmp_path}/other.gguf")
    assert Engine(config).targets(f"embedded/{tmp_path}/other.gguf")


async def test_a_target_is_marked_down_and_up_by_hand() -> None:
    first, second = FakeProvider(name="first"), FakeProvider(name="second")
    async with engine_with(first, second) as engine:
        assert engine.mark_down("first/echo", "maintenance") == ["first/echo"]
        result = await engine.create_message("Hello", max_tokens=9)
        assert (result.metadata.provider, result.metadata.attempts) == ("second", 1)
        (down, _) = engine.target_health()
        assert (down.target, down.state) == ("first/echo", "open")
        assert down.reason == "marked down: maintenance"
        assert engine.mark_up("first/echo") == ["first/echo"]
        result = await engine.create_message("Hello", max_tokens=9)
        assert result.metadata.provider == "first"
        with pytest.raises(ConfigurationError, match="write provider/model"):
            engine.mark_down("first/", "typo")
