"""Which faults are met, by whom and how: the tables that the engine's tests and the doors' share.

`Scenario` is what a caller of the gateway may expect of one fault; most are made from the tables
that the tests of the engine run through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from tests.faults.answer import OTHER, WHOLE, first_words
from tests.faults.asking import AMPLE_S, DIALECTS
from tests.faults.inband import INBAND
from tests.faults.manifest import ANSWERS, WITHOUT_HEADERS


class Case(NamedTuple):
    """One fault, with and without somebody to fall back to."""

    row: str
    """Of the manifest."""
    fault: str
    attempts: int
    """How often the broken target is asked."""
    alone: type[PenstockError] | None
    """What the caller gets when there is nobody else; None for the right answer."""
    fallback: bool = True
    """Whether somebody else is asked."""


CASES = (
    Case("429-ms", "429.ms", 2, None),
    Case("429-forever", "429.forever", 3, RateLimited),
    Case("429-long", "429.long", 1, RateLimited),
    Case("500-once", "500.once", 2, None),
    Case("500-forever", "500.forever", 3, ProviderUnavailable),
    Case("503-forever", "refused.overloaded", 3, ProviderUnavailable),
    Case("reset", "reset", 3, ProviderUnavailable),
    Case("silence", "silence", 1, ProviderTimeout),
    Case("slow-first", "stall.0", 1, ProviderTimeout),
    Case("html", "html.502", 3, ProviderUnavailable),
    Case("html", "html.200", 3, MalformedResponse),
    Case("401", "refused.authentication", 1, AuthenticationFailed),
    Case("error-in-200", "error-in-200", 3, ProviderUnavailable),
    Case("wrong-type", "swapped", 3, MalformedResponse),
    Case("context", "refused.context", 1, ContextLengthExceeded),
    Case("filter", "refused.filter", 1, ContentRejected, fallback=False),
    Case("400", "refused.bad", 1, InvalidRequest, fallback=False),
)
BREAKS: Mapping[str, str] = {
    "cut.40": "cut",
    "ends.40": "truncated",
    "stall.40": "stall",
    "inband.openai-chat-overloaded.40": "in-band-later",
    "cut.1": "cut",
    "cut.59": "cut",
    "no-terminal": "no-terminal",
    "malformed": "malformed-event",
    "malformed.prefix": "malformed-event",
}
"""How a stream breaks after its first token, and the row that each belongs to."""
ENDLESS = [
    # One of each framing.
    *((kind, "event") for kind in ("openai-chat", "ollama", "bedrock")),
    *((kind, what) for kind in ("openai-chat", "ollama") for what in ("blank", "lines")),
    ("openai-chat", "comment"),
]
NO_REASON: Mapping[str, tuple[bool, ...]] = {
    # Where nothing else ends a stream, one without a reason has no end.
    "openai-chat": (False, True),
    "anthropic": (False, True),
    "ollama": (False, True),
    "gemini": (False,),
}
"""The wires on which a reason may be missing, whole and streamed."""
PINGS = [(kind, "ping") for kind, dialect in DIALECTS.items() if dialect.ping() is not None]

SSE = ("openai", "openai-chat", "anthropic", "gemini")
"""The wires whose streams are server-sent events."""
_SAY_SOME = (
    *("no-terminal", "malformed", "malformed.prefix", "zipped.cut"),
    *("cut-call.half", "cut-call.whole"),
)
KEPT_ALIVE = {"first_token_timeout_s": 2.0, "stream_idle_timeout_s": 2.0}
"""Limits that the silence of `kept-alive` exceeds, and the pause between its signals does not."""
WHOLE_ONLY, STREAM_ONLY, BOTH_FORMS = (False,), (True,), (False, True)
ONE_RETRY = {"retries": 1}
NO_RETRY = {"retries": 0}
SMALL = {"retries": 1, "max_response_bytes": 1_000_000}
NARROW = {**SMALL, "body_timeout_s": AMPLE_S}
"""For several at once: the size is to end them, however long that takes."""


@dataclass(frozen=True)
class Scenario:
    """One fault as a caller of the gateway meets it."""

    row: str
    models: tuple[str, ...]
    """The targets in their order; the first is the broken one."""
    asked: tuple[int, ...]
    """How often each of them is asked."""
    error: type[PenstockError] | None = None
    text: str = WHOLE
    """What the caller has read when the answer ends, well or with the error."""
    forms: tuple[bool, ...] = BOTH_FORMS
    """Whether a stream is asked for."""
    kind: str = "openai-chat"
    pool: Mapping[str, Any] = field(default_factory=dict[str, Any])
    overloaded: bool = False
    """Whether the provider's own status says that it has too much to do."""
    retry_after: int | None = None
    doors: tuple[str, ...] = ANSWERS

    @property
    def retries(self) -> int:
        """How many retries are spent, at all doors and in all forms together."""
        again = sum(count - 1 for count in self.asked if count)
        # To ask another target in place of an empty answer is a retry too.
        again += self.row == "empty" and len(self.models) > 1
        return again * len(self.places)

    @property
    def places(self) -> list[tuple[str, bool]]:
        """Each door with each form; what is met at `ANSWERS` is also met where are no headers."""
        more = WITHOUT_HEADERS if self.doors == ANSWERS else ()
        return [
            (name, stream)
            for name in (*self.doors, *more)
            for stream in self.forms
            # The tool gets a stream from the engine, whoever calls it.
            if stream or name != "mcp"
        ]

    @property
    def begins(self) -> bool:
        """Whether a stream of the broken target has said something before it breaks."""
        way, _, how = self.models[0].partition(".")
        after = how.rpartition(".")[2]
        counted = way in ("cut", "ends", "stall", "inband", "drip", "flood")
        return (counted and after.isdigit() and after != "0") or self.models[0] in _SAY_SOME

    def __str__(self) -> str:
        return f"{self.row}: {self.kind} {', '.join(self.models)}"


def cases() -> Iterator[Scenario]:
    """Refusals and silence, alone and with somebody to fall back to."""
    for case in CASES:
        attempts = min(case.attempts, 2)
        alone = Scenario(
            case.row,
            (case.fault,),
            (attempts,),
            case.alone,
            text=WHOLE if case.alone is None else "",
            pool=ONE_RETRY,
            overloaded=case.fault == "refused.overloaded",
            retry_after=3600 if case.fault == "429.long" else None,
        )
        yield alone
        second = case.fallback and case.alone is not None
        yield replace(
            alone,
            models=(case.fault, "healthy.b"),
            asked=(attempts, int(second)),
            error=None if case.fallback else case.alone,
            text=WHOLE if case.fallback else "",
        )
    for form in ("seconds", "date"):
        yield Scenario(f"429-{form}", (f"429.{form}",), (2,), pool=ONE_RETRY)


def broken_streams() -> Iterator[Scenario]:
    """Streams that break after their first token."""
    for fault, row in BREAKS.items():
        yield Scenario(row, (fault, "healthy.b"), (1, 1), forms=STREAM_ONLY)
    torn = Scenario("", (), (), StreamInterrupted, first_words(40), STREAM_ONLY)
    for fault in ("cut.40", "ends.40", "stall.40"):
        again = 1 if fault == "stall.40" else 2
        alone = replace(torn, row=BREAKS[fault], models=(fault,), asked=(again,))
        yield replace(alone, pool=ONE_RETRY)
        other = replace(torn, models=(fault, "other.b"), asked=(1, 1))
        yield replace(other, row="joined", error=None, text=first_words(40) + OTHER)
        yield replace(other, row="another-answer", pool={"mid_stream": "restart_only"})
        wished = replace(torn, row="mid-stream-error", models=(fault, "healthy.b"), asked=(1, 0))
        yield replace(wished, pool={"mid_stream": "error"})
    for fault in ("cut-call.half", "cut-call.whole"):
        call = replace(torn, row="cut-call", models=(fault, "healthy.b"), asked=(1, 0))
        yield replace(call, text=first_words(5), pool=NO_RETRY)
    refusing = ("cut.40", "prefill@no-prefill.b")
    yield Scenario("prefill-refused", refusing, (1, 2), forms=STREAM_ONLY)
    thrice = ("cut.20", "cut.40", "healthy.c")
    yield Scenario("cut-twice", thrice, (1, 1, 1), forms=STREAM_ONLY)


def every_wire() -> Iterator[Scenario]:
    """A sample of all on each wire."""
    for kind in DIALECTS:
        for fault in ("no-done", "no-end"):
            models = (fault, "healthy.b")
            yield Scenario(fault, models, (1, 0), forms=STREAM_ONLY, kind=kind, pool=ONE_RETRY)
        for fault, error in (("cut", ProviderUnavailable), ("malformed", MalformedResponse)):
            half = Scenario(f"{fault}-whole", (fault,), (2,), error, "", WHOLE_ONLY, kind)
            yield replace(half, pool=ONE_RETRY)
            both = replace(half, models=(fault, "healthy.b"), asked=(2, 1), error=None, text=WHOLE)
            yield replace(both, pool=ONE_RETRY)
        faults = ("cut.40", "ends.40", "no-terminal", "malformed")
        for fault in (*faults, "malformed.prefix") if kind in SSE else faults:
            models, row = (fault, "healthy.b"), BREAKS[fault]
            yield Scenario(row, models, (1, 1), forms=STREAM_ONLY, kind=kind, pool=ONE_RETRY)
        for way in ("follows.repeating", "follows.bare"):
            models, said = ("cut.40", way), first_words(40)
            joined = Scenario("joined", models, (1, 1), forms=STREAM_ONLY, kind=kind)
            yield replace(joined, text=said + OTHER[len(said) :], pool=ONE_RETRY)
        for fault in ("mislabelled", "zipped"):
            row = "gzip" if fault == "zipped" else fault
            yield Scenario(row, (fault, "healthy.b"), (1, 0), kind=kind, pool=ONE_RETRY)
        other = Scenario("wrong-type", ("swapped", "healthy.b"), (2, 1), kind=kind)
        yield replace(other, pool=ONE_RETRY)
        bad = Scenario("400", ("refused.bad", "healthy.b"), (1, 0), InvalidRequest, "", kind=kind)
        yield replace(bad, pool=ONE_RETRY)


def in_band() -> Iterator[Scenario]:
    """Each dialect's own errors under a good status: before the first token, and in mid-stream."""
    for name, error in INBAND.items():
        row, asked = ("in-band-final", (1, 0)) if error.final else ("", (1, 1))
        overloaded = name in _OVERLOADED
        for place in ("whole", "first"):
            early = Scenario(
                row or f"in-band-{place}",
                (f"inband.{name}.{place}",),
                (1,),
                error.error,
                "",
                WHOLE_ONLY if place == "whole" else STREAM_ONLY,
                error.kind,
                NO_RETRY,
                overloaded,
            )
            yield early
            if not error.final:
                models = (early.models[0], "healthy.b")
                yield replace(early, models=models, asked=asked, error=None, text=WHOLE)
        if not error.only_first:
            later = replace(early, row=row or "in-band-later", models=(f"inband.{name}.40",))
            yield replace(later, text=first_words(40))
            if not error.final:
                models = (later.models[0], "healthy.b")
                yield replace(later, models=models, asked=asked, error=None, text=WHOLE)


def endings() -> Iterator[Scenario]:
    """What an answer says of its own end."""
    for kind in DIALECTS:
        both = Scenario("empty", ("empty", "healthy.b"), (1, 1), kind=kind)
        yield both
        yield replace(both, models=("empty",), asked=(1,), text="")
        yield replace(both, models=("empty", "empty.b"), asked=(1, 1), text="")
    for kind, forms in NO_REASON.items():
        for form in forms:
            models = ("no-reason", "healthy.b")
            yield Scenario("no-reason", models, (1, 0), forms=(form,), kind=kind)
    for kind, dialect in DIALECTS.items():
        models = ("kept-alive.0", "healthy.b")
        alive = Scenario("kept-alive", models, (1, 0), forms=WHOLE_ONLY, kind=kind, pool=KEPT_ALIVE)
        yield alive
        if dialect.ping() is not None:
            yield replace(alive, forms=STREAM_ONLY)
            yield replace(alive, models=("kept-alive.40", "healthy.b"), forms=STREAM_ONLY)


_OVERLOADED = ("gemini-unavailable", "gemini-listed")
"""The in-band errors that say a status themselves, which is 503."""


def odd_bodies() -> Iterator[Scenario]:
    """Bodies that are compressed, and not well; and those without end."""
    cut = Scenario("gzip-cut", ("zipped.cut",), (2,), MalformedResponse, "", WHOLE_ONLY)
    yield replace(cut, pool=ONE_RETRY)
    cut = replace(cut, models=("zipped.cut", "healthy.b"), error=None, text=WHOLE, pool=ONE_RETRY)
    yield replace(cut, asked=(2, 1))
    yield replace(cut, asked=(1, 1), forms=STREAM_ONLY)
    for error, forms in ((ProviderUnavailable, WHOLE_ONLY), (StreamInterrupted, STREAM_ONLY)):
        false = Scenario("gzip-false", ("zipped.false",), (2,), error, "", forms)
        yield replace(false, pool=ONE_RETRY)
    # The same target would send as much again; a status of an error may change.
    for fault, asked in (("bomb", 1), ("bomb.error", 2)):
        yield Scenario("gzip-bomb", (fault, "healthy.b"), (asked, 1), pool=NARROW)
    for fault in ("flood.text", "flood.blank"):
        flood = Scenario("flood-whole", (fault,), (1,), MalformedResponse, "", WHOLE_ONLY)
        yield replace(flood, pool=NARROW)
        both = replace(flood, models=(fault, "healthy.b"), asked=(1, 1), error=None, text=WHOLE)
        yield replace(both, pool=NARROW)


def dripping() -> Iterator[Scenario]:
    """What is ended by the time that it takes."""
    for fault in ("drip.text", "drip.blank"):
        drip = Scenario("drip-whole", (fault,), (1,), ProviderTimeout, "", WHOLE_ONLY)
        yield replace(drip, pool=ONE_RETRY)
        yield Scenario("drip-whole", (fault, "healthy.b"), (1, 1), forms=WHOLE_ONLY, pool=ONE_RETRY)
    for what in ("event", "comment"):
        for after in (0, 40):
            row, fault = "drip-stream", f"drip.{what}.{after}"
            error = StreamInterrupted if after else ProviderTimeout
            alone = Scenario(row, (fault,), (1,), error, first_words(after), STREAM_ONLY)
            yield replace(alone, pool=ONE_RETRY)
            yield Scenario(row, (fault, "healthy.b"), (1, 1), forms=STREAM_ONLY, pool=ONE_RETRY)
    for after in (0, 40):
        models = (f"flood.comment.{after}", "healthy.b")
        yield Scenario("flood-stream", models, (1, 1), forms=STREAM_ONLY, pool=NO_RETRY)


def vectors() -> Iterator[Scenario]:
    """The faults of whole answers, where vectors are asked for; nobody else may give those."""
    right = Scenario("", (), (), forms=WHOLE_ONLY, pool=ONE_RETRY, doors=("embeddings",))
    wrong = replace(right, text="")
    for case in CASES:
        if case.row != "wrong-type":
            (known,) = (each for each in cases() if each.models == (case.fault,))
            yield replace(known, forms=WHOLE_ONLY, doors=("embeddings",))
    for form in ("seconds", "date"):
        yield replace(right, row=f"429-{form}", models=(f"429.{form}",), asked=(2,))
    for row, fault in (("mislabelled", "mislabelled"), ("gzip", "zipped")):
        yield replace(right, row=row, models=(fault,), asked=(1,))
    for row, fault, error in (
        ("cut-whole", "cut", ProviderUnavailable),
        ("malformed-whole", "malformed", MalformedResponse),
        ("gzip-cut", "zipped.cut", MalformedResponse),
        ("gzip-false", "zipped.false", ProviderUnavailable),
    ):
        yield replace(wrong, row=row, models=(fault,), asked=(2,), error=error)
    for row, fault in (("gzip-bomb", "bomb"), ("flood-whole", "flood.text")):
        small = replace(wrong, row=row, models=(fault,), asked=(1,), pool=NARROW)
        yield replace(small, error=MalformedResponse)
    drip = replace(wrong, row="drip-whole", models=("drip.text",), asked=(1,))
    yield replace(drip, error=ProviderTimeout)
