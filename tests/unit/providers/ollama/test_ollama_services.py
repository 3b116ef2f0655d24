"""Address, key, models, embeddings and what the catalogue says."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import (
    ConfigurationError,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    ProviderUnavailable,
)
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.contract.ports import ModelInfo
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.http_provider import WireProvider
from penstock.providers.ollama import DIALECT, address
from penstock.providers.registry import ProviderSettings, build
from tests.support.raw import Peer, RawServer, whole

EMBEDDINGS = DIALECT.embeddings


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OLLAMA_BASE_URL", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.2.3.4", "http://1.2.3.4:11434"),
        ("1.2.3.4:5", "http://1.2.3.4:5"),
        (":5", "http://127.0.0.1:5"),
        ("example.com", "http://example.com:11434"),
        ("example.com:5", "http://example.com:5"),
        ("example.com/", "http://example.com:11434"),
        ("example.com/path", "http://example.com:11434/path"),
        ("example.com:5/path/", "http://example.com:5/path"),
        ("http://example.com", "http://example.com:80"),
        ("HTTPS://example.com", "https://example.com:443"),
        ("https://example.com:5/path", "https://example.com:5/path"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:5", "http://127.0.0.1:5"),
        ("http://0.0.0.0:5", "http://127.0.0.1:5"),
        ("::", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::]:5", "http://[::1]:5"),
        ("[1:2:3:4::1]/path", "http://[1:2:3:4::1]:11434/path"),
        ("http://[::1]:5", "http://[::1]:5"),
        ("ollama.com", "https://ollama.com:443"),
        (' "example.com:5" ', "http://example.com:5"),
        ("http://", "http://127.0.0.1:80"),
    ],
)
def test_every_form_of_an_address(value: str, expected: str) -> None:
    assert address.parse(value) == expected


@pytest.mark.parametrize(
    "value", ["host:port", "ftp://host", "http://me:pw@host", "host:99999", "http://h/?a=b", "[::"]
)
def test_what_is_no_address_is_refused(clean: pytest.MonkeyPatch, value: str) -> None:
    clean.setenv("OLLAMA_HOST", value)
    with pytest.raises(ConfigurationError):
        build(ProviderSettings("ollama", "ollama"), HttpTransport())


@pytest.mark.parametrize(
    ("variables", "settings", "url"),
    [
        ({}, {}, "http://localhost:11434"),
        ({"OLLAMA_HOST": " "}, {}, "http://localhost:11434"),
        ({"OLLAMA_HOST": "gpu:5"}, {}, "http://gpu:5"),
        ({"OLLAMA_HOST": "gpu:5", "OLLAMA_BASE_URL": "http://b:6/x"}, {}, "http://b:6/x"),
        ({"OLLAMA_HOST": "gpu:5"}, {"url": "https://mine/ollama"}, "https://mine/ollama"),
    ],
)
def test_where_it_is_and_that_no_key_is_needed(
    clean: pytest.MonkeyPatch, variables: dict[str, str], settings: dict[str, Any], url: str
) -> None:
    for name, value in variables.items():
        clean.setenv(name, value)
    provider = build(ProviderSettings("ollama", "ollama", **settings), HttpTransport())
    assert isinstance(provider, WireProvider)
    assert provider.url == url


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, "Bearer from-environment"),
        ({"auth_token": Secret("own")}, "Bearer own"),
    ],
)
async def test_a_key_goes_out_if_there_is_one(
    clean: pytest.MonkeyPatch, settings: dict[str, Any], sent: str
) -> None:
    async def answer(peer: Peer) -> None:
        while await peer.request():
            await peer.send(whole(b'{"models": []}'))

    async with RawServer(answer) as server, HttpTransport() as transport:
        clean.setenv("OLLAMA_HOST", server.url)
        clean.setenv("OLLAMA_API_KEY", "from-environment")
        await build(ProviderSettings("o", "ollama", **settings), transport).models()
        clean.delenv("OLLAMA_API_KEY")
        await build(ProviderSettings("o", "ollama"), transport).models()
        first, second = server.requests
    assert first.headers["authorization"] == sent
    assert "authorization" not in second.headers
    assert first.line == "GET /api/tags HTTP/1.1"


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (b'{"models": [{"name": "a:latest", "model": "a:latest", "size": 1}]}', ["a:latest"]),
        (b'{"models": [{"name": "old"}, {}]}', ["old"]),
        (b'{"models": []}', []),
        (b'{"models": null}', []),
    ],
)
def test_models(body: bytes, ids: list[str]) -> None:
    assert DIALECT.models.decode(body) == [ModelInfo(id) for id in ids]


@pytest.mark.parametrize("body", [b"Ollama is running", b"{}", b"[]", b'{"models": 1}'])
def test_malformed_lists_of_models(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        DIALECT.models.decode(body)


def test_an_error_instead_of_models() -> None:
    with pytest.raises(ProviderUnavailable, match="disk"):
        DIALECT.models.decode(b'{"error": "disk"}')


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ({}, {}, {}),
        ({"dimensions": 64}, {}, {"dimensions": 64}),
        ({}, {"context": 2048}, {"options": {"num_ctx": 2048}}),
    ],
)
def test_texts_out(
    fields: dict[str, Any], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert EMBEDDINGS is not None
    request = EmbeddingRequest(texts=("a", "b"), **fields)
    call = EMBEDDINGS.encode("m", ("a", "b"), request, options)
    assert call.path == "/api/embed"
    assert msgspec.json.decode(call.body or b"") == {"model": "m", "input": ["a", "b"]} | expected


def test_vectors_in() -> None:
    assert EMBEDDINGS is not None
    body = b'{"model": "m:latest", "embeddings": [[1, 0.5], [2, 3]], "prompt_eval_count": 8}'
    assert EMBEDDINGS.decode(body, "m", {}) == Vectors(
        ((1.0, 0.5), (2.0, 3.0)), "m:latest", Usage(input_tokens=8)
    )


@pytest.mark.parametrize("body", [b"", b"{}", b'{"embeddings": 1}', b'{"embedding": [1]}'])
def test_malformed_vectors(body: bytes) -> None:
    assert EMBEDDINGS is not None
    with pytest.raises(MalformedResponse):
        EMBEDDINGS.decode(body, "m", {})
    assert EMBEDDINGS.fallback is not None
    if b"embedding" not in body:
        with pytest.raises(MalformedResponse):
            EMBEDDINGS.fallback.decode(body, "m", {})


async def _embed(
    answers: dict[str, bytes], request: EmbeddingRequest
) -> tuple[Vectors | Exception, list[str]]:
    async def answer(peer: Peer) -> None:
        while request := await peer.request():
            await peer.send(answers[request.line.split()[1]])

    async with RawServer(answer) as server, HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        try:
            found: Vectors | Exception = await provider.embed("m", request)
        except Exception as error:  # noqa: BLE001
            found = error
        return found, [seen.line.split()[1] for seen in server.requests]


UNKNOWN_PATH = whole(b"404 page not found", status="404 Not Found")
UNKNOWN_MODEL = whole(b'{"error": "model \\"m\\" not found"}', status="404 Not Found")
ONE = whole(b'{"embedding": [1, 2]}')
TEXTS = EmbeddingRequest(texts=("a", "b", "c"))


async def test_an_old_server_is_asked_text_by_text() -> None:
    found, paths = await _embed({"/api/embed": UNKNOWN_PATH, "/api/embeddings": ONE}, TEXTS)
    assert found == Vectors(((1.0, 2.0),) * 3, "m", api_calls=4)
    assert paths == ["/api/embed", *["/api/embeddings"] * 3]


async def test_an_unknown_model_is_not_asked_for_twice() -> None:
    found, paths = await _embed({"/api/embed": UNKNOWN_MODEL}, TEXTS)
    assert isinstance(found, ModelNotFound)
    assert "ollama pull" in str(found)
    assert paths == ["/api/embed"]


async def test_an_unknown_model_on_an_old_server_is_still_an_unknown_model() -> None:
    answers = {"/api/embed": UNKNOWN_PATH, "/api/embeddings": UNKNOWN_MODEL}
    found, _ = await _embed(answers, EmbeddingRequest(texts=("a",)))
    assert isinstance(found, ModelNotFound)


async def test_an_old_server_has_no_dimensions() -> None:
    answers = {"/api/embed": UNKNOWN_PATH, "/api/embeddings": ONE}
    found, paths = await _embed(answers, EmbeddingRequest(texts=("a",), dimensions=2))
    assert isinstance(found, InvalidRequest)
    assert found.problems[0].path == "dimensions"
    assert paths == ["/api/embed"]


def test_the_catalogue() -> None:
    able = DIALECT.catalogue.profile("ollama", "llama3.2", {}).capabilities
    absent = (able.tool_choice, able.image_urls, able.parallel_tools_switch, able.audio)
    assert not any(absent)
    assert all((able.tools, able.images, able.prefill, able.embeddings, able.reasoning))
