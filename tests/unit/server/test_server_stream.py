"""Streams over HTTP: what they hold, and that nothing runs on for a client that has gone."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.contract.errors import StreamInterrupted
from penstock.contract.events import Chunk
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import ToolUse
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import (
    CHAT,
    Gateway,
    chat_body,
    deltas,
    read_events,
    running_gateway,
    settled,
    until,
)

PROMPT_S = 20.0
"""How soon an upstream call must end after its client has gone; by itself it never would."""


def text_of(events: list[object]) -> str:
    return "".join(delta.get("content") or "" for delta in deltas(events))


async def test_a_stream_from_its_role_to_done(gateway: Gateway) -> None:
    response = await gateway.chat("one two three", stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert "content-length" not in response.headers
    events = read_events(response.text)
    request_id = response.headers["x-request-id"]
    assert events[0]["id"] == "chatcmpl-" + request_id.removeprefix("req_")
    assert [delta.get("content") for delta in deltas(events)] == ["", "one ", "two ", "three", None]
    assert deltas(events)[0]["role"] == "assistant"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1] == "[DONE]"


async def test_usage_when_it_is_asked_for(gateway: Gateway) -> None:
    events = await gateway.stream("one two", stream_options={"include_usage": True})
    assert events[-2]["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}


async def test_tools_and_thinking() -> None:
    uses = (ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {}))
    script = FakeProvider([FakeReply(reasoning="hm", tool_uses=uses)])
    async with running_gateway(engine_with(script)) as gateway:
        events = await gateway.stream()
    found = deltas(events)
    assert found[1] == {"reasoning_content": "hm"}
    calls = [delta["tool_calls"][0] for delta in found if "tool_calls" in delta]
    assert [(call["index"], call.get("id")) for call in calls] == [
        (0, "a"),
        (0, None),
        (1, "b"),
        (1, None),
    ]
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_stream_that_breaks_says_so_and_is_never_done() -> None:
    broken = FakeReply(text="half an", error=StreamInterrupted("it broke off"))
    async with running_gateway(engine_with(FakeProvider([broken]))) as gateway:
        events = await gateway.stream()
    assert text_of(events[:-1]) == "half an"
    assert events[-1] == {
        "error": {
            "message": "it broke off",
            "type": "upstream_error",
            "param": None,
            "code": "upstream_stream_interrupted",
        }
    }


async def test_an_accident_in_mid_stream_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    class Exploding(FakeProvider):
        async def stream(self, model: str, request: SamplingRequest):
            async for batch in super().stream(model, request):
                yield batch
                raise RuntimeError("hunter2")

    async with running_gateway(engine_with(Exploding())) as gateway:
        events = await gateway.stream("one two")
    assert events[-1]["error"]["code"] == "internal_error"
    assert "hunter2" not in json.dumps(events)
    assert any(record.exc_info for record in caplog.records)


async def test_a_cancelled_stream_says_so() -> None:
    slow = FakeProvider([FakeReply(text="word " * 50, delay_s=0.05)])
    engine = engine_with(slow)
    async with (
        running_gateway(engine) as gateway,
        gateway.client.stream("POST", CHAT, json=chat_body(stream=True)) as response,
    ):
        lines = response.aiter_lines()
        await anext(lines)
        assert await engine.cancel_request(response.headers["x-request-id"])
        rest = [line async for line in lines if line]
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "request_cancelled"


async def test_events_leave_when_they_arrive() -> None:
    read = asyncio.Semaphore(0)

    class Waiting(FakeProvider):
        """Says each word only when the one before it has been read."""

        async def stream(self, model: str, request: SamplingRequest):
            async for batch in super().stream(model, request):
                yield batch
                if isinstance(batch[0], Chunk):
                    await read.acquire()

    async with (
        running_gateway(engine_with(Waiting([FakeReply(text="one two three")]))) as gateway,
        gateway.client.stream("POST", CHAT, json=chat_body(stream=True)) as response,
    ):
        async for line in response.aiter_lines():
            if any(word in line for word in ("one", "two", "three")):
                read.release()


async def test_many_streams_at_once(gateway: Gateway) -> None:
    async def one(index: int) -> str:
        return text_of(await gateway.stream(f"stream {index} " + "word " * 50, max_tokens=500))

    texts = await asyncio.gather(*(one(index) for index in range(40)))
    assert texts == [f"stream {index} " + "word " * 50 for index in range(40)]
    await until(lambda: gateway.server.running_requests == 0)


@dataclass
class Upstream:
    """A provider that begins to answer, perhaps, and then waits for its caller to go."""

    port: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.asynccontextmanager
async def upstream(first: bytes) -> AsyncGenerator[Upstream]:
    seen = Upstream()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        seen.arrived.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        seen.left.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        seen.port = server.sockets[0].getsockname()[1]
        yield seen


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
FIRST = HEAD + b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'


def wire_engine(port: int) -> Engine:
    provider = ProviderConfig(kind="openai-chat", url=f"http://127.0.0.1:{port}/v1")
    return Engine(
        Config(providers={"up": provider}, models={"default": ModelConfig(targets=("up/model",))})
    )


@pytest.mark.parametrize(
    ("first", "stream"),
    [(FIRST, True), (HEAD, True), (b"", True), (b"", False)],
    ids=["mid-stream", "before the first token", "before the headers", "not a stream"],
)
@pytest.mark.parametrize("linger", [0.0, 0.3])
async def test_a_client_that_goes_stops_the_upstream_call(
    first: bytes, stream: bool, linger: float
) -> None:
    async with upstream(first) as seen, running_gateway(wire_engine(seen.port)) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        body = json.dumps(chat_body(stream=stream)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await asyncio.wait_for(seen.arrived.wait(), 30)
        if first == FIRST:
            assert b'"Hi"' in await reader.readuntil(b'"Hi"')
        await asyncio.sleep(linger)
        assert not seen.left.is_set()
        writer.close()
        await asyncio.wait_for(seen.left.wait(), PROMPT_S)
        await until(lambda: gateway.server.running_requests == 0)
        assert not [task for task in asyncio.all_tasks() if "disconnect" in repr(task)]


async def test_a_client_that_does_not_read_holds_the_model_back() -> None:
    said = 0

    class Talkative(FakeProvider):
        async def stream(self, model: str, request: SamplingRequest):
            nonlocal said
            async for batch in super().stream(model, request):
                said += 1
                yield batch

    words = FakeReply(text=("x" * 10_000 + " ") * 5000)
    async with running_gateway(engine_with(Talkative([words]))) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port, limit=2**16)
        body = json.dumps(chat_body(stream=True, max_tokens=10_000)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readexactly(1000)
        await settled(lambda: said)
        assert 0 < said < 2500
        writer.close()


async def test_a_shutdown_lets_streams_finish_and_takes_no_more() -> None:
    slow = FakeProvider([FakeReply(text="one two three four five", delay_s=0.15)])
    async with running_gateway(engine_with(slow)) as gateway:
        stream = asyncio.create_task(gateway.stream())
        await until(lambda: slow.requests)
        gateway.server.stop()
        events = await asyncio.wait_for(stream, 30)
        assert text_of(events) == "one two three four five"
        assert events[-1] == "[DONE]"
        await asyncio.wait_for(gateway.task, 30)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(gateway.host, gateway.port)


class Endless(FakeProvider):
    """Counts the words that have been taken of it."""

    said = 0

    async def stream(self, model: str, request: SamplingRequest):
        async for batch in super().stream(model, request):
            yield batch
            self.said += 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_second_signal_cuts_and_every_client_learns_of_it(stream: bool) -> None:
    endless = Endless([FakeReply(text="word " * 10_000, delay_s=0.01)])
    async with running_gateway(engine_with(endless)) as gateway:
        answer = asyncio.create_task(gateway.chat(stream=stream, max_tokens=2000))
        # Not at once, for a stream is to have begun.
        await until(lambda: endless.said)
        gateway.server.stop()
        gateway.server.stop()
        response = await asyncio.wait_for(answer, 30)
        await asyncio.wait_for(gateway.task, 30)
    if stream:
        assert read_events(response.text)[-1]["error"]["code"] == "shutting_down"
    else:
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "shutting_down"
        assert response.headers["x-should-retry"] == "true"


async def test_a_stream_that_outlives_the_grace_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.http.server.GRACE_S", 1)
    endless = Endless([FakeReply(text="word " * 10_000, delay_s=0.01)])
    async with running_gateway(engine_with(endless)) as gateway:
        answer = asyncio.create_task(gateway.chat(stream=True, max_tokens=2000))
        await until(lambda: endless.said)
        gateway.server.stop()
        response = await asyncio.wait_for(answer, 30)
        await asyncio.wait_for(gateway.task, 30)
    assert read_events(response.text)[-1]["error"]["code"] == "shutting_down"
