"""The servers under the matrix are held to the official clients: what they send, those can read."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest
from openai import AsyncOpenAI, AuthenticationError, RateLimitError
from openai.types.chat import ChatCompletionToolParam

from tests.conformance.checks.answers import PIECES, TEXT
from tests.conformance.checks.tools import PARIS, UTC, WEATHER
from tests.conformance.subjects import KEY
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, Tokens, vector_of
from tests.support.wire.server import WireServer

SCENARIO = Scenario(
    text=PIECES, calls=(PARIS, UTC), stop="tool_use", tokens=Tokens(9, 8, cached=4, reasoning=2)
)
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": WEATHER.name, "parameters": WEATHER.input_schema},
}


@pytest.fixture
async def chat_server() -> AsyncGenerator[WireServer, None]:
    async with WireServer(OpenAIChat()) as server:
        yield server


@pytest.fixture
async def client(chat_server: WireServer) -> AsyncGenerator[AsyncOpenAI, None]:
    async with AsyncOpenAI(base_url=chat_server.url, api_key=KEY, max_retries=0) as opened:
        yield opened


async def test_openai_reads_a_whole_answer(chat_server: WireServer, client: AsyncOpenAI) -> None:
    chat_server.play(SCENARIO)
    answer = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi"}], tools=[TOOL], max_tokens=5
    )
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == (TEXT, "tool_calls")
    assert [call.id for call in choice.message.tool_calls or ()] == ["call_a", "call_c"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 8)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert chat_server.seen[0].key == KEY
    assert chat_server.seen[0].messages[0].text == "Hi"


async def test_openai_reads_a_stream(chat_server: WireServer, client: AsyncOpenAI) -> None:
    chat_server.play(SCENARIO)
    async with client.chat.completions.stream(
        model="m",
        messages=[{"role": "user", "content": "Hi"}],
        stream_options={"include_usage": True},
    ) as stream:
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == TEXT
    written = [call.function.arguments for call in message.tool_calls or ()]
    assert [json.loads(each) for each in written] == [PARIS.arguments, UTC.arguments]
    assert final.usage is not None
    assert final.usage.total_tokens == 17


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure("rate_limit", retry_after=7), RateLimitError),
        (Failure("authentication"), AuthenticationError),
    ],
)
async def test_openai_reads_errors(
    chat_server: WireServer,
    client: AsyncOpenAI,
    failure: Failure,
    error: type[RateLimitError | AuthenticationError],
) -> None:
    chat_server.play(Scenario(failure=failure))
    with pytest.raises(error) as caught:
        await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        )
    assert caught.value.code
    assert caught.value.request_id == OpenAIChat.headers["x-request-id"]


async def test_openai_reads_vectors_and_models(client: AsyncOpenAI) -> None:
    answer = await client.embeddings.create(
        model="m", input=["a", "b"], encoding_format="float", dimensions=16
    )
    placed = {item.index: tuple(item.embedding) for item in answer.data}
    assert placed == {0: vector_of("a", 16), 1: vector_of("b", 16)}
    assert [model.id async for model in client.models.list()] == list(MODEL_IDS)
