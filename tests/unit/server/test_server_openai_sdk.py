"""The official `openai` package, unchanged, against the gateway."""

import base64
from collections.abc import AsyncGenerator
from typing import Any

import openai
import pydantic
import pytest
from openai import AsyncOpenAI

from penstock.contract.errors import (
    AuthenticationFailed,
    ContextLengthExceeded,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.messages import Audio, Image, ToolUse
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
STRICT_WEATHER: Any = {
    "type": "function",
    "function": {**WEATHER["function"], "strict": True},
}


@pytest.fixture
async def client(gateway: Gateway) -> AsyncGenerator[AsyncOpenAI]:
    """A client of the gateway in front of the fake."""
    async with sdk(gateway) as client:
        yield client


def sdk(gateway: Gateway, *, max_retries: int = 0) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=max_retries)


async def test_a_text(client: AsyncOpenAI, fake: FakeProvider) -> None:
    response = await client.chat.completions.with_raw_response.create(
        model="default",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say it"},
        ],
        max_completion_tokens=50,
        temperature=0.5,
        stop=["END"],
        user="u1",
        seed=1,
    )
    completion = response.parse()
    assert completion.choices[0].message.content == "Say it"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 4
    assert response.request_id is not None
    assert completion.id == "chatcmpl-" + response.request_id.removeprefix("req_")
    (request,) = fake.requests
    assert request.system_prompt == "Be brief."
    assert (request.max_tokens, request.temperature) == (50, 0.5)
    assert request.stop_sequences == ("END",)
    assert request.metadata == {"user": "u1"}


async def test_pictures_and_sounds(client: AsyncOpenAI, fake: FakeProvider) -> None:
    await client.chat.completions.create(
        model="default",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
                    },
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
                ],
            }
        ],
    )
    assert fake.requests[0].messages[0].content[1:] == (
        Image(data=PIXEL, mime_type="image/png"),
        Audio("AAAA", "audio/mpeg"),
    )


async def test_a_stream(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "one two three"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "one two three"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3


async def test_the_stream_helper(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model="default",
        messages=[{"role": "user", "content": "Rome?"}],
        tools=[STRICT_WEATHER],
        tool_choice="required",
    ) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.name == "weather"
    assert calls[0].function.parsed_arguments == {"city": "text"}
    assert final.choices[0].finish_reason == "tool_calls"


async def test_a_round_of_tools(client: AsyncOpenAI, fake: FakeProvider) -> None:
    messages: list[Any] = [{"role": "user", "content": "Weather in Rome?"}]
    first = await client.chat.completions.create(
        model="default",
        messages=messages,
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        parallel_tool_calls=False,
    )
    message = first.choices[0].message
    assert message.tool_calls
    call = message.tool_calls[0]
    assert call.type == "function"
    assert call.function.name == "weather"
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second = await client.chat.completions.create(
        model="default", messages=messages, tools=[WEATHER]
    )
    assert second.choices[0].message.content == "sunny"
    assert fake.requests[0].parallel_tools is False
    assert fake.requests[1].messages[1].tool_uses == (
        ToolUse(call.id, "weather", {"city": "text"}),
    )


class Recipe(pydantic.BaseModel):
    title: str
    minutes: int
    steps: list[str]


async def test_structured_output(client: AsyncOpenAI, fake: FakeProvider) -> None:
    completion = await client.chat.completions.parse(
        model="default",
        messages=[{"role": "user", "content": "A recipe"}],
        response_format=Recipe,
    )
    assert completion.choices[0].message.parsed == Recipe(title="text", minutes=0, steps=[])
    schema = fake.requests[0].output_schema
    assert schema is not None
    assert (schema.name, schema.strict) == ("Recipe", True)


async def test_embeddings(client: AsyncOpenAI) -> None:
    packed = await client.embeddings.create(model="fake/words", input=["red cat", "blue"])
    plain = await client.embeddings.create(
        model="fake/words", input=["red cat", "blue"], encoding_format="float"
    )
    assert [item.index for item in packed.data] == [0, 1]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
    assert packed.usage.prompt_tokens == 3
    small = await client.embeddings.create(model="fake/words", input="x", dimensions=8)
    assert len(small.data[0].embedding) == 8


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["default", "fake/echo"]
    assert (await client.models.retrieve("default")).owned_by == "penstock"


@pytest.mark.parametrize(
    ("failure", "expected", "code"),
    [
        (RateLimited("x", retry_after=3), openai.RateLimitError, "rate_limit_exceeded"),
        (ContextLengthExceeded("x"), openai.BadRequestError, "context_length_exceeded"),
        (
            AuthenticationFailed("x"),
            openai.InternalServerError,
            "upstream_authentication_failed",
        ),
        (ProviderTimeout("x"), openai.InternalServerError, "upstream_timeout"),
    ],
)
async def test_the_type_of_an_error(
    failure: PenstockError, expected: type[openai.APIStatusError], code: str
) -> None:
    async with (
        running_gateway(engine_with(FakeProvider([failure]))) as gateway,
        sdk(gateway) as client,
    ):
        with pytest.raises(expected) as caught:
            await client.chat.completions.create(
                model="default", messages=[{"role": "user", "content": "Hi"}]
            )
    assert caught.value.code == code
    assert caught.value.request_id == failure.request_id


async def test_errors_of_the_caller(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(
            model="defautl", messages=[{"role": "user", "content": "Hi"}]
        )
    assert missing.value.code == "model_not_found"
    assert "did you mean 'default'?" in missing.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hi"}], n=2
        )
    assert (refused.value.param, refused.value.code) == ("n", "unsupported_parameter")
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nothing")


async def test_an_error_in_mid_stream_is_raised() -> None:
    broken = FakeReply(text="half an", error=StreamInterrupted("it broke off"))
    async with (
        running_gateway(engine_with(FakeProvider([broken]))) as gateway,
        sdk(gateway) as client,
    ):
        stream = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        chunks = stream.__aiter__()
        texts = [(await anext(chunks)).choices[0].delta.content for _ in range(3)]
        with pytest.raises(openai.APIError, match="it broke off"):
            await anext(chunks)
    assert texts == ["", "half ", "an"]


async def test_the_sdk_repeats_what_may_succeed_and_nothing_else() -> None:
    script = FakeProvider([ProviderUnavailable("x"), "good", AuthenticationFailed("y"), "never"])
    async with (
        running_gateway(engine_with(script)) as gateway,
        sdk(gateway, max_retries=1) as client,
    ):
        messages: Any = [{"role": "user", "content": "Hi"}]
        answer = await client.chat.completions.create(model="default", messages=messages)
        assert answer.choices[0].message.content == "good"
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="default", messages=messages)
    assert len(script.requests) == 3
