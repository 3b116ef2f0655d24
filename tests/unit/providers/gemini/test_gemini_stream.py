"""Events in, deltas and one terminal event out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import (
    Chunk,
    Finished,
    ProviderEvent,
    ReasoningDelta,
    ToolUseDelta,
)
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.gemini.contents import CONTINUATION, SIGNATURE
from penstock.providers.gemini.decode import decode
from penstock.providers.gemini.stream import GeminiStreamDecoder
from tests.unit.providers.gemini.gemini_wire import (
    COUNTED,
    WireEvent,
    body,
    call,
    event,
    frame,
    reply_of,
    run,
    text,
)

OVERLOADED = {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}
EVERYTHING: tuple[dict[str, Any], ...] = (
    event(text("Let me ", thought=True)),
    event(text("think.", thought=True)),
    event(text("It "), text("is ")),
    event(text("sunny")),
    event(call("weather", {"city": "Rome"}, id="c1", thoughtSignature="s")),
    event(call("clock", id="c2"), call("now")),
    event(text(""), finish="STOP"),
)


def test_a_stream_of_text() -> None:
    assert run(event(text("Hel")), event(text("lo")), event(text(""), finish="STOP")) == [
        Chunk("Hel"),
        Chunk("lo"),
        Finished(Reply((Text("Hello"),), "m-1", "endTurn", COUNTED, "r1", "STOP")),
    ]


def test_every_kind_of_part() -> None:
    events = run(*EVERYTHING)
    assert events[:-1] == [
        ReasoningDelta("Let me "),
        ReasoningDelta("think."),
        Chunk("It "),
        Chunk("is "),
        Chunk("sunny"),
        ToolUseDelta(0, "c1", "weather", '{"city":"Rome"}'),
        ToolUseDelta(1, "c2", "clock", "{}"),
        ToolUseDelta(2, "call_r1_2", "now", "{}"),
    ]
    reply = reply_of(events)
    assert reply.stop_reason == "toolUse"
    assert reply.content == (
        Reasoning("Let me think."),
        Text("It is sunny"),
        ToolUse("c1", "weather", {"city": "Rome"}, meta={SIGNATURE: "s"}),
        ToolUse("c2", "clock", {}),
        ToolUse("call_r1_2", "now", {}),
    )


def test_a_signed_thought_is_told_with_its_signature() -> None:
    thought = text("why", thought=True, thoughtSignature="s")
    events = run(event(thought), event(text("a"), finish="STOP"))
    signed = Reasoning("why", signature="s")
    assert events[:-1] == [ReasoningDelta("why"), ReasoningDelta("", signed), Chunk("a")]
    assert reply_of(events).content == (signed, Text("a"))


def test_a_signature_at_the_end_is_a_part_of_its_own() -> None:
    events = run(event(text("a")), event(text("", thoughtSignature="s"), finish="STOP"))
    assert events[:-1] == [Chunk("a")]
    assert reply_of(events).content == (Text("a"), Text("", meta={SIGNATURE: "s"}))


def test_the_last_usage_counts() -> None:
    first = event(text("a")) | {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1}}
    bare = event(text("c"), finish="STOP")
    del bare["usageMetadata"]
    assert reply_of(run(first, event(text("b")), bare)).usage == COUNTED
    assert reply_of(run(bare)).usage == Usage()


def test_what_follows_the_reason_in_the_same_read_still_counts() -> None:
    decoder = GeminiStreamDecoder()
    frames = [frame(event(text("a"), finish="STOP")), frame(event(text("b"), finish="STOP"))]
    events = decoder.feed(frames)
    assert [type(each) for each in events] == [Chunk, Chunk, Finished]
    assert reply_of(events).text == "ab"
    assert decoder.feed([frame(event(text("late")))]) == []
    assert decoder.finish() == []


@pytest.mark.parametrize("count", range(len(EVERYTHING)))
def test_a_cut_after_any_event_is_an_interruption(count: int) -> None:
    decoder = GeminiStreamDecoder()
    events: list[ProviderEvent] = []
    for each in EVERYTHING[:count]:
        events += decoder.feed([frame(each)])
    with pytest.raises(StreamInterrupted) as caught:
        decoder.finish()
    said = "".join(each.text for each in events if isinstance(each, Chunk))
    assert caught.value.partial == said
    assert not any(isinstance(each, Finished) for each in events)
    assert decoder.finish() == []


def test_a_stream_without_candidates_is_no_stream_of_this_wire() -> None:
    with pytest.raises(MalformedResponse, match="no candidates"):
        run({"usageMetadata": {}}, b"null")
    with pytest.raises(MalformedResponse, match="cannot be read"):
        run({"usageMetadata": {}}, b"nonsense")


@pytest.mark.parametrize("nonsense", [b"{", b'{"candidates": 7}', b'[{"a": 1}]', b"\xff"])
def test_an_event_that_cannot_be_read_breaks_the_stream(nonsense: bytes) -> None:
    decoder = GeminiStreamDecoder()
    frames = [frame(event(text("a"))), frame(nonsense), frame(event(text("b"), finish="STOP"))]
    assert decoder.feed(frames) == [Chunk("a")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.feed([])
    assert caught.value.partial == "a"


@pytest.mark.parametrize("nothing", [b"", b"[DONE]", b"null", b"[]", b"{}", b'{"news": 1}'])
def test_what_holds_nothing_of_the_answer_is_skipped(nothing: bytes) -> None:
    decoder = GeminiStreamDecoder()
    good = [frame(event(text("a"))), frame(nothing), frame(event(text("b"), finish="STOP"))]
    assert reply_of(decoder.feed(good)).text == "ab"


@pytest.mark.parametrize("wire", [OVERLOADED, [OVERLOADED]])
def test_an_error_in_the_stream_loses_no_text(wire: WireEvent) -> None:
    decoder = GeminiStreamDecoder()
    assert decoder.feed([frame(event(text("a"))), frame(wire)]) == [Chunk("a")]
    with pytest.raises(ProviderUnavailable, match="Overloaded") as caught:
        decoder.feed([frame(event(text("b"), finish="STOP"))])
    assert caught.value.status == 503
    assert decoder.finish() == []


def test_an_error_comes_at_once_when_nothing_waits_before_it() -> None:
    with pytest.raises(ProviderUnavailable):
        GeminiStreamDecoder().feed([frame(OVERLOADED)])


@pytest.mark.parametrize("data", [b"gone", b'{"message": "gone"}'])
def test_an_event_named_error(data: bytes) -> None:
    with pytest.raises(ProviderUnavailable, match="gone"):
        GeminiStreamDecoder().feed([frame(data, "error")])


def test_an_error_beside_candidates_is_an_error() -> None:
    with pytest.raises(RateLimited):
        run(event(text("a")) | {"error": {"status": "RESOURCE_EXHAUSTED"}})


def test_a_filter_in_the_midst_keeps_what_was_said() -> None:
    decoder = GeminiStreamDecoder()
    events = decoder.feed([frame(event(text("Half"))), frame(event(finish="SAFETY"))])
    assert events == [Chunk("Half")]
    with pytest.raises(ContentRejected, match="SAFETY") as caught:
        decoder.finish()
    assert caught.value.partial == "Half"


def test_a_blocked_prompt() -> None:
    with pytest.raises(ContentRejected, match="BLOCKLIST"):
        run({"promptFeedback": {"blockReason": "BLOCKLIST"}, "usageMetadata": {}})


def test_a_paused_stream_carries_its_token() -> None:
    events = run(event(text("Once "), finish="CONTINUATION", continuationToken="dG9r"))
    reply = reply_of(events)
    assert reply.stop_reason == ""
    assert reply.content == (Text("Once ", meta={CONTINUATION: "dG9r"}),)


def test_other_candidates_are_ignored() -> None:
    other = event(text("no"), finish="SAFETY", index=1)
    assert reply_of(run(other, event(text("yes"), finish="STOP"))).text == "yes"


def _thought(piece: str) -> dict[str, Any]:
    return text(piece, thought=True)


def _signed(piece: str) -> dict[str, Any]:
    return text(piece, thoughtSignature="s")


def _call(name: str) -> dict[str, Any]:
    return call(name, {"a": 1}, id=name)


PARTS = st.one_of(
    st.text().map(text),
    st.text().map(_thought),
    st.text().map(_signed),
    st.text("abc", min_size=1).map(_call),
)


@given(st.lists(PARTS), st.data())
def test_a_stream_holds_what_the_whole_answer_holds(
    parts: list[dict[str, Any]], data: st.DataObject
) -> None:
    whole = decode(body(event(*parts, finish="STOP")))
    events: list[WireEvent] = []
    rest = parts
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        events.append(event(*rest[:size]))
        rest = rest[size:]
    assert reply_of(run(*events, event(finish="STOP"))) == whole


@given(st.lists(st.one_of(st.binary(), st.sampled_from([body(each) for each in EVERYTHING]))))
def test_any_frames_end_in_one_terminal_or_a_typed_error(frames: list[bytes]) -> None:
    decoder = GeminiStreamDecoder()
    events: list[ProviderEvent] = []
    try:
        for each in frames:
            events += decoder.feed([frame(each)])
        events += decoder.finish()
    except PenstockError:
        return
    reply_of(events)
