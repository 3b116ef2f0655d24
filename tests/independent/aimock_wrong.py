"""What aimock 1.43.0 gets wrong, each with its proof: the official client's view, or the bytes."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import anthropic.types
import boto3
import google.genai.errors
import ollama
import pydantic
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from google import genai
from google.genai import types
from openai import AsyncOpenAI
from openai.types.responses import ResponseCompletedEvent

from tests.independent.aimock import Aimock
from tests.independent.plain_http import Answer, call
from tests.independent.rows import Wrong

_TEST = "proof"
_PROMPT = [{"role": "user", "content": "Hi"}]
_CONVERSE = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def _plays(server: Aimock, response: Mapping[str, Any]) -> None:
    server.add([{"match": {}, "response": response}])


def _openai(server: Aimock) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0)


def _google(server: Aimock) -> genai.Client:
    headers = {"x-test-id": _TEST}
    options = types.HttpOptions(base_url=server.url, api_version="v1beta", headers=headers)
    return genai.Client(api_key=server.key, vertexai=False, http_options=options)


@contextmanager
def _aws(server: Aimock, service: str = "bedrock-runtime") -> Generator[Any]:
    config = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
    made: Any = boto3.Session(region_name="us-east-1")
    client = made.client(service, endpoint_url=server.url, config=config)

    def give_key(request: Any, **_: object) -> None:
        request.headers["x-api-key"] = server.key

    client.meta.events.register("before-send", give_key)
    with closing(client):
        yield client


def _reported(error: ClientError) -> Any:
    return error.response


@contextmanager
def _ollama(server: Aimock) -> Generator[Any]:
    headers = {"authorization": f"Bearer {server.key}"}
    made: Any = ollama.Client(host=server.url, headers=headers)
    with made as client:
        yield client


# OpenAI


async def incomplete_without_reason(server: Aimock) -> None:
    _plays(server, {"content": "abc", "finishReason": "length"})
    async with _openai(server) as client:
        whole = await client.responses.create(model="m", input="Hi", max_output_tokens=16)
        events = [
            event
            async for event in await client.responses.create(model="m", input="Hi", stream=True)
        ]
    assert (whole.status, whole.incomplete_details) == ("incomplete", None)
    assert isinstance(events[-1], ResponseCompletedEvent)
    assert events[-1].response.status == "incomplete"


async def filter_is_failure(server: Aimock) -> None:
    _plays(server, {"content": "abc", "finishReason": "content_filter"})
    async with _openai(server) as client:
        whole = await client.responses.create(model="m", input="Hi")
    assert (whole.status, whole.error, whole.incomplete_details) == ("failed", None, None)


async def embeddings_cost_nothing(server: Aimock) -> None:
    server.add([])
    async with _openai(server) as client:
        answer = await client.embeddings.create(model="m", input=["A whole sentence of words."])
    assert answer.data[0].embedding
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (0, 0)


INCOMPLETE_WITHOUT_REASON = Wrong(
    "A Responses answer cut by its token limit is `incomplete` without `incomplete_details`, and "
    "its stream ends with `response.completed` instead of `response.incomplete`.",
    incomplete_without_reason,
)
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
    with _google(server) as client:
        client.models.generate_content(model="m", contents="Hi", config=config)  # pyright: ignore[reportUnknownMemberType]
    (tool,) = server.journal(_TEST)[-1]["body"]["tools"]
    assert tool["function"] == {"name": "weather"}


async def gemini_without_embeddings(server: Aimock) -> None:
    with _google(server) as client, pytest.raises(google.genai.errors.ClientError) as caught:
        client.models.embed_content(model="m", contents=["Hi"])  # pyright: ignore[reportUnknownMemberType]
    assert caught.value.code == 404


async def gemini_without_models(server: Aimock) -> None:
    with _google(server) as client, pytest.raises(google.genai.errors.ClientError) as caught:
        client.models.list()
    assert caught.value.code == 404


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
GEMINI_WITHOUT_EMBEDDINGS = Wrong(
    "`batchEmbedContents`, which Google's own client calls for every embedding, is not there.",
    gemini_without_embeddings,
)
GEMINI_WITHOUT_MODELS = Wrong("Gemini's model list is not there.", gemini_without_models)
GEMINI_FINISHES_WITH_A_CALL = Wrong(
    "A tool call has the finish reason `FUNCTION_CALL`, which Gemini does not have: its own is "
    "`STOP`.",
    gemini_finishes_with_a_call,
)


# Bedrock


async def bedrock_errors_without_type(server: Aimock) -> None:
    kind = "ServiceQuotaExceededException"
    _plays(server, {"error": {"message": "Too much.", "type": kind}, "status": 400})
    with _aws(server) as client, pytest.raises(ClientError) as caught:
        client.converse(**_CONVERSE)
    assert _reported(caught.value)["Error"] == {"Code": "400", "Message": ""}
    answer = call(server, "/model/m/converse", {"messages": _CONVERSE["messages"]})
    assert "x-amzn-errortype" not in answer.headers
    assert answer.json["type"] == "error"


async def bedrock_without_request_id(server: Aimock) -> None:
    _plays(server, {"content": "abc"})
    with _aws(server) as client:
        answer = client.converse(**_CONVERSE)
    assert answer["output"]["message"]["content"] == [{"text": "abc"}]
    assert "RequestId" not in answer["ResponseMetadata"]


async def bedrock_without_titan(server: Aimock) -> None:
    server.add([])
    with _aws(server) as client, pytest.raises(ClientError) as caught:
        client.invoke_model(
            modelId="amazon.titan-embed-text-v2:0", body=json.dumps({"inputText": "Hi"})
        )
    assert _reported(caught.value)["ResponseMetadata"]["HTTPStatusCode"] == 400


async def bedrock_without_models(server: Aimock) -> None:
    with _aws(server, "bedrock") as client, pytest.raises(ClientError) as caught:
        client.list_foundation_models()
    assert _reported(caught.value)["ResponseMetadata"]["HTTPStatusCode"] == 404


async def bedrock_starts_empty(server: Aimock) -> None:
    _plays(server, {"content": "abc"})
    with (
        _aws(server) as client,
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
BEDROCK_WITHOUT_TITAN = Wrong(
    "InvokeModel takes chat only: Titan's embedding request is refused.", bedrock_without_titan
)
BEDROCK_WITHOUT_MODELS = Wrong("ListFoundationModels is not there.", bedrock_without_models)
BEDROCK_STARTS_EMPTY = Wrong(
    "A text block of a stream begins with an empty `start`, at which AWS's own client gives up; "
    "Bedrock begins no text block.",
    bedrock_starts_empty,
)


# Ollama


async def ollama_thinks_elsewhere(server: Aimock) -> None:
    _plays(server, {"content": "abc", "reasoning": "Hm."})
    with _ollama(server) as client:
        answer = client.chat(model="m", messages=_PROMPT)
    assert (answer.message.content, answer.message.thinking) == ("abc", None)
    assert _chat(server).json["message"]["reasoning_content"] == "Hm."


async def ollama_always_stops(server: Aimock) -> None:
    _plays(server, {"content": "abc", "finishReason": "length"})
    with _ollama(server) as client:
        assert client.chat(model="m", messages=_PROMPT).done_reason == "stop"


async def ollama_counts_nothing(server: Aimock) -> None:
    _plays(server, {"content": "abc", "usage": {"input_tokens": 9, "output_tokens": 7}})
    with _ollama(server) as client:
        answer = client.chat(model="m", messages=_PROMPT)
    assert (answer.prompt_eval_count, answer.eval_count) == (0, 0)


async def ollama_errors_are_objects(server: Aimock) -> None:
    _plays(server, {"error": {"message": "Too fast.", "type": "rate_limit"}, "status": 200})
    assert _chat(server).json["error"]["message"] == "Too fast."
    # Its own client takes the error for text, and breaks on it.
    with _ollama(server) as client, pytest.raises(TypeError, match="not dict"):
        next(client.chat(model="m", messages=_PROMPT, stream=True))


async def ollama_embeds_one(server: Aimock) -> None:
    server.add([])
    with _ollama(server) as client, pytest.raises(pydantic.ValidationError):
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
