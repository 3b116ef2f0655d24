"""Events in, deltas and one terminal event out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    AuthenticationFailed,
    ContentRejected,
    InvalidRequest,
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
from penstock.providers.anthropic.decode import MessageStreamDecoder
from penstock.streaming.sse import ServerSentEvent
from tests.unit.providers.anthropic.message_wire import (
    COUNTED,
    PING,
    START,
    STOP,
    TEXT_STREAM,
    WireEvent,
    begin,
    call,
    delta,
    ending,
    frame,
    message,
    reply_of,
    run,
    says,
    stop,
    text,
    thinks,
    writes,
)

THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}


def signed(index: int, signature: str) -> dict[str, Any]:
    return delta(index, "signature_delta", signature=signature)


def failure(kind: str = "overloaded_error", **fields: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "oh", **fields}}


def test_a_stream_of_text() -> None:
    assert run(
        *(START, PING, begin(0, text("")), says(0, "Hel"), says(0, ""), says(0, "lo")),
        *(stop(0), ending(), STOP),
    ) == [
        Chunk("Hel"),
        Chunk("lo"),
        Finished(Reply((Text("Hello"),), "claude-x", "endTurn", COUNTED, "msg_1", "end_turn")),
    ]


def test_thinking_keeps_its_signature_block_by_block() -> None:
    events = run(
        *(START, begin(0, THOUGHT), thinks(0, "H"), thinks(0, "m."), signed(0, "s1"), stop(0)),
        *(begin(1, {"type": "redacted_thinking", "data": "x"}), stop(1)),
        *(begin(2, THOUGHT), thinks(2, "So."), signed(2, "s2"), stop(2)),
        *(begin(3, THOUGHT), signed(3, "s3"), stop(3)),
        *(begin(4, text("")), says(4, "Yes"), stop(4), ending(), STOP),
    )
    assert events[:-1] == [
        ReasoningDelta("H"),
        ReasoningDelta("m."),
        ReasoningDelta("", Reasoning(text="Hm.", signature="s1")),
        ReasoningDelta("", Reasoning(signature="x", redacted=True)),
        ReasoningDelta("So."),
        ReasoningDelta("", Reasoning(text="So.", signature="s2")),
        ReasoningDelta("", Reasoning(signature="s3")),
        Chunk("Yes"),
    ]
    assert reply_of(events).content == (
        Reasoning(text="Hm.", signature="s1"),
        Reasoning(signature="x", redacted=True),
        Reasoning(text="So.", signature="s2"),
        Reasoning(signature="s3"),
        Text("Yes"),
    )


def test_parallel_calls_are_numbered_among_themselves() -> None:
    events = run(
        *(START, begin(0, text("")), says(0, "So"), stop(0)),
        *(begin(1, call("a")), writes(1, ""), writes(1, '{"x"'), writes(1, ":1}"), stop(1)),
        *(begin(2, call("b", "g")), stop(2), ending("tool_use"), STOP),
    )
    assert events[:-1] == [
        Chunk("So"),
        ToolUseDelta(0, "a", "f"),
        ToolUseDelta(0, arguments='{"x"'),
        ToolUseDelta(0, arguments=":1}"),
        ToolUseDelta(1, "b", "g"),
    ]
    reply = reply_of(events)
    assert reply.content == (Text("So"), ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {}))
    assert reply.stop_reason == "toolUse"


def test_blocks_may_come_interleaved_and_whole() -> None:
    events = run(
        *(START, begin(0, text("a")), begin(1, call("t", x=1)), says(0, "b"), ending(), STOP),
    )
    assert events[:-1] == [Chunk("a"), ToolUseDelta(0, "t", "f", '{"x":1}'), Chunk("b")]
    assert reply_of(events).content == (Text("ab"), ToolUse("t", "f", {"x": 1}))


@pytest.mark.parametrize(
    "unknown",
    [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "x"}]},
        {"type": "of_tomorrow", "input": 7},
    ],
)
def test_blocks_and_events_that_are_not_known_are_skipped(unknown: dict[str, Any]) -> None:
    decoder = MessageStreamDecoder()
    events = [
        *(START, begin(0, unknown), writes(0, '{"q'), delta(0, "new_delta", x=1), stop(0)),
        *(
            {"type": "message_progress", "done": 7},
            {"type": "message_delta"},
            begin(1, text("")),
            says(1, "a"),
            stop(1),
        ),
        *(delta(1, "citations_delta", citation={"type": "x"}), ending(), STOP),
    ]
    found = decoder.feed([frame(event) for event in events])
    assert (found[:-1], reply_of(found).content) == ([Chunk("a")], (Text("a"),))


def test_usage_is_cumulative_and_may_be_missing() -> None:
    start = {"type": "message_start", "message": message(usage={"input_tokens": 5})}
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 2},
    }
    assert reply_of(run(start, end, STOP)).usage == Usage(5, 2)
    later = end | {"usage": {"output_tokens": 9, "cache_read_input_tokens": 4}}
    assert reply_of(run(start, end, later, STOP)).usage == Usage(9, 9, 4)
    bare = {"type": "message_start", "message": {"id": "m"}}
    assert reply_of(run(bare, end | {"usage": None}, STOP)).usage == Usage()


@pytest.mark.parametrize(
    ("reason", "mapped"),
    [
        ("end_turn", "endTurn"),
        ("stop_sequence", "stopSequence"),
        ("max_tokens", "maxTokens"),
        ("model_context_window_exceeded", "maxTokens"),
        ("pause_turn", ""),
        ("of_tomorrow", "of_tomorrow"),
    ],
)
def test_stop_reasons(reason: str, mapped: str) -> None:
    reply = reply_of(run(*TEXT_STREAM[:-2], ending(reason), STOP))
    assert (reply.stop_reason, reply.response_status) == (mapped, reason)


@pytest.mark.parametrize("arguments", ["", '{"city": "Be'])
def test_a_call_that_ran_out_of_tokens_is_left_out(arguments: str) -> None:
    cut = (begin(1, call("b", "g")), writes(1, arguments), ending("max_tokens"), STOP)
    reply = reply_of(run(START, begin(0, text("So")), *cut))
    assert (reply.content, reply.stop_reason) == ((Text("So"),), "maxTokens")
    reply = reply_of(run(START, begin(0, call("a")), writes(0, "{}"), *cut))
    assert (reply.content, reply.stop_reason) == ((ToolUse("a", "f", {}),), "toolUse")


@pytest.mark.parametrize(
    "events",
    [
        [begin(0, call("a")), writes(0, "{"), ending("tool_use"), STOP],
        [begin(0, call("a")), writes(0, "[]"), ending("tool_use"), STOP],
        [begin(0, call("")), ending("tool_use"), STOP],
        [begin(0, {"type": "tool_use", "id": "a", "name": "f", "input": 7}), STOP],
        [ending("tool_use"), STOP],
    ],
)
def test_a_broken_call_is_malformed(events: list[WireEvent]) -> None:
    with pytest.raises(MalformedResponse):
        run(START, *events)


def test_text_of_a_block_whose_beginning_was_lost_is_kept() -> None:
    assert reply_of(run(START, says(0, "a"), says(0, "b"), ending(), STOP)).text == "ab"


def test_the_terminal_event_comes_once_and_nothing_after_it() -> None:
    decoder = MessageStreamDecoder()
    frames = [frame(event) for event in TEXT_STREAM]
    events = decoder.feed([*frames, frame(says(0, "more")), frame(STOP)])
    assert [type(event) for event in events] == [Chunk, Finished]
    assert decoder.feed([frame(says(0, "more")), frame(STOP)]) == []
    assert decoder.finish() == []


def test_a_stop_reason_is_not_the_end() -> None:
    with pytest.raises(StreamInterrupted) as caught:
        run(*TEXT_STREAM[:-1])
    assert (caught.value.partial, caught.value.retryable) == ("Hello", True)


def test_an_end_without_a_reason_is_the_end() -> None:
    reply = reply_of(run(START, begin(0, text("")), says(0, "Hel"), ending(None), STOP))
    assert (reply.text, reply.stop_reason, reply.stop_detail) == ("Hel", "endTurn", "missing")


@pytest.mark.parametrize("events", [[PING], [b"not json"], [{"type": "x"}], [{"choices": []}]])
def test_a_stream_without_a_message_is_malformed(events: list[WireEvent]) -> None:
    with pytest.raises(MalformedResponse):
        run(*events)


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b'{"type": "content_block_delta", "delta": {"text": "\xff"}}',
        {"index": 0},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}},
        delta(7, "input_json_delta", partial_json="{"),
        b"[" * 100_000,
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": 7}},
        {"type": "message_delta", "delta": {"stop_reason": 7}},
    ],
)
def test_an_event_that_cannot_be_read_breaks_the_stream(broken: WireEvent) -> None:
    decoder = MessageStreamDecoder()
    events = [START, begin(0, text("")), says(0, "a"), broken, says(0, "b"), ending(), STOP]
    assert decoder.feed([frame(event) for event in events]) == [Chunk("a")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.feed([])
    assert caught.value.partial == "a"
    assert decoder.finish() == []


@pytest.mark.parametrize(
    "harmless",
    [
        ServerSentEvent(b""),
        ServerSentEvent(b"null"),
        ServerSentEvent(b"[DONE]"),
        ServerSentEvent(b"?", "ping"),
        ServerSentEvent(b"?", "new_event"),
        ServerSentEvent(b'{"type": "new_event", "index": "one"}', "new_event"),
        ServerSentEvent(b'{"type": "new_event", "delta": 7}'),
        frame(delta(7, "citations_delta", citation={})),
    ],
)
def test_what_holds_nothing_of_the_answer_is_skipped(harmless: ServerSentEvent) -> None:
    decoder = MessageStreamDecoder()
    events = [START, begin(0, text("")), says(0, "a"), says(0, "b"), ending(), STOP]
    frames = [frame(event) for event in events]
    assert reply_of(decoder.feed([*frames[:3], harmless, *frames[3:]])).text == "ab"


@pytest.mark.parametrize(
    ("details", "said"),
    [
        (None, "the model refused"),
        ({"type": "refusal", "category": "cyber", "explanation": "Not this."}, "Not this."),
        ({"type": "refusal", "category": "bio", "explanation": None}, "bio"),
    ],
)
def test_a_refusal_is_raised_at_the_end_with_the_partial(details: Any, said: str) -> None:
    decoder = MessageStreamDecoder()
    events = [*TEXT_STREAM[:-2], ending("refusal", stop_details=details), STOP]
    assert decoder.feed([frame(event) for event in events]) == [Chunk("Hello")]
    with pytest.raises(ContentRejected, match=said) as caught:
        decoder.finish()
    assert caught.value.partial == "Hello"


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (failure(), ProviderUnavailable, True),
        (failure("api_error"), ProviderUnavailable, True),
        (failure("rate_limit_error"), RateLimited, True),
        (
            failure("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            RateLimited,
            False,
        ),
        (failure("invalid_request_error"), InvalidRequest, False),
        (failure("authentication_error"), AuthenticationFailed, False),
        ({"type": "error"}, ProviderUnavailable, True),
        ({"type": "error", "error": "oh"}, ProviderUnavailable, True),
    ],
)
def test_an_error_inside_a_stream_is_typed(
    error: WireEvent, kind: type[PenstockError], retryable: bool
) -> None:
    with pytest.raises(PenstockError) as caught:
        run(START, begin(0, text("")), says(0, "Well"), error, STOP)
    assert (type(caught.value), caught.value.retryable) == (kind, retryable)


@pytest.mark.parametrize("data", [b"oh", b"{}", b'{"message": "oh"}', b'{"type": "x"}'])
def test_an_event_named_error_is_one_whatever_it_holds(data: bytes) -> None:
    decoder = MessageStreamDecoder()
    with pytest.raises(ProviderUnavailable):
        decoder.feed([ServerSentEvent(data, "error")])


def test_text_that_arrived_with_an_error_is_delivered_first() -> None:
    broken = [frame(event) for event in (START, says(0, "Well"), failure(), says(0, "no"))]
    for after in ([frame(STOP)], []):
        decoder = MessageStreamDecoder()
        assert decoder.feed(broken) == [Chunk("Well")]
        with pytest.raises(ProviderUnavailable, match="overloaded_error"):
            decoder.feed(after) if after else decoder.finish()


pieces = st.one_of(
    st.text(min_size=1).map(lambda said: says(0, said)),
    st.text(min_size=1).map(lambda said: thinks(1, said)),
    st.just(PING),
    st.just(b"{broken"),
    st.just(stop(0)),
)


@given(st.lists(pieces, max_size=8), st.data())
def test_a_stream_cut_anywhere_is_finished_only_if_it_said_so(
    middle: list[WireEvent], data: st.DataObject
) -> None:
    head = [START, begin(0, text("")), begin(1, THOUGHT)]
    stream: list[WireEvent] = [*head, *middle, ending(), STOP]
    cut = data.draw(st.integers(0, len(stream)))
    size = data.draw(st.integers(1, 4))
    frames = [frame(event) for event in stream[:cut]]
    readable = stream[:cut]
    if b"{broken" in readable:
        readable = readable[: readable.index(b"{broken")]
    said = "".join(
        event["delta"].get("text", "")
        for event in readable
        if isinstance(event, dict) and event["type"] == "content_block_delta"
    )
    decoder = MessageStreamDecoder()
    events: list[ProviderEvent] = []
    interrupted: StreamInterrupted | None = None
    try:
        for start in range(0, cut, size):
            events += decoder.feed(frames[start : start + size])
        events += decoder.finish()
    except StreamInterrupted as error:
        interrupted = error
    assert "".join(event.text for event in events if isinstance(event, Chunk)) == said
    if cut == len(stream) and b"{broken" not in stream:
        assert interrupted is None
        assert reply_of(events).text == said
    else:
        assert interrupted is not None
        assert interrupted.partial == said
        assert not any(isinstance(event, Finished) for event in events)


@given(st.lists(st.binary() | st.text().map(str.encode), max_size=6))
def test_arbitrary_frames_end_in_a_typed_error(frames: list[bytes]) -> None:
    with pytest.raises(PenstockError):
        run(*frames)
