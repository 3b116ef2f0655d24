"""The rows of providers, and building one from its settings."""

import importlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.providers.credentials import Secret
from penstock.providers.fake.provider import FakeProvider
from penstock.providers.http.transport import HttpTransport
from penstock.providers.http_provider import WireProvider
from penstock.providers.kinds import ProviderKind
from penstock.providers.registry import (
    BUILT_IN,
    ProviderSettings,
    build,
    unknown_kind,
)
from penstock.providers.wire.dialect import Dialect
from tests.support.raw import RawServer, answering, whole

ASK = SamplingRequest(messages=(user("hi"),), max_tokens=9)
HOSTED = [kind for kind in BUILT_IN.values() if kind.key_variables and kind.url]
SERVERS = [kind for kind in BUILT_IN.values() if kind.url and not kind.key_variables]


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport


def sent_headers(provider: object) -> Mapping[str, str]:
    """What the provider would send; there is no other way to see it without a server."""
    return vars(provider)["_headers"]


@pytest.mark.parametrize("kind", BUILT_IN.values(), ids=lambda kind: kind.name)
def test_every_row_is_complete(kind: ProviderKind) -> None:
    assert BUILT_IN[kind.name] is kind
    assert re.fullmatch(r"[a-z][a-z0-9-]*", kind.name)
    assert kind.title
    assert (kind.dialect is None) != (kind.local is None)
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", name) for name in kind.key_variables)
    assert not (kind.url and kind.local)


@pytest.mark.parametrize("kind", HOSTED, ids=lambda kind: kind.name)
def test_a_hosted_provider_is_reached_by_tls_only(kind: ProviderKind) -> None:
    assert urlsplit(kind.url).scheme == "https"
    assert not kind.url.endswith("/")


@pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.name)
def test_a_server_of_ones_own_is_on_this_machine(kind: ProviderKind) -> None:
    assert urlsplit(kind.url).hostname == "localhost"


def test_addresses_are_not_used_twice() -> None:
    places = [(kind.dialect, kind.url) for kind in BUILT_IN.values() if kind.dialect]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("kind", BUILT_IN.values(), ids=lambda kind: kind.name)
def test_every_row_leads_to_code(kind: ProviderKind) -> None:
    if isinstance(kind.local, str):
        module, _, name = kind.local.partition(":")
        assert callable(getattr(importlib.import_module(f"penstock.providers.{module}"), name))
    else:
        dialect = importlib.import_module(f"penstock.providers.{kind.dialect}").DIALECT
        assert isinstance(dialect, Dialect)
        # An address that is in no row has to be found by the dialect.
        assert kind.url or dialect.address is not None


@pytest.mark.parametrize("kind", HOSTED, ids=lambda kind: kind.name)
def test_without_its_key_a_hosted_provider_names_the_variable(
    kind: ProviderKind, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(ProviderSettings("mine", kind.name), transport)
    variable = kind.key_variables[0]
    assert str(caught.value).startswith(f"provider 'mine' needs a key: set {variable}")
    assert str(caught.value).endswith("auth_token in [providers.mine]")
    monkeypatch.setenv(variable, "sk-1")
    provider = build(ProviderSettings("mine", kind.name), transport)
    assert isinstance(provider, WireProvider)
    assert provider.name == "mine"
    assert provider.url == kind.url
    assert not {"sk-1", "Bearer sk-1"}.isdisjoint(sent_headers(provider).values())
    assert "sk-1" not in repr(provider)


@pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.name)
def test_a_server_of_ones_own_needs_no_key(kind: ProviderKind, transport: HttpTransport) -> None:
    provider = build(ProviderSettings(kind.name, kind.name), transport)
    assert "authorization" not in sent_headers(provider)


def test_a_key_in_the_settings_outranks_the_variable(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "sk-environment")
    settings = ProviderSettings("groq", "groq", auth_token=Secret("sk-settings"))
    assert sent_headers(build(settings, transport))["authorization"] == "Bearer sk-settings"


def test_the_key_of_the_variable_is_not_sent_to_another_address(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    settings = ProviderSettings("local", "openai-chat", url="http://127.0.0.1:8000/v1/")
    provider = build(settings, transport)
    assert isinstance(provider, WireProvider)
    assert provider.url == "http://127.0.0.1:8000/v1"
    assert "sk-openai" not in str(sent_headers(provider))


def test_the_address_of_gemini_may_come_from_the_variable_of_googles_own_client(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "sk-1")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:8000/")
    provider = build(ProviderSettings("gemini", "gemini"), transport)
    assert isinstance(provider, WireProvider)
    assert provider.url == "http://127.0.0.1:8000"
    assert sent_headers(provider)["x-goog-api-key"] == "sk-1"


def test_an_address_may_come_from_the_environment_together_with_its_key(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    settings = ProviderSettings("openai-chat", "openai-chat")
    provider = build(settings, transport)
    assert isinstance(provider, WireProvider)
    assert provider.url == "http://127.0.0.1:8000/v1"
    assert "authorization" not in sent_headers(provider)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert sent_headers(build(settings, transport))["authorization"] == "Bearer sk-1"


def test_further_headers_replace_ours_whatever_their_case(transport: HttpTransport) -> None:
    settings = ProviderSettings(
        "vllm",
        "vllm",
        auth_token=Secret("sk-1"),
        headers={"Authorization": "Basic abc", "X-Team": "a"},
    )
    assert sent_headers(build(settings, transport)) == {
        "content-type": "application/json",
        "authorization": "Basic abc",
        "x-team": "a",
    }


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "ftp://x/v1",
        "localhost:8000",
        "http://[::1/v1",
        "http://a..b/v1",
        "http://host:99999/v1",
        f"http://{'a' * 70}.com/v1",
    ],
)
def test_an_address_that_is_none_is_refused(
    url: str, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ProviderSettings("mine", "vllm", url=url or "http:")
    with pytest.raises(ConfigurationError, match="url of provider 'mine' is not an http or https"):
        build(settings, transport)
    if url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(ConfigurationError, match="is not an http or https"):
            build(ProviderSettings("openai-chat", "openai-chat"), transport)


@pytest.mark.parametrize(
    "url", ["https://me:sk-secret@x/v1", "https://x/v1?key=sk-secret", "https://x/v1#sk-secret"]
)
def test_a_key_inside_the_address_is_refused_and_not_shown(
    url: str, transport: HttpTransport
) -> None:
    with pytest.raises(ConfigurationError, match="a key belongs in auth_token") as caught:
        build(ProviderSettings("mine", "vllm", url=url), transport)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("token", "headers", "message"),
    [
        ("sk-secret\nx: y", {}, "the key of provider 'mine' holds a line break"),
        ("sk-secret\0", {}, "the key of provider 'mine' holds a line break"),
        ("sk", {"x": "sk-secret\r\ny: z"}, "'x' cannot be sent as a header"),
        ("sk", {"a b": "sk-secret"}, "'a b' cannot be sent as a header"),
        ("sk", {"": "sk-secret"}, "'' cannot be sent as a header"),
    ],
)
def test_what_no_header_can_carry_is_refused_and_not_shown(
    token: str, headers: dict[str, str], message: str, transport: HttpTransport
) -> None:
    settings = ProviderSettings("mine", "vllm", auth_token=Secret(token), headers=headers)
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        build(settings, transport)
    assert "sk-secret" not in str(caught.value)


def test_a_local_provider_is_built_with_its_name(transport: HttpTransport) -> None:
    provider = build(ProviderSettings("mine", "fake"), transport)
    assert isinstance(provider, FakeProvider)
    assert provider.name == "mine"


@pytest.mark.parametrize(
    ("kind", "settings", "foreign"),
    [
        ("vllm", {"options": {"threads": 2, "context": 512}}, "vllm knows no threads, context"),
        ("fake", {"options": {"threads": 2}}, "fake knows no threads"),
        ("embedded", {"url": "http://x"}, "embedded knows no url"),
        (
            "fake",
            {"auth_token": Secret("x"), "headers": {"a": "b"}},
            "fake knows no auth_token, headers",
        ),
    ],
)
def test_a_setting_that_the_kind_does_not_know_is_refused(
    kind: str, settings: dict[str, Any], foreign: str, transport: HttpTransport
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(ProviderSettings("mine", kind, **settings), transport)
    assert str(caught.value) == f"[providers.mine]: {foreign}"


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("grok", "did you mean 'groq'?"), ("opnai-chat", "did you mean 'openai-chat'?")],
)
def test_an_unknown_kind_is_refused_with_the_nearest_one(
    kind: str, hint: str, transport: HttpTransport
) -> None:
    with pytest.raises(PenstockError) as caught:
        build(ProviderSettings("mine", kind), transport)
    assert str(caught.value) == f"there is no provider {kind!r}; {hint}"


def test_an_unknown_kind_that_resembles_none_gets_them_all() -> None:
    assert unknown_kind("zzz", ["b", "a"]) == "there is no provider 'zzz'; known: a, b"
    assert ", ".join(sorted(BUILT_IN)) in unknown_kind("zzzzzz")


@pytest.mark.parametrize(
    ("kind", "path", "hint"),
    [
        ("openai-chat", "", "; if the API of this server is below /v1, add that to the url"),
        ("openai", "/", "; if the API of this server is below /v1, add that to the url"),
        ("vllm", "", "; if the API of this server is below /v1, add that to the url"),
        ("openai-chat", "/v1", ""),
        ("openai-chat", "/proxy/llm", ""),
        (
            "openai-chat",
            "/v1/chat/completions",
            "; the url is a base address: leave /chat/completions out",
        ),
        ("anthropic", "/v1", "; leave /v1 out of the url"),
        ("anthropic", "", ""),
        ("ollama", "/v1", "; leave /v1 out of the url"),
    ],
)
async def test_an_address_with_a_wrong_path_gets_a_hint(
    kind: str, path: str, hint: str, transport: HttpTransport
) -> None:
    body = whole(b'{"detail": "Not Found"}', status="404 Not Found")
    async with RawServer(answering(body)) as server:
        settings = ProviderSettings("mine", kind, url=server.url + path, auth_token=Secret("sk-1"))
        provider = build(settings, transport)
        with pytest.raises(PenstockError) as listing:
            await provider.models()
        with pytest.raises(PenstockError) as asking:
            await provider.generate("m", ASK)
    for error in (listing.value, asking.value):
        # Ollama words its own advice.
        advice = "the age of the server" if kind == "ollama" else "the model's name"
        assert error.message.endswith(advice + hint)
        assert str(error) == error.message
