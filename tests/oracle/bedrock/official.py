"""Amazon's own client without a network: what it would send, and what it reads out of bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
import msgspec
import urllib3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION = "eu-west-1"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it would go out; header names are lower-case."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path, escaped as it was sent."""
        return urlsplit(self.url).path

    @property
    def json(self) -> Any:
        """The body; a schema that travels as a string is read too."""
        return readable(self.body)


@dataclass(frozen=True, slots=True)
class Wire:
    """A response that the client is given."""

    body: bytes = b"{}"
    headers: Mapping[str, str] | None = None
    status: int = 200


def readable(body: bytes) -> Any:
    """JSON with the inner JSON of `jsonSchema.schema` read as well."""
    value = msgspec.json.decode(body)
    text_format: Any = value.get("outputConfig", {}).get("textFormat")
    if text_format:
        schema = text_format["structure"]["jsonSchema"]
        schema["schema"] = msgspec.json.decode(schema["schema"])
    return value


class Official:
    """A boto3 client whose transport is a hook."""

    def __init__(self, service: str = "bedrock-runtime", token: str | None = None) -> None:
        """Sign with fixed credentials; `token` is the session's."""
        self.client: Any
        self.sent: list[Sent] = []
        self.answer = Wire()
        session: Any = boto3.Session(ACCESS_KEY, SECRET_KEY, token, REGION)
        config = Config(retries={"total_max_attempts": 1})
        self.client = session.client(service, config=config)
        self.client.meta.events.register("before-send", self._send)

    def call(self, method: str, **parameters: Any) -> Any:
        """What the client makes of the answer."""
        return getattr(self.client, method)(**parameters)

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        headers = {
            str(name).lower(): value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        self.sent.append(Sent(request.method, request.url, headers, request.body or b""))
        answer = self.answer
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(answer.body), headers=answer.headers, preload_content=False
        )
        found = urllib3.HTTPHeaderDict(answer.headers or {})
        return AWSResponse(request.url, answer.status, found, raw)
