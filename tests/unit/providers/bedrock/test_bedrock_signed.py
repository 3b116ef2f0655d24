"""A signature still fits when the request has gone through the HTTP client."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any
from urllib.parse import quote

import pytest
from botocore import auth, awsrequest
from botocore.credentials import Credentials

import penstock
from penstock import Config
from penstock.config.settings import ProviderConfig
from tests.unit.providers.bedrock.bedrock_wire import body

MODELS = (
    "amazon.nova-micro-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.amazon.nova-micro-v1:0",
    "strange name (1) + 50% @ é",
)


@pytest.mark.parametrize("model", MODELS)
async def test_what_arrives_is_what_was_signed(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        written = await reader.readexactly(int(headers["content-length"]))
        seen.append((first.split(" ")[1], headers, written))
        answer = body({"text": "Hello"})
        head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = ProviderConfig(
            kind="bedrock",
            url=f"{url}/front%3Adoor",
            region="eu-west-1",
            headers={"X-Amz-Guardrail": "g1", "X-Trace": "t1"},
        )
        async with penstock.open(Config(providers={"aws": settings})) as engine:
            result = await engine.create_message("Hi 👋", max_tokens=5, model=f"aws/{model}")
    assert result.text == "Hello"
    ((target, headers, written),) = seen
    assert target == f"/front%3Adoor/model/{quote(model, safe='')}/converse"
    assert (headers["x-amz-guardrail"], headers["x-trace"]) == ("g1", "t1")
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    assert names == "content-type;host;x-amz-date;x-amz-guardrail;x-amz-security-token"
    assert headers["authorization"] == _signature(monkeypatch, url + target, headers, written)


def _signature(
    monkeypatch: pytest.MonkeyPatch, url: str, headers: dict[str, str], written: bytes
) -> str:
    """What the other side computes from what it has received."""
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    moment = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")

    def now() -> datetime.datetime:
        return moment

    monkeypatch.setattr(auth, "get_current_datetime", now)
    own = ("x-amz-date", "x-amz-security-token")
    received = {name: headers[name] for name in names if name not in own}
    request: Any = awsrequest.AWSRequest("POST", url, received, written)
    credentials: Any = Credentials("AKIDEXAMPLE", "secret", headers["x-amz-security-token"])
    signer: Any = auth.SigV4Auth(credentials, "bedrock", "eu-west-1")
    signer.add_auth(request)
    return request.headers["Authorization"]
