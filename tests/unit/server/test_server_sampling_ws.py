"""The sampling door's WebSocket: many requests on one connection, each with one end."""

import asyncio
import json
import re
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from penstock.config.settings import Config
from penstock.contract.errors import RateLimited, SamplingRejected, StreamInterrupted
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Image, ToolUse
from penstock.engine.engine import Engine
from penstock.telemetry.exporters.otel import OpenTelemetry
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.wire.gemini import Gemini
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Fault, Pause, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import Gateway, running_gateway, until
from tests.unit.server.sampling_support import ENDS, params, socket_of, wire_engine

PROMPT_S = 20.0
TOOL = {"name": "f", "inputSchema": {"type": "object"}}


async def test_a_stream_and_a_whole_answer_side_by_side(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        assert socket.connection.response is not None
        assert socket.connection.response.headers["x-request-id"].startswith("req_")
        await socket.ask("s", "one two three")
        await socket.ask(7, "four", stream=False)
        streamed, whole = await socket.end("s"), await socket.end(7)
    assert [each["type"] for each in socket.received["s"]] == ["chunk"] * 3 + ["complete"]
    assert socket.text("s") == "one two three"
    assert streamed["result"]["content"]["text"] == "one two three"
    assert streamed["requestId"] == streamed["result"]["_metadata"]["request_id"]
    assert socket.received[7] == [whole]
    assert whole["result"]["usage"] == {
        "promptTokens": 1,
        "completionTokens": 1,
        "totalTokens": 2,
    }


async def test_all_params_reach_the_provider(gateway: Gateway, fake: FakeProvider) -> None:
    image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    async with socket_of(gateway) as socket:
        await socket.ask(
            1,
            {"role": "user", "content": [image, {"type": "text", "text": "See?"}]},
            maxTokens=5,
            systemPrompt="Be brief.",
            temperature=1,
            stopSequences=["END"],
            modelPreferences={"hints": [{"name": "echo"}]},
            includeContext="none",
            metadata={"a": 1},
            tools=[TOOL],
            toolChoice={"mode": "required"},
            model="default",
            timeout=9,
        )
        end = await socket.end(1)
    assert end["result"]["content"]["name"] == "f"
    (asked,) = fake.requests
    assert isinstance(asked.messages[0].content[0], Image)
    assert (asked.max_tokens, asked.system_prompt, asked.temperature) == (5, "Be brief.", 1)
    assert (asked.stop_sequences, asked.metadata, asked.timeout) == (("END",), {"a": 1}, 9)
    assert asked.model_preferences is not None
    assert asked.model_preferences.hints == ("echo",)
    assert asked.tool_choice is not None
    assert asked.tool_choice.mode == "required"


async def test_stream_may_stand_in_the_params(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        await socket.send(type="createMessage", id=1, params=params("a b", stream=True))
        await socket.send(
            type="createMessage", id=2, params=params("a b", stream=True), stream=False
        )
        await socket.end(1)
        await socket.end(2)
    assert len(socket.received[1]) == 3
    assert len(socket.received[2]) == 1


async def test_tools_in_a_stream() -> None:
    reply = FakeReply(tool_uses=(ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {})))
    async with (
        running_gateway(engine_with(FakeProvider([reply]))) as gateway,
        socket_of(gateway) as socket,
    ):
        await socket.ask(1, tools=[TOOL])
        end = await socket.end(1)
    assert [block["id"] for block in end["result"]["content"]] == ["a", "b"]
    deltas = [each["content"] for each in socket.received[1][:-1]]
    assert {delta["type"] for delta in deltas} == {"tool_use_delta"}
    assert [delta["index"] for delta in deltas] == [0, 0, 1, 1]


async def test_a_hundred_streams_on_one_socket(gateway: Gateway) -> None:
    async with socket_of(gateway, max_queue=None) as socket:
        for number in range(100):
            words = " ".join(f"{number}:{word}" for word in range(50))
            await socket.ask(number, words)
        for number in range(100):
            end = await socket.end(number)
            assert end["type"] == "complete"
            words = " ".join(f"{number}:{word}" for word in range(50))
            assert socket.text(number) == words == end["result"]["content"]["text"]
    assert set(socket.received) == set(range(100))
    assert all(len(found) == 51 for found in socket.received.values())


async def test_requests_do_not_wait_for_one_another() -> None:
    pause = Pause(after=1)
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("slow ", "one"), pause=pause), Scenario(text=("quick",)))
        async with (
            running_gateway(wire_engine(upstream.url)) as gateway,
            socket_of(gateway) as socket,
        ):
            await socket.ask("slow")
            await pause.reached.wait()
            await socket.ask("quick")
            assert (await socket.end("quick"))["type"] == "complete"
            assert socket.text("slow") == "slow "
            pause.resume.set()
            assert (await socket.end("slow"))["type"] == "complete"
    assert socket.text("slow") == "slow one"


async def test_a_provider_on_another_wire() -> None:
    async with WireServer(Gemini()) as upstream:
        upstream.play(Scenario(text=("Hello ", "there")))
        engine = wire_engine(upstream.url, "gemini")
        async with running_gateway(engine) as gateway, socket_of(gateway) as socket:
            await socket.ask(1)
            end = await socket.end(1)
    assert end["type"] == "complete", end
    assert socket.text(1) == "Hello there"


async def test_the_embedded_model() -> None:
    async with running_gateway(Engine(Config.embedded())) as gateway, socket_of(gateway) as socket:
        await socket.ask(1, "Say hello.", maxTokens=4)
        end = await socket.end(1)
    assert end["result"]["model"] == "smollm2"
    assert socket.text(1) == end["result"]["content"]["text"]


async def test_errors_carry_the_id_of_their_request() -> None:
    script: list[Any] = [
        SamplingRejected("no"),
        RateLimited("slow down", retry_after=2),
        FakeReply(text="half an", error=StreamInterrupted("it broke off")),
    ]
    async with (
        running_gateway(engine_with(FakeProvider(script))) as gateway,
        socket_of(gateway) as socket,
    ):
        for number in range(3):
            await socket.ask(number)
            await socket.end(number)
        await socket.ask("params", temperature=9)
        await socket.ask("model", model="nobody/x")
        await socket.send(type="createMessage", id="none")
        for name in ("params", "model", "none"):
            await socket.end(name)
    codes = {name: found[-1]["error"]["code"] for name, found in socket.received.items()}
    assert codes == {0: -1, 1: -32000, 2: -32000, "params": -32602, "model": -32602, "none": -32602}
    assert socket.received[1][0]["error"]["data"]["retryAfter"] == 2
    assert [each["type"] for each in socket.received[2]] == ["chunk", "chunk", "error"]
    (problem,) = socket.received["params"][0]["error"]["data"]["problems"]
    assert problem["path"] == "temperature"


@pytest.mark.parametrize("after", [0, 2])
async def test_a_provider_that_breaks_off(after: int) -> None:
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("a", "b", "c"), fault=Fault("reset", after=after)))
        async with (
            running_gateway(wire_engine(upstream.url)) as gateway,
            socket_of(gateway) as socket,
        ):
            await socket.ask(1)
            assert (await socket.end(1))["type"] == "error"
    assert len(socket.received[1]) == after + 1


async def test_an_accident_is_told_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def explode(_: object) -> str:
        raise RuntimeError("hunter2")

    async with (
        running_gateway(engine_with(FakeProvider([explode]))) as gateway,
        socket_of(gateway) as socket,
    ):
        await socket.ask(1)
        end = await socket.end(1)
        await socket.ask(1, "still here")
        assert (await socket.end(1))["type"] == "error"
        assert (await socket.next())["type"] == "chunk"
    assert end["error"]["code"] == -32603
    assert "hunter2" not in json.dumps(end)
    assert end["requestId"] in caplog.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", [0, 1])
async def test_a_message_cancels_its_request_and_no_other(stream: bool, after: int) -> None:
    pause, other = Pause(after=after), Pause(after=1)
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(
            Scenario(text=("go ", "on"), pause=other), Scenario(text=("a", "b"), pause=pause)
        )
        async with (
            running_gateway(wire_engine(upstream.url)) as gateway,
            socket_of(gateway) as socket,
        ):
            await socket.ask("other")
            await other.reached.wait()
            await socket.ask("this", stream=stream)
            await pause.reached.wait()
            await socket.send(type="cancel", id="this")
            assert (await socket.end("this"))["type"] == "cancelled"
            await asyncio.wait_for(upstream.exchanges[1].gone.wait(), PROMPT_S)
            other.resume.set()
            assert (await socket.end("other"))["type"] == "complete"


async def test_a_cancel_right_behind_its_request(gateway: Gateway, fake: FakeProvider) -> None:
    request = {"type": "createMessage", "id": 1, "params": params("a b c"), "stream": True}
    async with socket_of(gateway) as socket:
        # Both in one packet, so that the server reads them at once.
        for message in (request, {"type": "cancel", "id": 1}):
            socket.connection.protocol.send_text(json.dumps(message).encode())
        data = b"".join(socket.connection.protocol.data_to_send())
        socket.connection.transport.write(data)
        end = await socket.end(1)
        await socket.send(type="ping")
        assert (await socket.next())["type"] == "pong"
    assert end["type"] == "cancelled"
    assert fake.requests == []


async def test_cancelling_what_does_not_run_is_no_mistake(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        for _ in range(50):
            await socket.send(type="cancel", id="nobody")
        await socket.ask(1, "one")
        await socket.end(1)
        await socket.send(type="cancel", id=1)
        await socket.send(type="ping", id="p")
        assert await socket.next() == {"type": "pong", "id": "p"}


async def test_an_id_may_be_used_again_once_its_request_has_ended(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        for word in ("one", "two", "three"):
            await socket.ask(1, word, stream=False)
            assert (await socket.next())["result"]["content"]["text"] == word


async def test_an_id_that_still_runs_is_nobody_elses() -> None:
    pause = Pause(after=1)
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("a", "b"), pause=pause))
        async with (
            running_gateway(wire_engine(upstream.url)) as gateway,
            socket_of(gateway) as socket,
        ):
            await socket.ask(1)
            await pause.reached.wait()
            await socket.ask(1)
            while not socket.received[None]:
                await socket.next()
            pause.resume.set()
            assert (await socket.end(1))["type"] == "complete"
    assert socket.received[None][0]["error"]["code"] == -32600
    assert socket.text(1) == "ab"


async def test_a_request_id_of_the_callers_own(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        await socket.send(type="createMessage", id=1, params=params(), requestId="mine")
        assert (await socket.end(1))["result"]["_metadata"]["request_id"] == "mine"
        for number, wrong in enumerate(("two words", 5, ""), 10):
            await socket.send(type="createMessage", id=number, params=params(), requestId=wrong)
            end = await socket.end(number)
            assert end["error"]["data"]["problems"][0]["path"] == "requestId"
            assert re.fullmatch(r"req_\w+", end["requestId"])


async def test_the_trace_of_the_handshake_is_that_of_its_requests() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("a",)))
        async with (
            running_gateway(wire_engine(upstream.url)) as gateway,
            socket_of(gateway, additional_headers={"traceparent": trace}) as socket,
        ):
            gateway.engine.hooks.subscribe(OpenTelemetry(tracer_provider=TracerProvider()))
            await socket.ask(1)
            await socket.end(1)
    assert trace.split("-")[1] in dict(upstream.seen[0].headers)["traceparent"]


async def test_a_server_that_stops_lets_requests_finish() -> None:
    fake = FakeProvider([FakeReply(text="one two three four five", delay_s=0.15)])
    async with (
        running_gateway(engine_with(fake)) as gateway,
        socket_of(gateway) as idle,
        socket_of(gateway) as socket,
    ):
        await socket.ask(1)
        await until(lambda: fake.requests)
        gateway.server.stop()
        await idle.connection.wait_closed()
        await socket.ask(2)
        assert (await socket.end(2))["error"]["data"]["reason"] == "shutting_down"
        assert (await socket.end(1))["type"] == "complete"
        await asyncio.wait_for(gateway.task, 30)
    assert socket.text(1) == "one two three four five"
    assert (idle.connection.close_code, socket.connection.close_code) == (1012, 1012)


async def test_a_server_without_time_tells_every_request() -> None:
    endless = FakeProvider([FakeReply(text="word " * 1000, delay_s=0.1)] * 3)
    async with running_gateway(engine_with(endless)) as gateway, socket_of(gateway) as socket:
        for number in range(3):
            await socket.ask(number, stream=number != 1)
        await until(lambda: len(endless.requests) == 3)
        gateway.server.stop()
        gateway.server.stop()
        ends = [await socket.end(number) for number in range(3)]
        await asyncio.wait_for(gateway.task, 30)
        await socket.connection.wait_closed()
    assert {end["error"]["data"]["reason"] for end in ends} == {"shutting_down"}
    assert socket.connection.close_code == 1012
    assert all(sum(each["type"] in ENDS for each in got) == 1 for got in socket.received.values())


async def test_a_stream_is_held_back_and_not_lost_behind_a_slow_one() -> None:
    """Chunks of both leave in the order in which their providers made them."""

    class Batches(FakeProvider):
        async def stream(self, model: str, request: SamplingRequest):
            batch: list[Any] = []
            async for events in super().stream(model, request):
                batch += events
                if len(batch) == 7:
                    yield batch
                    batch = []
            yield batch

    async with running_gateway(engine_with(Batches())) as gateway, socket_of(gateway) as socket:
        for number in range(4):
            await socket.ask(number, f"{number} " * 40)
        for number in range(4):
            await socket.end(number)
            assert socket.text(number) == f"{number} " * 40
