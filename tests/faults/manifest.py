"""Every fault that has to be survived: what the caller gets, and what the provider sees.

The rows are the specification, and the tests name the rows that they prove; `test_manifest.py`
holds the two together. In all of them a right answer is the whole text or one clear error, no
request hangs, and nothing is asked again that cannot succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

PROOFS: dict[str, list[str]] = {}
"""The tests of each row, by their names."""
SHOWN: dict[str, set[str]] = {}
"""The doors of the gateway at which each row is shown by a test."""
ANSWERS = ("chat", "responses", "messages", "sampling")
"""The doors at which a model answers."""
WITHOUT_HEADERS = ("ws", "mcp")
"""More doors at which a model answers, all in messages: they are met wherever `ANSWERS` are."""
DOORS = (*ANSWERS, "embeddings")


class Row(NamedTuple):
    """One fault."""

    fault: str
    caller: str
    provider: str
    doors: tuple[str, ...] = DOORS
    """Where a caller of the gateway meets it."""
    elsewhere: str = ""
    """Why it cannot be met at the other doors."""


class _Doors(NamedTuple):
    doors: tuple[str, ...]
    elsewhere: str


_ERROR = "the whole text from another target; alone, the error"
_TRIED = "asked again as often as `retries` allows, then the next target once"
_ONCE = "asked once, then the next target once"
_NEXT = "the whole text, gone on with by another target; alone, one error behind the part"

_STREAMS = _Doors(ANSWERS, "vectors are never streamed")
_OTHERS = _Doors(ANSWERS, "vectors of another target do not compare, so nobody else is asked")
_WORDS = _Doors(ANSWERS, "it is a fault of an answer in words")
_LIMIT = _Doors(("sampling",), "only this door takes the caller's own time limit")

MANIFEST: dict[str, Row] = {
    # ---- refusals
    "429-seconds": Row("429, Retry-After in seconds", "the whole text", "a second try after it"),
    "429-ms": Row("429, Retry-After in ms", "the whole text", "a second try after it"),
    "429-date": Row("429, Retry-After as a date", "the whole text", "a second try after it"),
    "429-long": Row("429, longer than is waited", _ERROR, _ONCE),
    "429-deadline": Row("429, longer than the request may take", _ERROR, _ONCE, *_LIMIT),
    "429-forever": Row("429 for ever", _ERROR, _TRIED),
    "429-pause": Row(
        "429 with a long pause, to many", "the whole text from another", "asked once", *_OTHERS
    ),
    "429-traffic": Row("429 for ever, to many", "RateLimited", "retries a fraction of requests"),
    "500-once": Row("500 once", "the whole text", "a second try, and nobody else"),
    "500-forever": Row("500 for ever", _ERROR, _TRIED),
    "503-forever": Row("503 for ever", _ERROR, _TRIED),
    "401": Row("refused key", _ERROR, _ONCE),
    "400": Row("bad request", "InvalidRequest", "asked once, and nobody else"),
    "context": Row("prompt beyond the window", "the text from a larger one", _ONCE),
    "filter": Row("filtered prompt", "ContentRejected", "asked once, and nobody else"),
    "html": Row("a proxy's page, as 502 and as 200", _ERROR, _TRIED),
    "error-in-200": Row("an error's body under 200", _ERROR, _TRIED),
    # ---- silence and broken connections
    "reset": Row("reset before headers", _ERROR, _TRIED),
    "silence": Row("no headers", _ERROR, _ONCE),
    "silence-long": Row(
        "silence, before a long answer",
        "the whole text from another, within `first_token_timeout_s`",
        _ONCE,
        *_OTHERS,
    ),
    "slow-first": Row("headers and no first token, or no rest of the body", _ERROR, _ONCE),
    "deadline": Row(
        "silent targets one after the other", "ProviderTimeout", "no more than fit", *_LIMIT
    ),
    # ---- streams
    "cut": Row("cut after 40 of 60, after the first, before the last", _NEXT, _ONCE, *_STREAMS),
    "cut-whole": Row("an answer that is no stream is cut", _ERROR, _TRIED),
    "truncated": Row("the body ends well, the stream does not", _NEXT, _ONCE, *_STREAMS),
    "stall": Row("nothing more in mid-stream", _NEXT, _ONCE, *_STREAMS),
    "prefill-refused": Row(
        "cut, and the next takes no prefill", "the whole text", "asked anew", *_STREAMS
    ),
    "joined": Row(
        "cut, and the next uses other words", "both parts, marked `continued_by`", _ONCE, *_STREAMS
    ),
    "another-answer": Row(
        "cut, and `restart_only` meets other words", "the part and one error", _ONCE, *_STREAMS
    ),
    "mid-stream-error": Row(
        "cut, and errors are wished", "the part and its error", "no other", *_STREAMS
    ),
    "cut-call": Row("cut in a tool call", "the part and one error", "no other", *_STREAMS),
    "cut-twice": Row(
        "the second breaks too", "the whole text from the third", "each once", *_STREAMS
    ),
    "malformed-event": Row("one event that is no JSON", _NEXT, _ONCE, *_STREAMS),
    "malformed-whole": Row("an answer that is no JSON", _ERROR, _TRIED),
    "no-done": Row("nothing behind the terminal event", "the whole text", "asked once", *_STREAMS),
    "no-terminal": Row("all the text and no terminal event", _NEXT, _ONCE, *_STREAMS),
    # ---- in-band
    "in-band-whole": Row("each dialect's errors in a whole 200", _ERROR, _TRIED, *_WORDS),
    "in-band-first": Row("each dialect's errors before the first token", _ERROR, _TRIED, *_STREAMS),
    "in-band-later": Row("each dialect's errors in mid-stream", _NEXT, _ONCE, *_STREAMS),
    "in-band-final": Row(
        "a filter or a bad request, in-band", "that error", "no other target", *_WORDS
    ),
    # ---- what an answer says of its end
    "empty": Row(
        "an empty answer that ended well",
        "the text from another target; alone, the empty answer",
        _ONCE,
        *_WORDS,
    ),
    "no-reason": Row("no reason, and an end", "the whole text, noted", "asked once", *_WORDS),
    "unknown-reason": Row(
        "an unknown reason", "the text, and no normal end", "asked once", *_WORDS
    ),
    "kept-alive": Row(
        "pings or blank lines for longer than silence may last",
        "the whole text",
        "asked once",
        *_WORDS,
    ),
    # ---- bodies
    "wrong-type": Row("JSON for a stream, a stream for JSON", _ERROR, _TRIED, *_STREAMS),
    "mislabelled": Row("the right body under another type", "the whole text", "asked once"),
    "gzip": Row("a compressed answer and stream", "the whole text", "asked once"),
    "gzip-cut": Row("compressed and cut", _NEXT, "asked again, or the next target"),
    "gzip-false": Row("plain under the name of gzip", _ERROR, _TRIED),
    "gzip-bomb": Row("a little that unpacks to very much", _ERROR, "hung up on"),
    "no-end": Row(
        "all is said, and the body stays open", "the whole text", "hung up on", *_STREAMS
    ),
    "drip-whole": Row("an answer that drips for ever", _ERROR, _ONCE + "; hung up on"),
    "flood-whole": Row("an answer that floods for ever", _ERROR, _ONCE + "; hung up on"),
    "drip-stream": Row(
        "comments, blanks, half an event, for ever", _NEXT, "once; hung up on", *_STREAMS
    ),
    "flood-stream": Row("the same as fast as it is read", _NEXT, "hung up on", *_STREAMS),
    # ---- over time
    "recovery": Row(
        "down, then healthy, under traffic", "always the text", "back in a cooldown", *_OTHERS
    ),
    "recovery-checked": Row(
        "down, with a model list that is well", "always the text", "never back later", *_OTHERS
    ),
    "breaker-refusal": Row("left alone after failures", "why, and for how long", "not asked"),
    "caller-gone": Row("the caller leaves", "nothing", "hung up on within a second; no blame"),
    # ---- accounting
    "failed-attempts": Row("failed attempts before the answer", "all counted", "as many", *_OTHERS),
    "failed-request": Row("nobody answers", "one failure, at whom it ended", "as many"),
    "cut-usage": Row(
        "a broken stream that is gone on with", "its part estimated", "as many", *_STREAMS
    ),
    "cancelled-usage": Row(
        "a stream that is left", "one cancellation, no answer", "hung up on", *_STREAMS
    ),
}


def proves(*names: str) -> Callable[[Test], Test]:
    """Marks the test that proves these rows; an unknown one is an error at once."""

    def record(test: Test) -> Test:
        for name in names:
            if name not in MANIFEST:
                raise LookupError(f"{name!r} is no row of the manifest; add it there")
            PROOFS.setdefault(name, []).append(test.__name__)
        return test

    return record


def shows(names: Iterable[str], doors: Iterable[str]) -> Callable[[Test], Test]:
    """Marks the test that shows these rows at these doors of the gateway."""
    places = set(doors)

    def record(test: Test) -> Test:
        for name in names:
            SHOWN.setdefault(name, set()).update(places)
        return proves(*names)(test)

    return record
