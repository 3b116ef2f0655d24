"""The server under the matrix is held to the official client: what it sends, that can read."""

from __future__ import annotations

import ollama
import pytest

from tests.conformance.checks.answers import PIECES, TEXT
from tests.conformance.checks.tools import PARIS, UTC
from tests.oracle.ollama.official import official
from tests.support.wire.ollama import Ollama
from tests.support.wire.scenario import MODEL_IDS, Failure, Scenario, Tokens, vector_of
from tests.support.wire.server import WireServer

SCENARIO = Scenario(
    reasoning=("Hm",), text=PIECES, calls=(PARIS, UTC), stop="tool_use", tokens=Tokens(9, 8)
)
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_reads_answers(stream: bool) -> None:
    async with WireServer(Ollama()) as server, official(server.url) as client:
        server.play(SCENARIO)
        found = await client.chat(model="m", messages=HELLO, stream=stream)
        parts = [part async for part in found] if stream else [found]
        assert server.seen[0].messages[0].text == "Hi"
        assert server.seen[0].stream is stream
    assert "".join(part.message.content or "" for part in parts) == TEXT
    assert "".join(part.message.thinking or "" for part in parts) == "Hm"
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    assert [(each.name, each.arguments) for each in calls] == [
        (call.name, call.arguments) for call in (PARIS, UTC)
    ]
    end = parts[-1]
    assert (end.done, end.done_reason, end.model) == (True, "stop", "m")
    assert (end.prompt_eval_count, end.eval_count) == (9, 8)


async def test_the_client_reads_errors() -> None:
    async with WireServer(Ollama()) as server, official(server.url) as client:
        server.play(Scenario(failure=Failure("unknown_model")))
        with pytest.raises(ollama.ResponseError, match="not found") as caught:
            await client.chat(model="m", messages=HELLO)
    assert caught.value.status_code == 404


async def test_the_client_reads_vectors_and_models() -> None:
    async with WireServer(Ollama()) as server, official(server.url) as client:
        answer = await client.embed(model="m", input=["a", "b"], dimensions=16)
        listed = await client.list()
    assert [tuple(each) for each in answer.embeddings] == [vector_of("a", 16), vector_of("b", 16)]
    assert [each.model for each in listed.models] == list(MODEL_IDS)
