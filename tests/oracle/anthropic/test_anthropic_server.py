"""The server under the matrix is held to the official client: what it sends, that can read."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from anthropic import APIStatusError, AsyncAnthropic, AuthenticationError, RateLimitError
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock

from tests.conformance.checks.answers import PIECES, TEXT
from tests.conformance.checks.tools import PARIS, UTC
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, Tokens
from tests.support.wire.server import WireServer

KEY = "sk-ant-api03-fidelity"
SCENARIO = Scenario(
    reasoning=("Hm", "."),
    text=PIECES,
    calls=(PARIS, UTC),
    stop="tool_use",
    tokens=Tokens(9, 8, cached=4, reasoning=2),
)


@pytest.fixture
async def message_server() -> AsyncGenerator[WireServer, None]:
    async with WireServer(Anthropic()) as server:
        yield server


@pytest.fixture
async def client(message_server: WireServer) -> AsyncGenerator[AsyncAnthropic, None]:
    async with AsyncAnthropic(base_url=message_server.url, api_key=KEY, max_retries=0) as opened:
        yield opened


@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropic_reads_an_answer(
    message_server: WireServer, client: AsyncAnthropic, streamed: bool
) -> None:
    message_server.play(SCENARIO)
    if streamed:
        async with client.messages.stream(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            answer = await stream.get_final_message()
    else:
        answer = await client.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}]
        )
    thought, said, *calls = answer.content
    assert isinstance(thought, ThinkingBlock)
    assert (thought.thinking, bool(thought.signature)) == ("Hm.", True)
    assert isinstance(said, TextBlock)
    assert (said.text, answer.stop_reason) == (TEXT, "tool_use")
    assert [call.input for call in calls if isinstance(call, ToolUseBlock)] == [
        PARIS.arguments,
        UTC.arguments,
    ]
    usage = answer.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (5, 4, 8)
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 2
    seen = message_server.seen[0]
    assert (seen.key, seen.messages[0].text) == (KEY, "Hi")


async def test_anthropic_reads_a_refusal(
    message_server: WireServer, client: AsyncAnthropic
) -> None:
    message_server.play(Scenario(refusal="No."))
    answer = await client.messages.create(
        model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}]
    )
    assert answer.stop_reason == "refusal"
    assert answer.stop_details is not None
    assert answer.stop_details.explanation == "No."


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure("rate_limit", retry_after=7), RateLimitError),
        (Failure("quota"), RateLimitError),
        (Failure("authentication"), AuthenticationError),
        (Failure("overloaded"), APIStatusError),
    ],
)
async def test_anthropic_reads_errors(
    message_server: WireServer,
    client: AsyncAnthropic,
    failure: Failure,
    error: type[APIStatusError],
) -> None:
    message_server.play(Scenario(failure=failure))
    with pytest.raises(error) as caught:
        await client.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "Hi"}]
        )
    assert caught.value.type
    assert caught.value.request_id == Anthropic.headers["request-id"]
    code = "enforced_spend_limit_reached" if failure.kind == "quota" else None
    assert caught.value.error_code == code


async def test_anthropic_reads_the_models(client: AsyncAnthropic) -> None:
    assert [model.id async for model in client.models.list()] == list(MODEL_IDS)
