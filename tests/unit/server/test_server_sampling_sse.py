"""The sampling door's event streams: chunks, and then exactly one end."""

import asyncio
import json

import pytest

from penstock.config.settings import Config
from penstock.contract.errors import StreamInterrupted
from penstock.contract.events import ReasoningDelta
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Reasoning, ToolUse
from penstock.engine.engine import Engine
from penstock.server.doors.sampling.encode import EventFrames, StreamEncoder
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Fault, Pause, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import (
    CREATE,
    ENDS,
    params,
    read_sse,
    sample,
    wire_engine,
)

PROMPT_S = 20.0


async def test_a_stream_from_its_first_chunk_to_its_end(gateway: Gateway) -> None:
    response = await sample(gateway, "one two three", stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = read_sse(response.text)
    assert events[:-1] == [
        ("chunk", {"seq": number, "content": {"type": "text", "text": word}})
        for number, word in enumerate(["one ", "two ", "three"])
    ]
    name, result = events[-1]
    assert name == "complete"
    assert result["content"] == {"type": "text", "text": "one two three"}
    assert result["usage"]["totalTokens"] == 6
    assert result["_metadata"]["request_id"] == response.headers["x-request-id"]


async def test_thinking_and_tools() -> None:
    use = ToolUse("a", "f", {"x": 1})
    script = FakeProvider([FakeReply(reasoning="hm", text="Well", tool_uses=(use,))])
    async with running_gateway(engine_with(script)) as gateway:
        events = read_sse((await sample(gateway, stream=True)).text)
    chunks = [data["content"] for name, data in events if name == "chunk"]
    assert [chunk["type"] for chunk in chunks] == ["reasoning", "text", *["tool_use_delta"] * 2]
    assert (chunks[2]["id"], chunks[2]["name"]) == ("a", "f")
    assert json.loads("".join(chunk["arguments"] for chunk in chunks[2:])) == {"x": 1}
    assert [block["type"] for block in events[-1][1]["content"]] == ["text", "tool_use"]


def test_a_signature_alone_is_no_chunk() -> None:
    encoder = StreamEncoder(EventFrames("req_1"))
    assert encoder.encode([ReasoningDelta("", Reasoning("", "signature"))]) == []
    (first,) = encoder.encode([ReasoningDelta("hm")])
    assert b'"seq":0' in first


async def test_a_stream_that_breaks_ends_with_an_error() -> None:
    broken = FakeReply(text="half an", error=StreamInterrupted("it broke off"))
    async with running_gateway(engine_with(FakeProvider([broken]))) as gateway:
        events = read_sse((await sample(gateway, stream=True)).text)
    assert [name for name, _ in events] == ["chunk", "chunk", "error"]
    assert events[-1][1]["error"]["data"]["reason"] == "upstream_stream_interrupted"


async def test_an_accident_ends_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    class Exploding(FakeProvider):
        async def stream(self, model: str, request: SamplingRequest):
            async for batch in super().stream(model, request):
                yield batch
                raise RuntimeError("hunter2")

    async with running_gateway(engine_with(Exploding())) as gateway:
        response = await sample(gateway, "one two", stream=True)
    assert read_sse(response.text)[-1][1]["error"]["code"] == -32603
    assert "hunter2" not in response.text
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_faults_of_a_real_provider_leave_one_end(after: int) -> None:
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("a", "b", "c"), fault=Fault("cut", after=after)))
        async with running_gateway(wire_engine(upstream.url)) as gateway:
            response = await sample(gateway, stream=True)
    if after == 0:
        assert response.json()["error"]["code"] == -32000
        return
    names = [name for name, _ in read_sse(response.text)]
    assert names == ["chunk"] * after + ["error"]


async def test_a_cancelled_stream_ends_with_that() -> None:
    pause = Pause(after=1)
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("a", "b"), pause=pause))
        async with (
            running_gateway(wire_engine(upstream.url)) as gateway,
            gateway.client.stream("POST", CREATE, json=params(stream=True)) as response,
        ):
            await pause.reached.wait()
            request_id = response.headers["x-request-id"]
            stopped = await gateway.client.delete(f"/v1/requests/{request_id}")
            assert stopped.status_code == 204
            await asyncio.wait_for(upstream.gone(), PROMPT_S)
            events = read_sse("".join([part async for part in response.aiter_text()]))
    assert [name for name, _ in events] == ["chunk", "cancelled"]
    assert events[-1][1] == {"requestId": request_id}


async def test_a_client_that_goes_stops_the_upstream_call() -> None:
    pause = Pause(after=1)
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("a", "b"), pause=pause))
        async with running_gateway(wire_engine(upstream.url)) as gateway:
            async with gateway.client.stream("POST", CREATE, json=params(stream=True)) as response:
                await anext(response.aiter_lines())
                await pause.reached.wait()
            await asyncio.wait_for(upstream.gone(), PROMPT_S)


async def test_a_shutdown_is_the_end_of_a_stream_that_has_no_time_left() -> None:
    endless = FakeProvider([FakeReply(text="word " * 1000, delay_s=0.1)])
    async with running_gateway(engine_with(endless)) as gateway:
        async with gateway.client.stream("POST", CREATE, json=params(stream=True)) as response:
            gateway.server.stop()
            gateway.server.stop()
            events = read_sse("".join([part async for part in response.aiter_text()]))
        await asyncio.wait_for(gateway.task, 30)
    assert events[-1][0] == "error"
    assert events[-1][1]["error"]["data"]["reason"] == "shutting_down"
    assert sum(name in ENDS for name, _ in events) == 1


async def test_the_embedded_model_streams() -> None:
    async with running_gateway(Engine(Config.embedded())) as gateway:
        events = read_sse((await sample(gateway, "Say hello.", maxTokens=6, stream=True)).text)
    assert events[-1][0] == "complete"
    said = "".join(data["content"]["text"] for name, data in events if name == "chunk")
    assert said == events[-1][1]["content"]["text"]
