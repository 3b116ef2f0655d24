"""Embeddings, the model list, counting, and what the models are able to do."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import MalformedResponse, RateLimited
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, Usage, Vectors
from penstock.contract.messages import user
from penstock.contract.options import ToolDefinition
from penstock.contract.ports import ModelInfo
from penstock.providers.gemini import DIALECT, count, embeddings, models
from penstock.providers.gemini.catalogue import CATALOGUE
from penstock.providers.registry import BUILT_IN
from penstock.providers.wire.dialect import WireCall

ERROR = b'{"error": {"code": 429, "message": "no", "status": "RESOURCE_EXHAUSTED"}}'


def _json(call: WireCall) -> Any:
    return msgspec.json.decode(call.body or b"")


def test_every_text_is_a_content_of_its_own() -> None:
    asked = EmbeddingRequest(texts=("a", "b"), dimensions=64)
    call = embeddings.encode("models/e", ("a", "b"), asked, {"api_version": "v1"})
    assert call.path == "/v1/models/e:batchEmbedContents"
    assert _json(call) == {
        "requests": [
            {
                "model": "models/e",
                "outputDimensionality": 64,
                "content": {"parts": [{"text": text}]},
            }
            for text in ("a", "b")
        ]
    }
    plain = embeddings.encode("e", ("a",), EmbeddingRequest(texts=("a",)), {})
    assert _json(plain)["requests"][0].keys() == {"model", "content"}


def test_vectors() -> None:
    body = b'{"embeddings": [{"values": [1, 0.5]}, {"values": [0, 2]}]}'
    assert embeddings.decode(body, "e") == Vectors(((1.0, 0.5), (0.0, 2.0)), "e")
    counted = b'{"embeddings": [], "usageMetadata": {"promptTokenCount": 3}}'
    assert embeddings.decode(counted, "e").usage == Usage(3)


def test_models_are_named_as_requests_name_them() -> None:
    body = b'{"models": [{"name": "models/a", "version": "1"}, {"name": "b"}, {}]}'
    assert models.decode(body) == [ModelInfo("a", "google"), ModelInfo("b", "google")]
    call = models.call("", {})
    assert (call.method, call.path, call.body) == ("GET", "/v1beta/models?pageSize=1000", None)


def test_the_whole_request_is_counted() -> None:
    asked = SamplingRequest(
        messages=(user("Hi"),),
        max_tokens=5,
        system_prompt="Be brief.",
        tools=(ToolDefinition("t"),),
    )
    call = count.encode("m", asked, CATALOGUE.profile("gemini", "m", {}))
    assert call.path == "/v1beta/models/m:countTokens"
    whole = _json(call)["generateContentRequest"]
    assert whole["model"] == "models/m"
    assert whole.keys() == {
        "model",
        "contents",
        "systemInstruction",
        "tools",
        "generationConfig",
    }
    assert whole["generationConfig"] == {}
    assert count.decode(b'{"totalTokens": 31, "promptTokensDetails": []}') == 31


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"embeddings": 7, "models": 7}', b"<html>"])
def test_what_is_no_answer(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        embeddings.decode(body, "e")
    with pytest.raises(MalformedResponse):
        models.decode(body)
    with pytest.raises(MalformedResponse):
        count.decode(body)


def test_an_empty_vector_is_no_answer() -> None:
    with pytest.raises(MalformedResponse):
        embeddings.decode(b'{"embeddings": [{}]}', "e")


def test_errors_under_a_good_status() -> None:
    with pytest.raises(RateLimited):
        embeddings.decode(ERROR, "e")
    with pytest.raises(RateLimited):
        models.decode(ERROR)
    with pytest.raises(RateLimited):
        count.decode(ERROR)


@pytest.mark.parametrize(
    ("model", "facts"),
    [
        (
            "gemini-3.8-flash",
            {"context_window": 1_048_576, "max_output": 65_536, "reasoning": True, "audio": True},
        ),
        ("models/gemini-2.5-pro", {"context_window": 1_048_576, "embeddings": False}),
        ("gemini-2.0-flash", {"reasoning": False, "image_urls": False, "max_output": 8_192}),
        ("gemini-2.5-pro", {"reasoning_off": False, "prefill": True}),
        ("gemini-2.5-flash", {"reasoning_off": True, "prefill": True}),
        ("gemini-3.1-pro-preview", {"reasoning_off": False, "prefill": True}),
        ("gemini-3.8-flash", {"reasoning_off": True, "prefill": False}),
        ("gemini-4-argon", {"prefill": False, "max_output": 65_536}),
        ("gemma-3-27b-it", {"system_prompt": False, "tools": False, "audio": False}),
        ("gemini-embedding-2", {"embeddings": True, "context_window": 8_192}),
        (
            "unknown",
            {
                "max_stop_sequences": 5,
                "max_temperature": 2.0,
                "parallel_tools_switch": False,
                "image_urls": True,
                "embeddings": True,
                "prefill": False,
            },
        ),
    ],
)
def test_capabilities(model: str, facts: dict[str, Any]) -> None:
    found = CATALOGUE.profile("gemini", model, {}).capabilities
    assert {name: getattr(found, name) for name in facts} == facts


def test_the_key_and_its_variables() -> None:
    assert DIALECT.authorize("k") == {"x-goog-api-key": "k"}
    assert BUILT_IN["gemini"].key_variables == ("GEMINI_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
