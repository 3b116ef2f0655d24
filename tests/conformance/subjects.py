"""The providers under test: a row each, with the reasons for what its API does not have."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import penstock
from penstock import Config
from penstock.config.settings import PoolConfig, ProviderConfig
from tests.conformance.behaviour import Behaviour
from tests.conformance.case import Case
from tests.conformance.checks.mcp import SERVER
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.bedrock import Bedrock, BedrockServer
from tests.support.wire.dialect import WireDialect
from tests.support.wire.fake import FakeUpstream
from tests.support.wire.gemini import Gemini
from tests.support.wire.ollama import Ollama
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.scenario import MODEL_IDS
from tests.support.wire.server import WireServer
from tests.support.wire.upstream import Upstream

KEY = "sk-conformance-0123456789abcdef"


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why a cell is empty: a fact about the API, never about our code."""

    reason: str
    refuses: tuple[str, ...] = ()
    """What `UnsupportedOption` then names; empty where there is nothing to refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One column of the matrix."""

    name: str
    upstream: Callable[[], AbstractAsyncContextManager[Upstream | None]]
    """Starts the other side; None is a real model, which cannot be scripted."""
    settings: Callable[[Upstream | None], ProviderConfig]
    """The provider's table in the configuration."""
    live: bool = False
    model: str = "test-model"
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    """Another model for single behaviours, by their id."""
    embedding_model: str = "test-embedding"
    model_ids: tuple[str, ...] = MODEL_IDS
    mcp_names: bool = True
    """Whether the wire tells which tool of which MCP server was called."""
    unsupported: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options that the model of `unsupported-refused` and `unsupported-dropped` does not take."""
    not_applicable: Mapping[str, NotApplicable] = field(default_factory=dict[str, NotApplicable])

    @contextlib.asynccontextmanager
    async def open(self, behaviour: Behaviour) -> AsyncGenerator[Case, None]:
        """An engine on this provider, through the configuration and the public API."""
        async with self.upstream() as upstream:
            config = Config(
                providers={self.name: self.settings(upstream)},
                # Each behaviour is that of one call: what the pool makes of it is tested elsewhere.
                pool=PoolConfig.model_validate({"retries": 0, **behaviour.pool}),
            )
            async with penstock.open(config) as engine:
                if isinstance(upstream, FakeUpstream):
                    engine.use(upstream)
                yield Case(
                    provider=self.name,
                    model=self.models.get(behaviour.id, self.model),
                    embedding_model=self.embedding_model,
                    engine=engine,
                    scripted=upstream,
                    key=KEY,
                    unsupported=self.unsupported,
                    model_ids=self.model_ids,
                    counted="count-tokens" not in self.not_applicable,
                    mcp_names=self.mcp_names,
                )


def wire_subject(
    name: str,
    dialect: WireDialect,
    *,
    models: Mapping[str, str],
    unsupported: Mapping[str, Any],
    not_applicable: Mapping[str, NotApplicable] | None = None,
) -> Subject:
    """A provider reached over HTTP; its name is also the kind in the configuration."""

    def settings(upstream: Upstream | None) -> ProviderConfig:
        assert isinstance(upstream, WireServer)
        return ProviderConfig.model_validate(
            {
                "kind": name,
                "url": upstream.url,
                "auth_token": KEY,
                "headers": {"x-team": "conformance"},
            }
        )

    return Subject(
        name=name,
        upstream=lambda: WireServer(dialect),
        settings=settings,
        models=models,
        unsupported=unsupported,
        not_applicable=not_applicable or {},
    )


def _absent(reason: str, *behaviours: str) -> dict[str, NotApplicable]:
    return dict.fromkeys(behaviours, NotApplicable(reason))


def _no_transcription(reason: str) -> dict[str, NotApplicable]:
    return {
        "transcription": NotApplicable(reason, refuses=("transcription",)),
        **_absent(reason, "transcription-options", "transcription-batch", "transcription-errors"),
    }


def _no_servers(reason: str) -> dict[str, NotApplicable]:
    absent = NotApplicable(reason, refuses=("mcp_tools",))
    return dict.fromkeys(("mcp-native", "mcp-native-stream", "mcp-functions"), absent)


_ANSWERS_ANEW = NotApplicable(
    "The API begins a new answer behind the assistant's turn, and continues none."
)

OPENAI_CHAT = wire_subject(
    "openai-chat",
    OpenAIChat(),
    models=dict.fromkeys(("unsupported-refused", "unsupported-dropped"), "gpt-6-luna"),
    unsupported={"temperature": 0.5},
    not_applicable={
        **_no_servers("Chat Completions has functions only; MCP is for Responses."),
        "prefill": _ANSWERS_ANEW,
        **_absent("The API counts nothing but its answers.", "count-tokens"),
    },
)

OLLAMA = wire_subject(
    "ollama",
    Ollama(),
    # The one family of models whose thinking has levels.
    models={"reasoning-level": "gpt-oss:20b"},
    unsupported={"parallel_tools": False},
    not_applicable={
        **_no_servers("The API has functions only; the server connects to nobody."),
        **_no_transcription("The API hears nothing."),
        "image-url": NotApplicable(
            "A picture is its bytes; the server fetches nothing.", refuses=("images by url",)
        ),
        "audio": NotApplicable("The API takes text and pictures.", refuses=("audio",)),
        "parallel-switch": NotApplicable(
            "The API has no such switch.", refuses=("parallel_tools",)
        ),
        **_absent(
            "The API has no `tool_choice`: asking for it is refused by name.",
            *("tool-forced", "tool-required"),
        ),
        **_absent("A call comes whole, its arguments as one object.", "tool-arguments"),
        **_absent("The API counts nothing but its answers.", "count-tokens"),
        **_absent("An answer carries no id.", "response-id"),
        **_absent("Cached tokens are not counted apart.", "usage-cached"),
        **_absent("Thinking is counted with the answer.", "usage-reasoning"),
        **_absent("A stream holds no signs of life.", "timeout-pings"),
        **_absent(
            "There is no content filter, and no field for a refusal.",
            *("error-content-filter", "refusal", "filtered"),
        ),
        **_absent("A prompt that is too long is cut without a word.", "error-context-length"),
        **_absent("Its plans know usage limits that end by themselves, no credit.", "error-quota"),
    },
)

GEMINI = replace(
    wire_subject(
        "gemini",
        Gemini(),
        models={
            **dict.fromkeys(("unsupported-refused", "unsupported-dropped"), "gemini-2.0-flash"),
            "prefill": "gemini-2.5-flash",
        },
        unsupported={"reasoning_level": "high"},
        not_applicable={
            "parallel-switch": NotApplicable(
                "The API has no switch for parallel calls.", refuses=("parallel_tools",)
            ),
            **_absent(
                "A call comes whole: only Vertex AI streams its arguments.", "tool-arguments"
            ),
            **_absent(
                "Too long a prompt is a plain INVALID_ARGUMENT, which no field tells from others.",
                "error-context-length",
            ),
            **_absent("The model refuses in plain text: there is no field for it.", "refusal"),
        },
    ),
    mcp_names=False,
)

ANTHROPIC = wire_subject(
    "anthropic",
    Anthropic(),
    models={
        **dict.fromkeys(("unsupported-refused", "unsupported-dropped"), "claude-opus-5-5"),
        "embedding": "test-embedding",
    },
    unsupported={"temperature": 0.5},
    not_applicable={
        **_no_transcription("The API has no transcription."),
        "audio": NotApplicable("The API takes text and pictures.", refuses=("audio",)),
        "embedding": NotApplicable("The API has no embeddings.", refuses=("embeddings",)),
        **_absent(
            "The API has no embeddings.",
            *("embedding-batch", "embedding-dimensions", "embedding-split"),
        ),
        **_absent(
            "Too long a prompt is a plain invalid_request_error, which no field tells from others.",
            "error-context-length",
        ),
        **_absent(
            "A filter ends the answer with the stop reason `refusal`; no error type speaks of one.",
            "error-content-filter",
        ),
    },
)

OPENAI = wire_subject(
    "openai",
    OpenAIResponses(),
    models=dict.fromkeys(("unsupported-refused", "unsupported-dropped"), "gpt-6-luna"),
    unsupported={"temperature": 0.5},
    not_applicable={
        "prefill": _ANSWERS_ANEW,
        **_absent("The API has no stop sequences; Penstock enforces them.", "stop-sequence"),
        "audio": NotApplicable("A message of this API holds no sound.", refuses=("audio",)),
    },
)

BEDROCK = replace(
    wire_subject(
        "bedrock",
        Bedrock(),
        models={
            "unsupported-refused": "global.anthropic.claude-opus-5-5",
            "unsupported-dropped": "global.anthropic.claude-opus-5-5",
            "reasoning-level": "global.anthropic.claude-sonnet-5",
            "prefill": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            # The only family that CountTokens takes.
            "count-tokens": "global.anthropic.claude-sonnet-5",
            "count-estimated": "global.anthropic.claude-sonnet-5",
        },
        unsupported={"temperature": 0.5},
        not_applicable={
            **_no_transcription("Converse has no transcription: that is another service of AWS."),
            **_absent("Converse counts no thinking apart from the answer.", "usage-reasoning"),
            **_absent(
                "A prompt that is too long is a ValidationException as any other; "
                "only the wording tells.",
                "error-context-length",
            ),
            **_absent(
                "A filtered prompt is answered, with stopReason guardrail_intervened or "
                "content_filtered; there is no such error.",
                "error-content-filter",
            ),
            **_absent("An event stream has no pings.", "timeout-pings"),
            "image-url": NotApplicable(
                "Converse takes the bytes of a picture, or an object in S3.",
                refuses=("images by url",),
            ),
            "parallel-switch": NotApplicable(
                "Converse has no such switch.", refuses=("parallel_tools",)
            ),
            **_no_servers("Converse has functions only; Anthropic's MCP beta is not on Bedrock."),
        },
    ),
    upstream=lambda: BedrockServer(Bedrock()),
    embedding_model="amazon.titan-embed-text-v2:0",
)

FAKE = Subject(
    name="fake",
    upstream=lambda: contextlib.nullcontext(FakeUpstream()),
    settings=lambda _: ProviderConfig(),
    model="echo",
    embedding_model="echo",
    model_ids=("echo", "words-60"),
    unsupported={"mcp_tools": (SERVER,)},
    not_applicable={
        **_absent(
            "It runs in this process: there is no wire to be cut, compressed or garbled.",
            *("stream-split", "reuse", "reuse-cancelled", "malformed-event", "cut", "reset"),
            *("cut-unread", "reset-unread"),
            *("no-terminal", "html-error", "html-page", "wrong-type", "not-json", "gzip"),
            *("timeout-headers", "timeout-first-token", "timeout-idle", "error-in-200"),
            *("unreachable", "health-down", "headers", "no-close", "too-large", "redirect"),
            *("timeout-pings", "foreign-reasoning"),
        ),
        **_absent("It wants no key.", "authentication"),
        **_absent("It counts every answer itself.", "usage-absent"),
        **_no_servers("It runs in this process, and connects to nobody."),
        **_absent("It reads messages as they are: there is no wire to put them on.", "mcp-history"),
        **_absent("It takes any number of texts at once.", "embedding-split"),
        **_absent("It counts every prompt itself.", "count-estimated"),
    },
)

EMBEDDED = Subject(
    name="embedded",
    upstream=lambda: contextlib.nullcontext(None),
    settings=lambda _: ProviderConfig(),
    live=True,
    model="smollm2",
    embedding_model="wordllama",
    model_ids=("smollm2", "wordllama"),
    unsupported={"reasoning_level": "high"},
    not_applicable={
        **_no_transcription("The bundled model reads text only."),
        **_absent(
            "The model runs in this process: there is no wire, no proxy and no server.",
            *("stream-split", "reuse", "reuse-cancelled", "malformed-event", "cut", "reset"),
            *("cut-unread", "reset-unread"),
            *("truncated", "truncated-start", "no-terminal", "html-error", "html-page"),
            *("wrong-type", "not-json", "gzip", "timeout-headers", "timeout-first-token"),
            *("timeout-idle", "error-in-200", "error-in-stream", "error-at-start"),
            *("error-server", "error-overloaded", "unreachable", "health-down", "headers"),
            *("no-close", "too-large", "redirect", "timeout-pings"),
        ),
        **_absent(
            "There is no account: no key, no credit, no limits.",
            *("authentication", "error-rate-limit", "error-retry-after", "error-quota"),
            *("error-authentication", "error-permission"),
        ),
        **_absent(
            "There is no content filter, and the model has no field for a refusal.",
            *("error-content-filter", "refusal", "filtered"),
        ),
        **_absent("llama.cpp counts every answer.", "usage-absent"),
        **_absent("A megabyte of text does not fit the model's window of 8192 tokens.", "large"),
        **_absent(
            "The model computes in a thread of its own, and an answer ends with its window.",
            "back-pressure",
        ),
        **_no_servers("The model runs in this process, and connects to nobody."),
        **_absent("The bundled model does not think aloud.", "usage-reasoning", "reasoning-text"),
        "reasoning-level": NotApplicable(
            "The bundled model has no levels of thinking.", refuses=("reasoning_level",)
        ),
        "image-bytes": NotApplicable("The bundled model reads text only.", refuses=("images",)),
        "image-url": NotApplicable("The bundled model reads text only.", refuses=("images",)),
        "audio": NotApplicable("The bundled model reads text only.", refuses=("audio",)),
        **_absent(
            "A call is one JSON object under a grammar: one call, no text, known when whole.",
            *("tool-call-text", "tool-arguments", "parallel-tools"),
        ),
        "parallel-switch": NotApplicable(
            "An answer holds one call at most.", refuses=("parallel_tools",)
        ),
        **_absent(
            "An answer under a grammar fits its schema: there is nothing to mend.",
            *("typed-null", "typed-repair", "typed-repair-stream", "typed-invalid"),
        ),
        **_absent(
            "What a real model says after its tools is not known beforehand.",
            *("typed-tools", "generator-rounds"),
        ),
        **_absent("It takes any number of texts at once.", "embedding-split"),
        **_absent("It counts every prompt itself.", "count-estimated"),
    },
)

SUBJECTS: tuple[Subject, ...] = (
    OPENAI,
    OPENAI_CHAT,
    OLLAMA,
    GEMINI,
    ANTHROPIC,
    BEDROCK,
    FAKE,
    EMBEDDED,
)
