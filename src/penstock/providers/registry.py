"""Which providers there are: a row of data each, and code only where a protocol needs it.

To add a provider that speaks a known dialect, add a row to `BUILT_IN`. Packages add kinds of
their own by entry points: see `kinds`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import Provider
from penstock.providers.credentials import Secret, key_from_environment
from penstock.providers.http.transport import HttpTransport
from penstock.providers.http_provider import WireProvider
from penstock.providers.kinds import CallableNames, Kinds, ProviderKind
from penstock.providers.wire.dialect import Dialect

_TOKEN = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
"""What HTTP allows as the name of a header."""


def _chat(
    name: str,
    title: str,
    url: str,
    *key_variables: str,
    transcription_model: str = "",
    model_prefixes: tuple[str, ...] = (),
) -> ProviderKind:
    return ProviderKind(
        name,
        title,
        dialect="openai_chat",
        url=url,
        key_variables=key_variables,
        transcription_model=transcription_model,
        model_prefixes=model_prefixes,
    )


_MOST_LISTED = 100
_VERSION = "/v1"
_ENDPOINTS = ("/chat/completions", "/responses", "/messages", "/embeddings", "/api/chat")
"""What a url ends with that was copied from an example of a call."""
"""An error names at most so many providers."""
BUILT_IN: Mapping[str, ProviderKind] = {
    kind.name: kind
    for kind in (
        ProviderKind(
            "anthropic",
            "Anthropic Messages, and every compatible server by its url",
            dialect="anthropic",
            url="https://api.anthropic.com",
            key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            url_variables=("ANTHROPIC_BASE_URL",),
            options=("api_version",),
            model="claude-haiku-5-5",
            model_prefixes=("claude-",),
        ),
        ProviderKind(
            "bedrock",
            "Amazon Bedrock (Converse)",
            dialect="bedrock",
            url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
            options=("region", "profile"),
            model="global.anthropic.claude-haiku-5-5",
            embedding_model="amazon.titan-embed-text-v2:0",
        ),
        ProviderKind(
            "embedded",
            "the bundled model, in this process",
            local="embedded.provider:EmbeddedProvider",
            options=("model_path", "threads", "context"),
            model="default",
            embedding_model="wordllama",
        ),
        ProviderKind(
            "fake",
            "scripted answers, for tests",
            local="fake.provider:FakeProvider",
            unasked=False,
            model="echo",
            embedding_model="echo",
            transcription_model="echo",
        ),
        ProviderKind(
            "gemini",
            "Google Gemini",
            dialect="gemini",
            url="https://generativelanguage.googleapis.com",
            key_variables=("GEMINI_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
            url_variables=("GOOGLE_GEMINI_BASE_URL",),
            options=("api_version",),
            model="gemini-3.8-flash",
            ignored_prefix="models/",
            embedding_model="gemini-embedding-2",
            transcription_model="gemini-3.8-flash",
            model_prefixes=("gemini-",),
        ),
        ProviderKind(
            "ollama",
            "Ollama, local or its cloud",
            dialect="ollama",
            # Its address is read from the environment; a key is wanted by the cloud only.
            key_variables=("OLLAMA_API_KEY",),
            options=("context",),
            ignored_suffix=":latest",
            embedding_model="nomic-embed-text",
        ),
        ProviderKind(
            "openai",
            "OpenAI Responses",
            dialect="openai_responses",
            url="https://api.openai.com/v1",
            key_variables=("OPENAI_API_KEY",),
            url_variables=("OPENAI_BASE_URL",),
            model="gpt-6-luna",
            embedding_model="text-embedding-3-small",
            transcription_model="gpt-4o-mini-transcribe",
            model_prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-3-"),
        ),
        ProviderKind(
            "openai-chat",
            "OpenAI Chat Completions, and every compatible server by its url",
            dialect="openai_chat",
            url="https://api.openai.com/v1",
            key_variables=("OPENAI_API_KEY",),
            url_variables=("OPENAI_BASE_URL",),
            model="gpt-6-luna",
            embedding_model="text-embedding-3-small",
            transcription_model="gpt-4o-mini-transcribe",
        ),
        _chat("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _chat("deepinfra", "DeepInfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
        _chat(
            "deepseek",
            "DeepSeek",
            "https://api.deepseek.com/v1",
            "DEEPSEEK_API_KEY",
            model_prefixes=("deepseek-",),
        ),
        _chat(
            "fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"
        ),
        _chat(
            "groq",
            "Groq",
            "https://api.groq.com/openai/v1",
            "GROQ_API_KEY",
            transcription_model="whisper-large-v3-turbo",
        ),
        _chat("huggingface", "Hugging Face router", "https://router.huggingface.co/v1", "HF_TOKEN"),
        _chat("llamacpp", "llama.cpp server", "http://localhost:8080/v1"),
        _chat("lmstudio", "LM Studio", "http://localhost:1234/v1"),
        _chat(
            "mistral",
            "Mistral",
            "https://api.mistral.ai/v1",
            "MISTRAL_API_KEY",
            model_prefixes=("mistral-", "ministral-", "codestral-", "pixtral-", "magistral-"),
        ),
        _chat("moonshot", "Moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
        _chat("nvidia", "NVIDIA NIM", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
        _chat("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        _chat("perplexity", "Perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
        _chat("sambanova", "SambaNova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
        _chat("together", "Together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _chat("vllm", "vLLM server", "http://localhost:8000/v1"),
        _chat("xai", "xAI", "https://api.x.ai/v1", "XAI_API_KEY", model_prefixes=("grok-",)),
    )
}
"""The kinds of Penstock."""
KINDS: Mapping[str, ProviderKind] = Kinds(
    BUILT_IN,
    {kind.dialect for kind in BUILT_IN.values() if isinstance(kind.dialect, str)},
)
"""These, and those of installed packages."""


def callable_names(configured: Iterable[str]) -> Set[str]:
    """What a target may begin with: configured providers, and kinds that need no table."""
    return CallableNames({*configured, *(kind.name for kind in BUILT_IN.values() if kind.unasked)})


def owner_of(model: str) -> str | None:
    """The kind whose own model has a name like this."""
    kinds = (kind.name for kind in BUILT_IN.values() if model.startswith(kind.model_prefixes))
    return next(kinds, None)


def model_name(kind: str, model: str) -> str:
    """The name of a model without what its provider ignores: one model has one name."""
    known = KINDS.get(kind)
    if known is None:
        return model
    return model.removeprefix(known.ignored_prefix).removesuffix(known.ignored_suffix) or model


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One configured provider."""

    name: str
    kind: str
    url: str | None = None
    auth_token: Secret | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Not shown, because a key may stand here too."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What only some kinds know, such as `model_path` of `embedded`."""


def build(settings: ProviderSettings, transport: HttpTransport) -> Provider:
    """The provider that these settings describe; raises ConfigurationError with the remedy."""
    kind = KINDS.get(settings.kind)
    if kind is None:
        raise ConfigurationError(unknown_kind(settings.kind))
    foreign = [name for name in settings.options if name not in kind.options]
    if kind.local is not None:
        wired = {
            "url": settings.url,
            "auth_token": settings.auth_token,
            "headers": settings.headers,
        }
        foreign += [name for name, value in wired.items() if value]
    if foreign:
        raise ConfigurationError(
            f"[providers.{settings.name}]: {kind.name} knows no {', '.join(foreign)}"
        )
    if kind.local is not None:
        create = kind.local if callable(kind.local) else _built_in_class(kind.local)
        return create(name=settings.name, **settings.options)
    dialect = _dialect(kind)
    url = address_of(kind, settings.url, settings.options)
    key = settings.auth_token
    # A server of one's own may want no key, and must never be sent the one of the kind's owner.
    if key is None and settings.url in (None, kind.url):
        key = key_from_environment(kind.key_variables)
    _check_address(url, settings.name)
    _check_headers(key, settings)
    if key is None and kind.key_variables and url == kind.url:
        raise ConfigurationError(
            f"provider {settings.name!r} needs a key: set {' or '.join(kind.key_variables)}, "
            f"or auth_token in [providers.{settings.name}]"
        )
    return WireProvider(
        settings.name,
        dialect,
        transport,
        kind=kind.name,
        url=url,
        key=key,
        headers=settings.headers,
        options=settings.options,
        url_hint=_url_hint(url, kind.url),
    )


def _url_hint(url: str, usual: str) -> str:
    """What a server that knows no such path may have against this base address."""
    path = urlsplit(url).path.rstrip("/")
    if ending := next(filter(path.endswith, _ENDPOINTS), ""):
        return f"; the url is a base address: leave {ending} out"
    versioned = _VERSION in urlsplit(usual).path
    if versioned and not path:
        return f"; if the API of this server is below {_VERSION}, add that to the url"
    return f"; leave {_VERSION} out of the url" if path.endswith(_VERSION) and not versioned else ""


def address_of(kind: ProviderKind, url: str | None, options: Mapping[str, Any]) -> str:
    """Where it is reached: at its own `url`, at a variable's, or where its dialect or row says."""
    named = url or next(filter(None, map(os.environ.get, kind.url_variables)), None)
    if named:
        return named
    find = _dialect(kind).address
    return find(options) if find else kind.url


def _built_in_class(place: str) -> Callable[..., Provider]:
    module, _, name = place.partition(":")
    made = getattr(importlib.import_module(f"penstock.providers.{module}"), name)
    return cast("Callable[..., Provider]", made)


def _dialect(kind: ProviderKind) -> Dialect:
    if isinstance(kind.dialect, Dialect):
        return kind.dialect
    return cast(Dialect, importlib.import_module(f"penstock.providers.{kind.dialect}").DIALECT)


def _check_address(url: str, name: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:
        parts, host = urlsplit(""), b""
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(f"the url of provider {name!r} is not an http or https address")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the url of provider {name!r} holds more than an address; "
            "a key belongs in auth_token, or in headers"
        )


def _check_headers(key: Secret | None, settings: ProviderSettings) -> None:
    if key is not None and not key.reveal().isprintable():
        raise ConfigurationError(
            f"the key of provider {settings.name!r} holds a line break or another character "
            "that no header can carry"
        )
    for name, value in settings.headers.items():
        if not (_TOKEN.fullmatch(name) and value.isprintable()):
            raise ConfigurationError(
                f"[providers.{settings.name}.headers]: {name!r} cannot be sent as a header"
            )


def unknown_kind(kind: str, known: Iterable[str] = KINDS) -> str:
    """The message for a provider that does not exist, with the nearest name that does."""
    if kind in BUILT_IN:
        return f"provider {kind!r} needs a table of its own: [providers.{kind}]"
    names = sorted(known)
    near = difflib.get_close_matches(kind, names, 1)
    listed = ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
    hint = f"did you mean {near[0]!r}?" if near else f"known: {listed}"
    return f"there is no provider {kind!r}; {hint}"
