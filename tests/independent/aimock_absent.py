"""What of these APIs aimock 1.43.0 does not have, by its official client's call."""

from __future__ import annotations

import json

import anthropic
import google.genai.errors
import openai
import pytest
from botocore.exceptions import ClientError

from tests.independent.aimock import Aimock
from tests.independent.aimock_clients import (
    anthropic_at,
    aws_at,
    google_at,
    openai_at,
    reported,
)
from tests.independent.rows import Wrong

_TURNS = [{"role": "user", "content": [{"text": "Hi"}]}]


async def openai_without_counts(server: Aimock) -> None:
    async with openai_at(server) as client:
        with pytest.raises(openai.NotFoundError):
            await client.responses.input_tokens.count(model="m", input="Hi")


async def anthropic_without_counts(server: Aimock) -> None:
    async with anthropic_at(server) as client:
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.count_tokens(
                model="m", messages=[{"role": "user", "content": "Hi"}]
            )


async def gemini_without_counts(server: Aimock) -> None:
    with google_at(server) as client, pytest.raises(google.genai.errors.ClientError) as caught:
        client.models.count_tokens(model="m", contents="Hi")
    assert caught.value.code == 404


async def gemini_without_embeddings(server: Aimock) -> None:
    with google_at(server) as client, pytest.raises(google.genai.errors.ClientError) as caught:
        client.models.embed_content(model="m", contents=["Hi"])
    assert caught.value.code == 404


async def gemini_without_models(server: Aimock) -> None:
    with google_at(server) as client, pytest.raises(google.genai.errors.ClientError) as caught:
        client.models.list()
    assert caught.value.code == 404


async def bedrock_without_counts(server: Aimock) -> None:
    with aws_at(server) as client, pytest.raises(ClientError) as caught:
        client.count_tokens(modelId="m", input={"converse": {"messages": _TURNS}})
    assert reported(caught.value)["ResponseMetadata"]["HTTPStatusCode"] == 404


async def bedrock_without_titan(server: Aimock) -> None:
    server.add([])
    with aws_at(server) as client, pytest.raises(ClientError) as caught:
        client.invoke_model(
            modelId="amazon.titan-embed-text-v2:0", body=json.dumps({"inputText": "Hi"})
        )
    assert reported(caught.value)["ResponseMetadata"]["HTTPStatusCode"] == 400


async def bedrock_without_models(server: Aimock) -> None:
    with aws_at(server, "bedrock") as client, pytest.raises(ClientError) as caught:
        client.list_foundation_models()
    assert reported(caught.value)["ResponseMetadata"]["HTTPStatusCode"] == 404


OPENAI_COUNTS = Wrong("`/v1/responses/input_tokens` is not there.", openai_without_counts)
ANTHROPIC_COUNTS = Wrong("`/v1/messages/count_tokens` is not there.", anthropic_without_counts)
GEMINI_COUNTS = Wrong("Gemini's `countTokens` is not there.", gemini_without_counts)
GEMINI_EMBEDDINGS = Wrong(
    "`batchEmbedContents`, which Google's own client calls for every embedding, is not there.",
    gemini_without_embeddings,
)
GEMINI_MODELS = Wrong("Gemini's model list is not there.", gemini_without_models)
BEDROCK_COUNTS = Wrong("CountTokens is not there.", bedrock_without_counts)
BEDROCK_TITAN = Wrong(
    "InvokeModel takes chat only: Titan's embedding request is refused.", bedrock_without_titan
)
BEDROCK_MODELS = Wrong("ListFoundationModels is not there.", bedrock_without_models)
