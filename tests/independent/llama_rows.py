"""llama.cpp's columns: three APIs in front of the bundled model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from penstock.config.settings import ProviderConfig
from tests.conformance import subjects
from tests.conformance.behaviours import BEHAVIOURS
from tests.conformance.subjects import KEY, Subject
from tests.independent import llama_wrong as wrong
from tests.independent.llama import Llama
from tests.independent.llama_server import MODEL
from tests.independent.rows import Row, Wrong, because, fails
from tests.support.wire.upstream import Upstream

_UNSCRIPTED = because(
    "A real model cannot be scripted.", *(id for id, each in BEHAVIOURS.items() if not each.live)
)
_EVERYWHERE: Mapping[str, str] = {
    **_UNSCRIPTED,
    **because("The model's chat template has no place for tools.", "tools-declared"),
    **because("It has one model, which answers to every name.", "error-unknown-model"),
    **because(
        "It passes over the MCP servers of a request, and calls none.",
        *("mcp-native", "mcp-native-stream", "mcp-functions"),
    ),
    **because(
        "The bundled model hears nothing.",
        *("transcription", "transcription-options", "transcription-batch", "transcription-errors"),
    ),
    **because("It does not say how many calls have come.", "count-estimated"),
    **because(
        "Several texts are computed at once, and rounded otherwise than one: `test_llama.py` "
        "compares their directions.",
        "embedding-batch",
    ),
}
_NO_SCHEMA = because(
    "Only a schema makes this model short or endless at will, and this API of it ignores them.",
    *("stop-end", "cancel", "cancel-while-read", "cancel-by-id", "cancel-task", "drop", "leave"),
    *("close", "timeout-own", "unicode", "concurrent"),
)
_SCHEMATIC = ("structured", "error-bad-request", "typed", "typed-stream", "typed-root")
_CALLING = (
    *("tool-call", "tool-call-bare", "tool-round-trip", "tool-forced", "tool-required"),
    *("generator-tools", "generator-tools-stream", "generator-mcp", "generator-mcp-stream"),
)


def on_llama(subject: Subject, path: str, server: Llama, kind: str | None = None) -> Subject:
    """This provider on the real model, at this path."""

    def settings(_: Upstream | None) -> ProviderConfig:
        return ProviderConfig.model_validate(
            {"kind": kind or subject.name, "url": server.url + path, "auth_token": KEY}
        )

    return replace(
        subject,
        upstream=lambda: contextlib.nullcontext(None),
        settings=settings,
        live=True,
        model=MODEL,
        embedding_model=MODEL,
        model_ids=(MODEL,),
    )


def _row(
    subject: Subject,
    path: str,
    inexpressible: Mapping[str, str],
    faults: Mapping[str, Wrong[Llama]],
) -> Row[Llama]:
    known = subject.not_applicable
    return Row(
        server="llama",
        subject=replace(subject, live=True),
        connect=lambda server: on_llama(subject, path, server),
        inexpressible={
            id: reason for id, reason in {**_EVERYWHERE, **inexpressible}.items() if id not in known
        },
        wrong=faults,
    )


ROWS: tuple[Row[Llama], ...] = (
    _row(
        subjects.OPENAI,
        "/v1",
        _NO_SCHEMA,
        {
            **fails(wrong.CUT_IS_COMPLETE, "stop-max-tokens"),
            **fails(wrong.TEXT_FORMAT_IGNORED, *_SCHEMATIC),
            **fails(wrong.RESPONSES_CHOICE, *_CALLING),
            **fails(wrong.DIMENSIONS_IGNORED, "embedding-dimensions"),
        },
    ),
    _row(
        subjects.OPENAI_CHAT,
        "/v1",
        because("The API does not say that a stop sequence ended an answer.", "stop-sequence"),
        {
            **fails(wrong.CHAT_CHOICE, *_CALLING),
            **fails(wrong.DIMENSIONS_IGNORED, "embedding-dimensions"),
        },
    ),
    _row(
        subjects.ANTHROPIC,
        "",
        _NO_SCHEMA,
        {
            **fails(wrong.STOP_SEQUENCE_IS_END_OF_TURN, "stop-sequence"),
            **fails(wrong.OUTPUT_CONFIG_IGNORED, *_SCHEMATIC),
            **fails(wrong.MESSAGES_CHOICE, *_CALLING),
        },
    ),
)
