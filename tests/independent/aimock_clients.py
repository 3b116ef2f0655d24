"""The official clients at aimock: what they make of an answer is the proof of a fault."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any

import boto3
import ollama
from anthropic import AsyncAnthropic
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from google import genai
from google.genai import types
from openai import AsyncOpenAI

from tests.independent.aimock import Aimock

TEST = "proof"
"""What the journal calls the requests of Google's client."""


def openai_at(server: Aimock) -> AsyncOpenAI:
    """OpenAI's."""
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0)


def anthropic_at(server: Aimock) -> AsyncAnthropic:
    """Anthropic's."""
    return AsyncAnthropic(base_url=server.url, api_key=server.key, max_retries=0)


def google_at(server: Aimock) -> genai.Client:
    """Google's."""
    headers = {"x-test-id": TEST}
    options = types.HttpOptions(base_url=server.url, api_version="v1beta", headers=headers)
    return genai.Client(api_key=server.key, vertexai=False, http_options=options)


@contextmanager
def aws_at(server: Aimock, service: str = "bedrock-runtime") -> Generator[Any]:
    """AWS's; its signature means nothing here."""
    config = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
    made: Any = boto3.Session(region_name="us-east-1")
    client = made.client(service, endpoint_url=server.url, config=config)

    def complete(request: Any, **_: object) -> None:
        request.headers["x-api-key"] = server.key
        # Closing the client leaves the connection of an error open, and later tests wait for it.
        request.headers["connection"] = "close"

    client.meta.events.register("before-send", complete)
    with closing(client):
        yield client


def reported(error: ClientError) -> Any:
    """All that AWS's client found in an error."""
    return error.response


@contextmanager
def ollama_at(server: Aimock) -> Generator[Any]:
    """Ollama's."""
    headers = {"authorization": f"Bearer {server.key}"}
    made: Any = ollama.Client(host=server.url, headers=headers)
    with made as client:
        yield client
