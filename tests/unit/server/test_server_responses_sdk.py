"""The official `openai` package, unchanged, against the Responses door."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI

from penstock.config.settings import Config
from penstock.contract.errors import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    PenstockError,
    ProviderTimeout,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Image, Reasoning, Text, ToolUse, assistant
from penstock.contract.ports import ProviderStream
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway, until
from tests.unit.server.responses_support import RESPONSES, read_events

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Recipe(pydantic.BaseModel):
    title: str
    minutes: int
    steps: list[str]


@pytest.fixture
async def client(gateway: Gateway) -> AsyncGenerator[AsyncOpenAI]:
    """A client of the gateway in front of the fake."""
    async with sdk(gateway) as client:
        yield client


def sdk(gateway: Gateway) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)


async def test_a_text(client: AsyncOpenAI, fake: FakeProvider) -> None:
    raw = await client.responses.with_raw_response.create(
        model="default",
        instructions="Be brief.",
        input="Say it",
        max_output_tokens=50,
        temperature=0.5,
        safety_identifier="u1",
        metadata={"team": "a"},
        store=False,
    )
    response = raw.parse()
    assert response.output_text == "Say it"
    assert (response.status, response.error, response.incomplete_details) == (
        "completed",
        None,
        None,
    )
    assert response.usage is not None
    assert response.usage.total_tokens == 4
    assert response.id == "resp_" + (raw.request_id or "").removeprefix("req_")
    assert response.metadata == {"team": "a"}
    assert raw.headers["x-penstock-provider"] == "fake"
    assert raw.headers["x-penstock-model"] == "echo"
    assert raw.headers["x-penstock-attempts"] == "1"
    (request,) = fake.requests
    assert request.system_prompt == "Be brief."
    assert (request.max_tokens, request.temperature) == (50, 0.5)
    assert request.metadata == {"user": "u1", "team": "a"}


async def test_pictures_and_sounds(client: AsyncOpenAI, fake: FakeProvider) -> None:
    parts: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
    ]
    await client.responses.create(model="default", input=[{"role": "user", "content": parts}])
    assert fake.requests[0].messages[0].content[1:] == (
        Image(data=PIXEL, mime_type="image/png"),
        Audio("AAAA", "audio/mpeg"),
    )


async def test_a_stream_of_events(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="default", input="one two three", stream=True)
    events = [event async for event in stream]
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert texts == ["one ", "two ", "three"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "one two three"
    assert last.response.usage is not None
    assert last.response.usage.output_tokens == 3


async def test_the_stream_helper(client: AsyncOpenAI) -> None:
    async with client.responses.stream(
        model="default", input="Rome?", tools=[WEATHER], tool_choice="required"
    ) as stream:
        deltas = [
            event.snapshot
            async for event in stream
            if event.type == "response.function_call_arguments.delta"
        ]
        final = await stream.get_final_response()
    assert deltas[-1] == '{"city":"text"}'
    (call,) = final.output
    assert call.type == "function_call"
    assert call.name == "weather"
    assert call.parsed_arguments == {"city": "text"}


async def test_a_round_of_tools(client: AsyncOpenAI, fake: FakeProvider) -> None:
    history: list[Any] = [{"role": "user", "content": "Weather in Rome?"}]
    first = await client.responses.create(
        model="default",
        input=history,
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=False,
    )
    (call,) = first.output
    assert call.type == "function_call"
    history += first.output
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    second = await client.responses.create(model="default", input=history, tools=[WEATHER])
    assert second.output_text == "sunny"
    assert fake.requests[0].parallel_tools is False
    assert fake.requests[1].messages[1] == assistant(
        ToolUse(call.call_id, "weather", {"city": "text"})
    )


async def test_structured_output(client: AsyncOpenAI, fake: FakeProvider) -> None:
    response = await client.responses.parse(model="default", input="A recipe", text_format=Recipe)
    assert response.output_parsed == Recipe(title="text", minutes=0, steps=[])
    schema = fake.requests[0].output_schema
    assert schema is not None
    assert (schema.name, schema.strict) == ("Recipe", True)
    async with client.responses.stream(
        model="default", input="A recipe", text_format=Recipe
    ) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == Recipe(title="text", minutes=0, steps=[])


async def test_thinking_goes_there_and_back() -> None:
    script = FakeProvider([FakeReply(text="42", reasoning="let me see")])
    async with running_gateway(engine_with(script)) as gateway, sdk(gateway) as client:
        first = await client.responses.create(
            model="default",
            input="6 times 7?",
            reasoning={"effort": "medium", "summary": "auto"},
            include=["reasoning.encrypted_content"],
        )
        thought = first.output[0]
        assert thought.type == "reasoning"
        assert thought.summary[0].text == "let me see"
        history: Any = [
            {"role": "user", "content": "6 times 7?"},
            *first.output,
            {"role": "user", "content": "Sure?"},
        ]
        await client.responses.create(model="default", input=history)
    assert script.requests[0].reasoning_level == "med"
    assert script.requests[1].messages[1] == assistant(Reasoning("let me see"), Text("42"))


async def test_an_answer_that_was_cut(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="default", input="one two three", max_output_tokens=2
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "one two "


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "expected", "code"),
    [
        (RateLimited("x", retry_after=3), openai.RateLimitError, "rate_limit_exceeded"),
        (ContextLengthExceeded("x"), openai.BadRequestError, "context_length_exceeded"),
        (ContentRejected("x"), openai.BadRequestError, "content_filter"),
        (
            AuthenticationFailed("x"),
            openai.InternalServerError,
            "upstream_authentication_failed",
        ),
        (ProviderTimeout("x"), openai.InternalServerError, "upstream_timeout"),
    ],
)
async def test_the_type_of_an_error(
    failure: PenstockError, expected: type[openai.APIStatusError], code: str, stream: bool
) -> None:
    async with (
        running_gateway(engine_with(FakeProvider([failure]))) as gateway,
        sdk(gateway) as client,
    ):
        with pytest.raises(expected) as caught:
            await client.responses.create(model="default", input="Hi", stream=stream)
    assert caught.value.code == code
    assert caught.value.request_id == failure.request_id


async def test_errors_of_the_caller(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.responses.create(model="defautl", input="Hi")
    assert "did you mean 'default'?" in missing.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="default", input="Hi", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"
    assert refused.value.code == "unsupported_parameter"
    assert "send all items" in refused.value.message
    with pytest.raises(openai.BadRequestError) as builtin:
        await client.responses.create(model="default", input="Hi", tools=[{"type": "web_search"}])
    assert builtin.value.param == "tools[0].type"
    assert "'web_search'" in builtin.value.message
    with pytest.raises(openai.BadRequestError) as hot:
        await client.responses.create(model="default", input="Hi", temperature=3)
    assert hot.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as few:
        await client.responses.create(model="default", input="Hi", max_output_tokens=0)
    assert few.value.param == "max_output_tokens"
    with pytest.raises(openai.BadRequestError) as blank:
        await client.responses.create(
            model="default",
            input=[{"role": "user", "content": "a"}, {"role": "user", "content": ""}],
        )
    assert blank.value.param == "input[1].content"
    assert "input[1].content" in blank.value.message
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_1")


async def test_an_error_in_mid_stream_is_raised() -> None:
    broken = FakeReply(text="half an", error=StreamInterrupted("it broke off"))
    async with (
        running_gateway(engine_with(FakeProvider([broken, broken]))) as gateway,
        sdk(gateway) as client,
    ):
        stream = await client.responses.create(model="default", input="Hi", stream=True)
        events = stream.__aiter__()
        told = [await anext(events) for _ in range(9)]
        with pytest.raises(openai.APIError, match="it broke off") as caught:
            await anext(events)
        assert [event.delta for event in told if event.type == "response.output_text.delta"] == [
            "half ",
            "an",
        ]
        assert caught.value.code == "upstream_stream_interrupted"
        body = {"input": "Hi", "stream": True}
        by_hand = await gateway.client.post(RESPONSES, json=body)
    assert read_events(by_hand.text)[-1]["type"] == "response.failed"


async def test_a_filter_in_mid_stream_leaves_the_response_incomplete() -> None:
    filtered = FakeReply(text="half an", error=ContentRejected("no more"))
    async with (
        running_gateway(engine_with(FakeProvider([filtered]))) as gateway,
        sdk(gateway) as client,
    ):
        stream = await client.responses.create(model="default", input="Hi", stream=True)
        events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "content_filter"
    assert last.response.output_text == "half an"


async def test_an_accident_in_mid_stream_is_not_told() -> None:
    class Exploding(FakeProvider):
        async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
            async for batch in super().stream(model, request):
                yield batch
                raise RuntimeError("secret=hunter2")

    async with (
        running_gateway(engine_with(Exploding(["one two"]))) as gateway,
        sdk(gateway) as client,
    ):
        with pytest.raises(openai.APIError, match="internal error") as caught:
            async for _ in await client.responses.create(model="default", input="Hi", stream=True):
                pass
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_stops_the_answer(stream: bool) -> None:
    endless = FakeReply(text="word " * 10_000, delay_s=0.01)
    engine = engine_with(FakeProvider([endless]))
    async with running_gateway(engine) as gateway, sdk(gateway) as client:
        if stream:
            running = await client.responses.create(model="default", input="Hi", stream=True)
            await anext(running.__aiter__())
            await running.close()
        else:
            task = asyncio.create_task(client.responses.create(model="default", input="Hi"))
            await until(lambda: gateway.server.running_requests == 1)
            task.cancel()
        await until(lambda: gateway.server.running_requests == 0)


async def test_the_blocking_client(gateway: Gateway) -> None:
    def talk() -> tuple[str, list[str], Recipe | None, str]:
        with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
            whole = client.responses.create(model="default", input="Say it")
            with client.responses.stream(model="default", input="one two") as stream:
                texts = [
                    event.delta for event in stream if event.type == "response.output_text.delta"
                ]
            parsed = client.responses.parse(model="default", input="x", text_format=Recipe)
            try:
                client.responses.create(model="nothing", input="x")
            except openai.NotFoundError as error:
                code = error.code or ""
            else:
                code = "no error"
            return whole.output_text, texts, parsed.output_parsed, code

    assert await asyncio.to_thread(talk) == (
        "Say it",
        ["one ", "two"],
        Recipe(title="text", minutes=0, steps=[]),
        "model_not_found",
    )


@pytest.fixture
async def embedded() -> AsyncGenerator[AsyncOpenAI]:
    """A client of the gateway in front of the model that comes with the package."""
    async with running_gateway(Engine(Config.embedded())) as gateway, sdk(gateway) as client:
        yield client


async def test_the_embedded_model(embedded: AsyncOpenAI) -> None:
    whole = await embedded.responses.create(
        model="default", input="Name three colours.", max_output_tokens=12, temperature=0
    )
    assert whole.output_text
    assert whole.usage is not None
    assert 0 < whole.usage.output_tokens <= 12
    async with embedded.responses.stream(
        model="default", input="Name three colours.", max_output_tokens=200, temperature=0
    ) as stream:
        texts = [
            event.delta async for event in stream if event.type == "response.output_text.delta"
        ]
    assert "".join(texts).startswith(whole.output_text[:10])


async def test_the_embedded_model_fills_a_form_and_calls_a_tool(embedded: AsyncOpenAI) -> None:
    class Person(pydantic.BaseModel):
        name: str
        age: int

    parsed = await embedded.responses.parse(
        model="default", input="Bob is 30 years old.", text_format=Person, temperature=0
    )
    assert isinstance(parsed.output_parsed, Person)
    called = await embedded.responses.create(
        model="default",
        input="Weather in Rome?",
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
    )
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert call.name == "weather"
    assert json.loads(call.arguments).keys() == {"city"}
