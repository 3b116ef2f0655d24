"""What we send is what boto3 sends for the same intent.

Differences, all of them and why:

- A colon in a model's id is not escaped: RFC 3986 allows it in a path, our HTTP client would send
  it bare in any case, and a signature must cover what is sent. The server sees the same path.
- boto3 adds headers about itself: `user-agent`, `amz-sdk-invocation-id`, `amz-sdk-request`. The
  service needs none of them, and they are signed by neither.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import user
from penstock.providers.bedrock import DIALECT
from penstock.providers.credentials import Secret
from penstock.providers.wire.dialect import WireCall
from tests.oracle.bedrock.intents import INTENTS, INVOCATIONS, Invocation
from tests.oracle.bedrock.official import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    Official,
    Sent,
    Wire,
    readable,
)
from tests.oracle.bedrock.wishes import HI, SONNET, Intent

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
VECTOR = b'{"embedding": [0.5], "inputTextTokenCount": 1}'


@pytest.fixture(scope="module")
def official() -> Official:
    return Official()


def ours(model: str, request: SamplingRequest, *, stream: bool = False) -> WireCall:
    return DIALECT.encode(model, request, DIALECT.catalogue.profile("bedrock", model, {}), stream)


def test_there_are_enough_intents() -> None:
    assert len({intent.id for intent in INTENTS}) == len(INTENTS) >= 40


@pytest.mark.parametrize("method", ["converse", "converse_stream"])
@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.id)
def test_an_intent_is_said_as_boto3_says_it(
    official: Official, intent: Intent, method: str
) -> None:
    official.answer = Wire()
    official.call(method, modelId=intent.model, **intent.official)
    sent = official.sent[-1]
    call = ours(intent.model, intent.request, stream=method == "converse_stream")
    assert call.body is not None
    assert readable(call.body) == sent.json
    assert (call.method, call.path) == (sent.method, sent.path)


@pytest.mark.parametrize("invocation", INVOCATIONS, ids=lambda each: each.id)
def test_an_embedding_call_is_boto3s(official: Official, invocation: Invocation) -> None:
    official.answer = Wire(VECTOR, {"content-type": "application/json"})
    official.call(
        "invoke_model",
        modelId=invocation.model,
        body=msgspec.json.encode(invocation.body),
        contentType="application/json",
    )
    sent = official.sent[-1]
    request = EmbeddingRequest(texts=invocation.texts, dimensions=invocation.dimensions)
    assert DIALECT.embeddings is not None
    call = DIALECT.embeddings.encode(invocation.model, invocation.texts, request, {})
    assert call.body is not None
    assert msgspec.json.decode(call.body) == sent.json
    assert (call.method, call.path) == (sent.method, sent.path)
    assert sent.headers["content-type"] == "application/json"


def test_tokens_are_counted_as_boto3_counts_them(official: Official) -> None:
    official.answer = Wire(b'{"inputTokens": 3}')
    official.call(
        "count_tokens",
        modelId="anthropic.claude-sonnet-5",
        input={"converse": {"messages": HI, "system": [{"text": "Be brief."}]}},
    )
    sent = official.sent[-1]
    request = SamplingRequest(messages=(user("Hi"),), max_tokens=5, system_prompt="Be brief.")
    assert DIALECT.count is not None
    profile = DIALECT.catalogue.profile("bedrock", SONNET, {})
    call = DIALECT.count.encode(SONNET, request, profile)
    assert call is not None
    assert call.body is not None
    assert readable(call.body) == sent.json
    assert call.path == sent.path


def test_models_are_listed_where_boto3_lists_them() -> None:
    control = Official("bedrock")
    control.answer = Wire(b'{"modelSummaries": []}')
    control.call("list_foundation_models")
    call = DIALECT.models.call(f"https://bedrock-runtime.{REGION}.amazonaws.com", {})
    assert (call.method, call.path) == (control.sent[-1].method, control.sent[-1].url)
    assert DIALECT.address is not None
    assert DIALECT.address({"region": REGION}) == f"https://bedrock-runtime.{REGION}.amazonaws.com"


@pytest.mark.parametrize("token", [None, "IQoJb3JpZ2luX2VjEXAMPLE//////////wEaCWV1"])
@pytest.mark.parametrize("intent", INTENTS[:3], ids=lambda intent: intent.id)
async def test_a_request_is_signed_as_boto3_signs_it(
    monkeypatch: pytest.MonkeyPatch, intent: Intent, token: str | None
) -> None:
    _freeze(monkeypatch, token)
    official = Official(token=token)
    official.call("converse", modelId=intent.model, **intent.official)
    sent = official.sent[-1]
    assert await _signed(sent, {}) == _about_signing(sent)
    assert ("x-amz-security-token" in _about_signing(sent)) == (token is not None)


async def test_a_request_without_a_body_is_signed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours carries a content type, which boto3's does not, so the signed headers differ in it."""
    _freeze(monkeypatch, None)
    control = Official("bedrock")
    control.answer = Wire(b'{"modelSummaries": []}')
    control.call("list_foundation_models")
    sent = control.sent[-1]
    signed, expected = await _signed(sent, {}), _about_signing(sent)
    assert signed["x-amz-date"] == expected["x-amz-date"]
    assert signed["authorization"].split(",")[0] == expected["authorization"].split(",")[0]
    assert "SignedHeaders=content-type;host;x-amz-date" in signed["authorization"]
    assert "SignedHeaders=host;x-amz-date" in expected["authorization"]


async def test_a_bearer_token_is_sent_as_boto3_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-0123")
    official = Official()
    official.call("converse", modelId="m", messages=HI)
    sent = official.sent[-1]
    assert DIALECT.signer is not None
    key = Secret("bedrock-api-key-0123")
    from_environment = await DIALECT.signer(None, {})(WireCall("/"), sent.url, {})
    given = await DIALECT.signer(key, {})(WireCall("/"), "http://localhost", {})
    assert from_environment == given == {"authorization": sent.headers["authorization"]}


def _freeze(monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    def now() -> datetime.datetime:
        return NOW

    monkeypatch.setattr("botocore.auth.get_current_datetime", now)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


async def _signed(sent: Sent, options: dict[str, Any]) -> dict[str, str]:
    """Our signature of the very request that boto3 sent; the host tells the region."""
    assert DIALECT.signer is not None
    method: Any = sent.method
    call = WireCall("", sent.body or None, method)
    own = {"content-type": "application/json"}
    headers = dict(await DIALECT.signer(None, options)(call, sent.url, own))
    assert headers.pop("content-type") == "application/json"
    return headers


def _about_signing(sent: Sent) -> dict[str, str]:
    names = ("authorization", "x-amz-date", "x-amz-security-token")
    return {name: sent.headers[name] for name in names if name in sent.headers}
