"""The official `anthropic` package, unchanged, against the gateway."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import pydantic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool

from penstock.config.settings import Config
from penstock.contract.errors import (
    AuthenticationFailed,
    BudgetExceeded,
    ContextLengthExceeded,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    SamplingRejected,
    StreamInterrupted,
)
from penstock.contract.messages import Image, Text, ToolResult, ToolUse, user
from penstock.engine.engine import Engine
from penstock.providers.embedded import install
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway, until

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
HI: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture
async def client(gateway: Gateway) -> AsyncGenerator[AsyncAnthropic]:
    """A client of the gateway in front of the fake."""
    async with sdk(gateway) as client:
        yield client


def sdk(gateway: Gateway, *, max_retries: int = 0) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=gateway.url, api_key="none", max_retries=max_retries)


async def test_a_text(client: AsyncAnthropic, fake: FakeProvider) -> None:
    response = await client.messages.with_raw_response.create(
        model="default",
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": "Say it END now"}],
        max_tokens=50,
        stop_sequences=["END"],
        metadata={"user_id": "u1"},
        service_tier="auto",
        extra_body={"temperature": 0.5},
    )
    message = await response.parse()
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Say it "}]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (4, 2)
    assert message._request_id == response.headers["x-request-id"]  # pyright: ignore[reportPrivateUsage]
    assert message.id == "msg_" + response.headers["x-request-id"].removeprefix("req_")
    assert response.headers["x-penstock-provider"] == "fake"
    assert response.headers["x-penstock-model"] == message.model == "echo"
    (request,) = fake.requests
    assert request.system_prompt == "Be brief."
    assert (request.max_tokens, request.temperature) == (50, 0.5)
    assert request.stop_sequences == ("END",)
    assert request.metadata == {"user": "u1", "cache": True}


async def test_a_client_without_an_event_loop(gateway: Gateway) -> None:
    def ask() -> tuple[str, str, int]:
        with Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as client:
            message = client.messages.create(model="default", max_tokens=9, messages=HI)
            with client.messages.stream(model="default", max_tokens=9, messages=HI) as stream:
                text = "".join(stream.text_stream)
            count = client.messages.count_tokens(model="default", messages=HI)
        assert message.content[0].type == "text"
        return message.content[0].text, text, count.input_tokens

    assert await asyncio.to_thread(ask) == ("Hi", "Hi", 1)


async def test_the_beta_namespace(client: AsyncAnthropic) -> None:
    message = await client.beta.messages.create(
        model="default", max_tokens=9, messages=HI, betas=["context-1m-2025-08-07"]
    )
    assert message.content[0].type == "text"


async def test_pictures(client: AsyncAnthropic, fake: FakeProvider) -> None:
    source: Any = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    await client.messages.create(
        model="default",
        max_tokens=9,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": source},
                    {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}},
                    {"type": "text", "text": "What is this?"},
                ],
            }
        ],
    )
    assert fake.requests[0].messages[0].content == (
        Image(data=PIXEL, mime_type="image/png"),
        Image(url="https://x.org/a.png"),
        Text("What is this?"),
    )


async def test_a_raw_stream(client: AsyncAnthropic) -> None:
    stream = await client.messages.create(
        model="default",
        max_tokens=9,
        messages=[{"role": "user", "content": "one two"}],
        stream=True,
    )
    assert [event.type async for event in stream] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_the_stream_helper() -> None:
    uses = (ToolUse("a", "weather", {"city": "Rome"}), ToolUse("b", "clock", {}))
    script = FakeProvider([FakeReply(text="Let me look.", reasoning="Hm, so.", tool_uses=uses)])
    async with (
        running_gateway(engine_with(script)) as gateway,
        sdk(gateway) as client,
        client.messages.stream(model="default", max_tokens=9, messages=HI) as stream,
    ):
        kinds = {event.type async for event in stream}
        message = await stream.get_final_message()
    assert kinds >= {"text", "thinking", "input_json", "content_block_stop", "message_stop"}
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "Hm, so.", "signature": ""},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "b", "name": "clock", "input": {}},
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (1, 3)


async def asked(
    client: AsyncAnthropic, messages: list[Any], *, streamed: bool, **fields: Any
) -> Any:
    """The answer of a model that has a tool."""
    options: Any = {"model": "default", "max_tokens": 50, "tools": [WEATHER], **fields}
    if not streamed:
        api: Any = client.messages
        return await api.create(messages=messages, **options)
    async with client.messages.stream(messages=messages, **options) as stream:
        return await stream.get_final_message()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_round_of_tools(client: AsyncAnthropic, fake: FakeProvider, streamed: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "Weather in Rome?"}]
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    first = await asked(client, messages, streamed=streamed, tool_choice=choice)
    (call,) = first.content
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "text"})
    picture: Any = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    result: Any = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "hail"}, {"type": "image", "source": picture}],
        "is_error": True,
    }
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    second = await asked(client, messages, streamed=streamed)
    assert second.content[0].type == "text"
    assert second.content[0].text == "And now?"
    assert fake.requests[0].parallel_tools is False
    shown = (Text("hail"), Image(data=PIXEL, mime_type="image/png"))
    assert fake.requests[1].messages[1:] == (
        *(fake.requests[1].messages[1:2]),
        user(ToolResult(call.id, shown, is_error=True)),
        user("And now?"),
    )
    assert fake.requests[1].messages[1].tool_uses == (
        ToolUse(call.id, "weather", {"city": "text"}),
    )


async def test_the_sdks_own_loop_of_tools() -> None:
    @beta_async_tool
    async def weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    call = FakeReply(tool_uses=(ToolUse("a", "weather", {"city": "Rome"}),))
    script = FakeProvider([call, "Take a hat."])
    async with running_gateway(engine_with(script)) as gateway, sdk(gateway) as client:
        runner = client.beta.messages.tool_runner(
            model="default", max_tokens=9, messages=HI, tools=[weather]
        )
        final = await runner.until_done()
    assert final.content[0].type == "text"
    assert final.content[0].text == "Take a hat."
    assert script.requests[1].messages[2] == user(ToolResult("a", (Text("sunny in Rome"),)))


class Recipe(pydantic.BaseModel):
    title: str
    minutes: int
    steps: list[str]


async def test_structured_output(client: AsyncAnthropic, fake: FakeProvider) -> None:
    message = await client.messages.parse(
        model="default", max_tokens=99, messages=HI, output_format=Recipe
    )
    assert message.parsed_output == Recipe(title="text", minutes=0, steps=[])
    schema = fake.requests[0].output_schema
    assert schema is not None
    assert set(schema.schema["properties"]) == {"title", "minutes", "steps"}
    async with client.messages.stream(
        model="default", max_tokens=99, messages=HI, output_format=Recipe
    ) as stream:
        streamed = await stream.get_final_message()
    assert streamed.parsed_output == message.parsed_output


async def test_thinking(fake: FakeProvider, client: AsyncAnthropic) -> None:
    for thinking in (
        {"type": "enabled", "budget_tokens": 5000},
        {"type": "adaptive"},
        {"type": "disabled"},
    ):
        await client.messages.create(
            model="default",
            max_tokens=9000,
            messages=HI,
            thinking=thinking,  # pyright: ignore[reportArgumentType]
        )
    assert [each.reasoning_level for each in fake.requests] == ["med", "high", "none"]


async def test_a_count(client: AsyncAnthropic) -> None:
    counted = await client.messages.count_tokens(
        model="default",
        messages=[{"role": "user", "content": "one two three"}],
        tools=[WEATHER],
        thinking={"type": "adaptive"},
    )
    assert counted.input_tokens == 3


async def test_models(client: AsyncAnthropic) -> None:
    listed = [model async for model in client.models.list()]
    assert [(model.id, model.type) for model in listed] == [
        ("default", "model"),
        ("fake/echo", "model"),
    ]
    one = await client.models.retrieve("default")
    assert (one.display_name, one.lifecycle, one.created_at.year) == ("default", "active", 1970)
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("nothing")


@pytest.mark.parametrize(
    ("failure", "expected", "kind"),
    [
        (RateLimited("x", retry_after=3), anthropic.RateLimitError, "rate_limit_error"),
        (ContextLengthExceeded("x"), anthropic.BadRequestError, "invalid_request_error"),
        (SamplingRejected("x"), anthropic.PermissionDeniedError, "permission_error"),
        (AuthenticationFailed("x"), anthropic.InternalServerError, "api_error"),
        (ProviderTimeout("x"), anthropic.InternalServerError, "timeout_error"),
        (
            ProviderUnavailable("x", status=529),
            anthropic.InternalServerError,
            "overloaded_error",
        ),
        (BudgetExceeded("x"), anthropic.RateLimitError, "billing_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_type_of_an_error(
    failure: PenstockError, expected: type[anthropic.APIStatusError], kind: str, stream: bool
) -> None:
    async with (
        running_gateway(engine_with(FakeProvider([failure]))) as gateway,
        sdk(gateway) as client,
    ):
        with pytest.raises(expected) as caught:
            await client.messages.create(model="default", max_tokens=9, messages=HI, stream=stream)
    assert caught.value.body == {
        "type": "error",
        "error": {"type": kind, "message": failure.message},
        "request_id": failure.request_id,
    }
    assert caught.value.request_id == failure.request_id


async def test_errors_of_the_caller(client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="did you mean 'default'"):
        await client.messages.create(model="defautl", max_tokens=9, messages=HI)
    document: Any = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "x"},
    }
    with pytest.raises(anthropic.BadRequestError, match="documents are not supported"):
        await client.messages.create(
            model="default", max_tokens=9, messages=[{"role": "user", "content": [document]}]
        )
    with pytest.raises(anthropic.BadRequestError, match="max_tokens: 0 is not a positive"):
        await client.messages.create(model="default", max_tokens=0, messages=HI)
    with pytest.raises(anthropic.NotFoundError, match="there is nothing at /v1/messages/batches"):
        await client.messages.batches.list()


async def test_an_error_in_mid_stream_is_raised() -> None:
    broken = FakeReply(text="half an", error=StreamInterrupted("it broke off"))
    async with (
        running_gateway(engine_with(FakeProvider([broken]))) as gateway,
        sdk(gateway) as client,
        client.messages.stream(model="default", max_tokens=9, messages=HI) as stream,
    ):
        texts = aiter(stream.text_stream)
        said = [await anext(texts), await anext(texts)]
        with pytest.raises(anthropic.APIStatusError, match="it broke off") as caught:
            await anext(texts)
    assert said == ["half ", "an"]
    assert caught.value.request_id is not None


async def test_the_sdk_repeats_what_may_succeed_and_nothing_else() -> None:
    script = FakeProvider([ProviderUnavailable("x"), "good", AuthenticationFailed("y"), "never"])
    async with (
        running_gateway(engine_with(script)) as gateway,
        sdk(gateway, max_retries=1) as client,
    ):
        answer = await client.messages.create(model="default", max_tokens=9, messages=HI)
        assert answer.content[0].type == "text"
        assert answer.content[0].text == "good"
        with pytest.raises(anthropic.InternalServerError):
            await client.messages.create(model="default", max_tokens=9, messages=HI)
    assert len(script.requests) == 3


async def test_a_stream_that_is_left_stops_the_model() -> None:
    endless = FakeProvider([FakeReply(text="word " * 1000, delay_s=0.02)])
    async with running_gateway(engine_with(endless)) as gateway, sdk(gateway) as client:
        async with client.messages.stream(model="default", max_tokens=2000, messages=HI) as stream:
            assert await anext(aiter(stream.text_stream)) == "word "
            assert gateway.server.running_requests == 1
        async with asyncio.timeout(30):
            await until(lambda: gateway.server.running_requests == 0)


@pytest.mark.skipif(bool(install.missing()), reason="the embedded model is not installed")
async def test_the_embedded_model() -> None:
    async with running_gateway(Engine(Config.embedded())) as gateway, sdk(gateway) as client:
        prompt: Any = [{"role": "user", "content": "Name three colours"}]
        async with client.messages.stream(
            model="default", max_tokens=12, messages=prompt
        ) as stream:
            pieces = [text async for text in stream.text_stream]
            message = await stream.get_final_message()
        counted = await client.messages.count_tokens(model="default", messages=prompt)
    assert message.content[0].type == "text"
    assert message.content[0].text == "".join(pieces) != ""
    assert (message.model, message.role) == ("smollm2", "assistant")
    usage = message.usage
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    assert usage.input_tokens + (read or 0) + (written or 0) == counted.input_tokens
