"""aimock's columns: six dialects, what its fixtures cannot say, and what it gets wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.config.settings import ProviderConfig
from tests.conformance import subjects
from tests.conformance.subjects import KEY, Subject
from tests.independent import aimock_absent as absent
from tests.independent import aimock_wrong as wrong
from tests.independent.aimock import Aimock
from tests.independent.fixtures import Frames, Wire
from tests.independent.rows import Row, Wrong, because, fails
from tests.independent.upstream import AimockUpstream
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.bedrock import Bedrock
from tests.support.wire.gemini import Gemini
from tests.support.wire.ollama import Ollama
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.upstream import Upstream

MODEL_IDS = (
    "gpt-4",
    "gpt-4o",
    "claude-3-5-sonnet-20241022",
    "gemini-2.0-flash",
    "text-embedding-3-small",
)
"""What its own model list holds."""

_MCP = ("mcp-native", "mcp-native-stream", "mcp-functions")
_HEARING = ("transcription", "transcription-options", "transcription-batch", "transcription-errors")
_EVERYWHERE: Mapping[str, str] = {
    **because(
        "It writes by the clock, and not when a test says so; the checks of cancelling show that "
        "the first piece comes alone.",
        "stream-early",
    ),
    **because(
        "It writes by the clock, and not when a test says so; `test_aimock.py` has eight slow "
        "streams at once.",
        "concurrent",
    ),
    **because("It writes whole events.", "stream-split"),
    **because("Its errors are whole responses, none is inside a stream.", "error-in-stream"),
    **because("Its errors are whole responses, none is inside a stream.", "error-at-start"),
    **because(
        "It has no such fault.",
        *("malformed-event", "truncated", "truncated-start", "no-terminal", "html-error"),
        *("html-page", "wrong-type", "no-close", "redirect", "gzip", "timeout-pings"),
    ),
    **because("It hangs up, but does not reset a connection.", "reset", "reset-unread"),
    **because("It sends the headers with the first event, not before.", "timeout-first-token"),
    **because("It does not say how much of an answer was taken.", "back-pressure"),
    **because("It does not say on which connection a request came.", "reuse", "reuse-cancelled"),
    **because(
        "The check needs a server that is down, of which there is nothing to learn.",
        *("unreachable", "health-down"),
    ),
    **because("Its fixtures hold input and output tokens only.", "usage-cached"),
    **because("Its fixtures hold input and output tokens only.", "usage-reasoning"),
    **because("It always reports usage.", "usage-absent"),
    **because("It makes its vectors up, and keeps no list of the texts.", "embedding-split"),
    **because("Its fixtures have no calls at MCP servers.", *_MCP),
    **because(
        "Its journal does not keep recordings, nor what is said of them; `test_aimock.py` has "
        "their words.",
        *("transcription", "transcription-options", "transcription-batch"),
    ),
}
_NO_REFUSAL = because("Its fixtures have no refusal.", "refusal")
_FORGOTTEN = "Its journal does not keep this part of a request."
_IN_FOREIGN_DIALECTS: Mapping[str, str] = because(
    _FORGOTTEN,
    *("stop-sequence", "structured", "reasoning-level", "parallel-switch"),
    *("image-bytes", "image-url", "audio", "foreign-reasoning"),
) | because(
    "Its journal does not keep a schema; `test_aimock.py` has the values and the second round.",
    *("typed", "typed-root", "typed-repair"),
)
_NO_CHOICE = because(_FORGOTTEN, "tool-forced", "tool-required", "tool-none")
_NO_FAILED_TOOLS = because(_FORGOTTEN, "tool-error")


def _row(
    subject: Subject,
    wire: Wire,
    inexpressible: Mapping[str, str],
    faults: Mapping[str, Wrong[Aimock]],
    *tolerated: Wrong[Aimock],
    model: str | None = None,
    models: Mapping[str, str] | None = None,
    **options: str,
) -> Row[Aimock]:
    def settings(upstream: Upstream | None) -> ProviderConfig:
        assert isinstance(upstream, AimockUpstream)
        return ProviderConfig.model_validate(
            {
                "kind": subject.name,
                "url": upstream.url,
                "auth_token": KEY,
                "headers": {"x-team": "conformance", **upstream.headers},
                **options,
            }
        )

    def connect(server: Aimock) -> Subject:
        return replace(
            subject,
            upstream=lambda: AimockUpstream(server, wire),
            settings=settings,
            model=model or subject.model,
            models={**subject.models, **(models or {})},
            model_ids=MODEL_IDS,
        )

    return Row(
        server="aimock",
        subject=subject,
        connect=connect,
        inexpressible={
            id: reason
            for id, reason in {**_EVERYWHERE, **inexpressible}.items()
            if id not in subject.not_applicable and id not in faults
        },
        wrong=faults,
        tolerated=tolerated,
    )


ROWS: tuple[Row[Aimock], ...] = (
    _row(
        subjects.OPENAI,
        Wire(OpenAIResponses(), Frames(2, 2, 3)),
        {**_NO_REFUSAL, **_IN_FOREIGN_DIALECTS},
        {
            **fails(wrong.FILTER_IS_FAILURE, "filtered"),
            **fails(wrong.EMBEDDINGS_COST_NOTHING, "embedding"),
            **fails(absent.OPENAI_COUNTS, "count-tokens"),
        },
        # It adds an empty thought to the answers of every model that it does not know.
        model="gpt-4o",
        models=dict.fromkeys(_HEARING, "gpt-4o-transcribe"),
    ),
    _row(
        subjects.OPENAI_CHAT,
        Wire(OpenAIChat(), Frames(1)),
        _NO_REFUSAL,
        fails(wrong.EMBEDDINGS_COST_NOTHING, "embedding"),
    ),
    _row(
        subjects.ANTHROPIC,
        Wire(Anthropic(), Frames(1, 1, 1), filtered="refusal", refused="refusal"),
        {
            **_IN_FOREIGN_DIALECTS,
            **_NO_CHOICE,
            **_NO_FAILED_TOOLS,
            **because("Its errors hold no code beside their type.", "error-quota"),
        },
        fails(absent.ANTHROPIC_COUNTS, "count-tokens"),
        wrong.ANTHROPIC_MODELS_ARE_OPENAIS,
    ),
    _row(
        subjects.GEMINI,
        Wire(Gemini(), Frames(0), wraps_results=True),
        {
            **_NO_REFUSAL,
            **_IN_FOREIGN_DIALECTS,
            **_NO_CHOICE,
            **because(
                "Its errors hold no details.",
                *("error-quota", "error-authentication", "transcription-errors"),
            ),
            **because("Its fixtures have no promptFeedback.", "error-content-filter"),
            **because("Its fixtures give Gemini's answers no id.", "response-id"),
        },
        {
            **fails(wrong.GEMINI_SCHEMAS_DROPPED, "tools-declared"),
            **fails(
                absent.GEMINI_EMBEDDINGS,
                *("embedding", "embedding-batch", "embedding-dimensions"),
            ),
            **fails(absent.GEMINI_MODELS, "models"),
            **fails(absent.GEMINI_COUNTS, "count-tokens"),
        },
        wrong.GEMINI_FINISHES_WITH_A_CALL,
        api_version="v1beta",
    ),
    _row(
        subjects.BEDROCK,
        Wire(
            Bedrock(),
            Frames(1, 1, 1),
            filtered="content_filtered",
            refused="guardrail_intervened",
        ),
        {**_IN_FOREIGN_DIALECTS, **_NO_CHOICE, **_NO_FAILED_TOOLS},
        {
            **fails(wrong.BEDROCK_ERRORS_WITHOUT_TYPE, "error-quota", "error-in-200"),
            **fails(wrong.BEDROCK_WITHOUT_REQUEST_ID, "response-id"),
            **fails(
                absent.BEDROCK_TITAN,
                *("embedding", "embedding-batch", "embedding-dimensions"),
            ),
            **fails(absent.BEDROCK_MODELS, "models"),
            **fails(absent.BEDROCK_COUNTS, "count-tokens"),
        },
        wrong.BEDROCK_STARTS_EMPTY,
    ),
    _row(
        subjects.OLLAMA,
        Wire(Ollama(), Frames(0)),
        {**_IN_FOREIGN_DIALECTS},
        {
            **fails(wrong.OLLAMA_THINKS_ELSEWHERE, "stream-order", "reasoning-text"),
            **fails(wrong.OLLAMA_ALWAYS_STOPS, "stop-max-tokens"),
            **fails(wrong.OLLAMA_COUNTS_NOTHING, "usage", "usage-stream"),
            **fails(wrong.OLLAMA_ERRORS_ARE_OBJECTS, "error-in-200"),
            **fails(
                wrong.OLLAMA_EMBEDS_ONE,
                *("embedding", "embedding-batch", "embedding-dimensions"),
            ),
        },
    ),
)
