"""What aimock 1.43.0 gets wrong, each with its proof: the official client's view, or the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import anthropic.types
import pydantic
import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from google.genai import types

from tests.independent.aimock import Aimock
from tests.independent.aimock_clients import (
    TEST,
    aws_at,
    google_at,
    ollama_at,
    openai_at,
    reported,
)
from tests.independent.plain_http import Answer, call
from tests.independent.rows import Wrong

_PROMPT = [{"role": "user", "content": "Hi"}]
_CONVERSE = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def _plays(server: Aimock, response: Mapping[str, Any]) -> None:
    server.add([{"match": {}, "response": response}])


# OpenAI


async def filter_is_failure(server: Aimock) -> None:
    _plays(server, {"content": "abc", "finishReason": "content_filter"})
    async with openai_at(server) as client:
        whole = await client.responses.create(model="m", input="Hi")
    assert (whole.status, whole.error, whole.incomplete_details) == ("failed", None, None)


async def embeddings_cost_nothing(server: Aimock) -> None:
    server.add([])
    async with openai_at(server) as client:
        answer = await client.embeddings.create(model="m", input=["A whole sentence of words."])
    assert answer.data[0].embedding
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (0, 0)


FILTER_IS_FAILURE = Wrong(
    "A filtered Responses answer is `failed` without any error; the API says `incomplete` with "
    "the reason `content_filter`.",
    filter_is_failure,
)
EMBEDDINGS_COST_NOTHING = Wrong(
    "Embeddings are reported to cost 0 tokens, whatever the text.", embeddings_cost_nothing
)


# Anthropic


async def anthropic_models_are_openais(server: Aimock) -> None:
    listed = call(server, "/v1/models?limit=1000").json
    assert "has_more" not in listed
    with pytest.raises(pydantic.ValidationError) as caught:
        anthropic.types.ModelInfo.model_validate(listed["data"][0])
    missing = {error["loc"][0] for error in caught.value.errors() if error["type"] == "missing"}
    assert missing >= {"display_name", "type"}


ANTHROPIC_MODELS_ARE_OPENAIS = Wrong(
    "Anthropic's model list is OpenAI's: no `type`, no `display_name`, no `has_more`.",
    anthropic_models_are_openais,
)


# Gemini


async def gemini_schemas_dropped(server: Aimock) -> None:
    _plays(server, {"content": "abc"})
    declared = types.FunctionDeclaration(name="weather", parameters_json_schema=_SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    with google_at(server) as client:
        client.models.generate_content(model="m", contents="Hi", config=config)
    (tool,) = server.journal(TEST)[-1]["body"]["tools"]
    assert tool["function"] == {"name": "weather"}


async def gemini_finishes_with_a_call(server: Aimock) -> None:
    _plays(server, {"toolCalls": [{"name": "weather", "arguments": {"city": "Rome"}}]})
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    reason = call(server, "/v1beta/models/m:generateContent", body).json["candidates"][0][
        "finishReason"
    ]
    assert reason == "FUNCTION_CALL"
    assert reason not in {known.value for known in types.FinishReason}


GEMINI_SCHEMAS_DROPPED = Wrong(
    "`parametersJsonSchema`, in which Google's own client sends a tool's schema, is not read.",
    gemini_schemas_dropped,
)
GEMINI_FINISHES_WITH_A_CALL = Wrong(
    "A tool call has the finish reason `FUNCTION_CALL`, which Gemini does not have: its own is "
    "`STOP`.",
    gemini_finishes_with_a_call,
)


# Bedrock


async def bedrock_errors_without_type(server: Aimock) -> None:
    kind = "ServiceQuotaExceededException"
    _plays(server, {"error": {"message": "Too much.", "type": kind}, "status": 400})
    with aws_at(server) as client, pytest.raises(ClientError) as caught:
        client.converse(**_CONVERSE)
    assert reported(caught.value)["Error"] == {"Code": "400", "Message": ""}
    answer = call(server, "/model/m/converse", {"messages": _CONVERSE["messages"]})
    assert "x-amzn-errortype" not in answer.headers
    assert answer.json["type"] == "error"


async def bedrock_without_request_id(server: Aimock) -> None:
    _plays(server, {"content": "abc"})
    with aws_at(server) as client:
        answer = client.converse(**_CONVERSE)
    assert answer["output"]["message"]["content"] == [{"text": "abc"}]
    assert "RequestId" not in answer["ResponseMetadata"]


async def bedrock_starts_empty(server: Aimock) -> None:
    _plays(server, {"content": "abc"})
    with (
        aws_at(server) as client,
        closing(client.converse_stream(**_CONVERSE)["stream"]) as stream,
        pytest.raises(ResponseParserError),
    ):
        list(stream)


BEDROCK_ERRORS_WITHOUT_TYPE = Wrong(
    "Bedrock's errors are Anthropic's: neither a header nor a field says which exception it is, "
    "and AWS's own client finds no message.",
    bedrock_errors_without_type,
)
BEDROCK_WITHOUT_REQUEST_ID = Wrong(
    "Bedrock's answers lack `x-amzn-requestid`, the only id that they have.",
    bedrock_without_request_id,
)
BEDROCK_STARTS_EMPTY = Wrong(
    "A text block of a stream begins with an empty `start`, at which AWS's own client gives up; "
    "Bedrock begins no text block.",
    bedrock_starts_empty,
)


# Ollama


async def ollama_thinks_elsewhere(server: Aimock) -> None:
    _plays(server, {"content": "abc", "reasoning": "Hm."})
    with ollama_at(server) as client:
        answer = client.chat(model="m", messages=_PROMPT)
    assert (answer.message.content, answer.message.thinking) == ("abc", None)
    assert _chat(server).json["message"]["reasoning_content"] == "Hm."


async def ollama_always_stops(server: Aimock) -> None:
    _plays(server, {"content": "abc", "finishReason": "length"})
    with ollama_at(server) as client:
        assert client.chat(model="m", messages=_PROMPT).done_reason == "stop"


async def ollama_counts_nothing(server: Aimock) -> None:
    _plays(server, {"content": "abc", "usage": {"input_tokens": 9, "output_tokens": 7}})
    with ollama_at(server) as client:
        answer = client.chat(model="m", messages=_PROMPT)
    assert (answer.prompt_eval_count, answer.eval_count) == (0, 0)


async def ollama_errors_are_objects(server: Aimock) -> None:
    _plays(server, {"error": {"message": "Too fast.", "type": "rate_limit"}, "status": 200})
    assert _chat(server).json["error"]["message"] == "Too fast."
    # Its own client takes the error for text, and breaks on it.
    with ollama_at(server) as client, pytest.raises(TypeError, match="not dict"):
        next(client.chat(model="m", messages=_PROMPT, stream=True))


async def ollama_embeds_one(server: Aimock) -> None:
    server.add([])
    with ollama_at(server) as client, pytest.raises(pydantic.ValidationError):
        client.embed(model="m", input=["a", "b"])
    body = {"model": "m", "input": ["a", "b"]}
    assert call(server, "/api/embed", body).json.keys() == {"model", "embedding"}


def _chat(server: Aimock) -> Answer:
    return call(server, "/api/chat", {"model": "m", "messages": _PROMPT, "stream": False})


OLLAMA_THINKS_ELSEWHERE = Wrong(
    "Ollama's thinking is in `reasoning_content`, where its own client does not look; it is "
    "`thinking`.",
    ollama_thinks_elsewhere,
)
OLLAMA_ALWAYS_STOPS = Wrong(
    "Ollama's `done_reason` is `stop` even where the fixture says `length`.", ollama_always_stops
)
OLLAMA_COUNTS_NOTHING = Wrong(
    "Ollama's token counts are 0 even where the fixture has others.", ollama_counts_nothing
)
OLLAMA_ERRORS_ARE_OBJECTS = Wrong(
    "Ollama's errors are OpenAI's objects; the API has one string.", ollama_errors_are_objects
)
OLLAMA_EMBEDS_ONE = Wrong(
    "`/api/embed` answers several texts with one `embedding`; the API has a list of `embeddings`.",
    ollama_embeds_one,
)
