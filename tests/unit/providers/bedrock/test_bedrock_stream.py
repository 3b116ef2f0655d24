"""Messages of a stream in, events out."""

from __future__ import annotations

import base64
import itertools
import time

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
from penstock.contract.events import Chunk, Finished, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.bedrock.stream import ConverseStreamDecoder
from penstock.streaming.eventstream import EventStreamMessage
from tests.unit.providers.bedrock.bedrock_wire import (
    COUNTED,
    HEADERS,
    START,
    arguments,
    block_stop,
    delta,
    event,
    failure,
    feed,
    finished,
    metadata,
    start,
    stop,
    thought,
)

WHOLE = (
    START,
    thought(0, text="Let me "),
    thought(0, text="think."),
    thought(0, signature="sig1"),
    block_stop(0),
    thought(1, redactedContent="AQI="),
    block_stop(1),
    delta(2, text="Look"),
    delta(2, text="ing."),
    block_stop(2),
    start(3, "t1", "weather"),
    arguments(3, '{"city":'),
    arguments(3, ' "Paris"}'),
    block_stop(3),
    start(4, "t2", "now"),
    block_stop(4),
    stop("tool_use"),
    metadata(),
)
CONTENT = (
    Reasoning("Let me think.", signature="sig1"),
    Reasoning(signature="AQI=", redacted=True),
    Text("Looking."),
    ToolUse("t1", "weather", {"city": "Paris"}),
    ToolUse("t2", "now", {}),
)


def test_a_whole_stream() -> None:
    decoder, events = feed(*WHOLE)
    assert events[:-1] == [
        ReasoningDelta("Let me "),
        ReasoningDelta("think."),
        ReasoningDelta("", Reasoning("Let me think.", signature="sig1")),
        ReasoningDelta("", Reasoning(signature="AQI=", redacted=True)),
        Chunk("Look"),
        Chunk("ing."),
        ToolUseDelta(0, "t1", "weather"),
        ToolUseDelta(0, arguments='{"city":'),
        ToolUseDelta(0, arguments=' "Paris"}'),
        ToolUseDelta(1, "t2", "now"),
    ]
    assert finished(events) == Reply(CONTENT, "", "toolUse", COUNTED, "id-1", "tool_use")
    assert decoder.finish() == []
    assert decoder.feed(WHOLE) == []


@given(st.lists(st.integers(0, len(WHOLE)), max_size=5))
def test_batches_change_nothing(cuts: list[int]) -> None:
    decoder = ConverseStreamDecoder(HEADERS)
    edges = [0, *sorted(cuts), len(WHOLE)]
    events = [
        each
        for first, last in itertools.pairwise(edges)
        for each in decoder.feed(WHOLE[first:last])
    ]
    assert events == feed(*WHOLE)[1]


@pytest.mark.parametrize("count", range(len(WHOLE) - 2))
def test_a_stream_cut_before_its_end_is_never_a_success(count: int) -> None:
    decoder, events = feed(*WHOLE[:count])
    assert not any(isinstance(each, Finished) for each in events)
    with pytest.raises(StreamInterrupted) as caught:
        decoder.finish()
    said = "".join(each.text for each in events if isinstance(each, Chunk))
    assert caught.value.partial == said
    assert decoder.finish() == []


def test_the_answer_is_whole_without_its_tokens() -> None:
    decoder, events = feed(*WHOLE[:-1])
    assert not any(isinstance(each, Finished) for each in events)
    reply = finished(decoder.finish())
    assert (reply.content, reply.usage) == (CONTENT, Usage())


def test_tokens_are_no_end() -> None:
    decoder, events = feed(START, delta(0, text="a"), metadata())
    assert events == [Chunk("a")]
    with pytest.raises(StreamInterrupted):
        decoder.finish()


def test_tokens_may_come_first() -> None:
    _, events = feed(START, delta(0, text="a"), metadata(), stop())
    assert finished(events).usage == COUNTED


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "endTurn"),
        ("stop_sequence", "stopSequence"),
        ("max_tokens", "maxTokens"),
        ("model_context_window_exceeded", "maxTokens"),
        ("something_new", "something_new"),
    ],
)
def test_stop_reasons(reason: str, expected: str) -> None:
    reply = finished(feed(START, delta(0, text="a"), stop(reason), metadata())[1])
    assert (reply.stop_reason, reply.response_status) == (expected, reason)


@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered", "refusal"])
def test_a_filter_keeps_what_was_said(reason: str) -> None:
    decoder, events = feed(START, delta(0, text="Well, "), delta(0, text="no"), stop(reason))
    assert events == [Chunk("Well, "), Chunk("no")]
    with pytest.raises(ContentRejected, match=reason) as caught:
        decoder.finish()
    assert caught.value.partial == "Well, no"


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_what_the_model_garbled_is_malformed(reason: str) -> None:
    decoder, events = feed(START, delta(0, text="a"), stop(reason), metadata())
    assert events == [Chunk("a")]
    with pytest.raises(MalformedResponse, match=reason):
        decoder.finish()


def test_a_call_that_ran_out_of_tokens_is_left_out() -> None:
    frames = (delta(0, text="a"), start(1, "t", "n"), arguments(1, '{"c'), stop("max_tokens"))
    reply = finished(feed(START, *frames, metadata())[1])
    assert (reply.content, reply.stop_reason) == ((Text("a"),), "maxTokens")
    bare = finished(feed(START, start(0, "t", "n"), stop("max_tokens"), metadata())[1])
    assert bare.content == ()


def test_arguments_that_are_no_json_are_malformed() -> None:
    decoder, _ = feed(START, start(0, "t", "n"), arguments(0, "{"), stop("tool_use"), metadata())
    with pytest.raises(MalformedResponse, match="not JSON"):
        decoder.finish()


def test_a_call_without_a_name_is_malformed() -> None:
    decoder, _ = feed(START, start(0, "t", ""), stop("tool_use"), metadata())
    with pytest.raises(MalformedResponse, match="no name"):
        decoder.finish()


def test_two_thoughts_keep_their_own_signatures() -> None:
    frames = (thought(0, text="a", signature="s1"), thought(1, text="b", signature="s2"))
    content = finished(feed(START, *frames, stop(), metadata())[1]).content
    assert content == (Reasoning("a", signature="s1"), Reasoning("b", signature="s2"))


def test_hidden_thinking_in_pieces_is_joined_as_bytes() -> None:
    pieces = [base64.b64encode(each).decode() for each in (b"\x01", b"\x02\x03")]
    frames = [thought(0, redactedContent=piece) for piece in pieces]
    (part,) = finished(feed(START, *frames, stop(), metadata())[1]).content
    assert part == Reasoning(signature=base64.b64encode(b"\x01\x02\x03").decode(), redacted=True)
    frames = [thought(0, redactedContent=piece) for piece in ("a", "b")]
    (part,) = finished(feed(START, *frames, stop(), metadata())[1]).content
    assert part == Reasoning(signature="ab", redacted=True)


def test_tools_that_bedrock_runs_itself_are_not_the_callers() -> None:
    frames = (
        start(0, "t", "web", type="server_tool_use"),
        arguments(0, '{"q": 1}'),
        event("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolResult": {}}}),
        delta(2, text="Found."),
    )
    _, events = feed(START, *frames, stop(), metadata())
    assert finished(events).content == (Text("Found."),)
    assert finished(events).stop_reason == "endTurn"


BROKEN = (
    event("contentBlockDelta", b"{"),
    event("contentBlockDelta", b"[]"),
    event("contentBlockDelta", {"delta": {"text": "a"}}),
    event("contentBlockDelta", {"contentBlockIndex": "0", "delta": {"text": "a"}}),
    event("contentBlockStart", b"\xff"),
    event("messageStop", {}),
    arguments(7, "{}"),
    delta(1, text="text in a call"),
    thought(1, text="a thought in a call"),
    thought(0, text="a thought in a text"),
)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_message_that_cannot_be_read_breaks_the_stream(broken: EventStreamMessage) -> None:
    decoder = ConverseStreamDecoder(HEADERS)
    frames = (START, delta(0, text="a"), start(1, "t", "n"), broken, delta(0, text="b"))
    told = decoder.feed([*frames, stop(), metadata()])
    assert told == [Chunk("a"), ToolUseDelta(0, "t", "n")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.finish()
    assert caught.value.partial == "a"


def test_unknown_messages_are_skipped() -> None:
    _, events = feed(START, event("news", {"a": 1}), event("news", b"?"), stop(), metadata())
    assert finished(events).content == ()


def test_counts_that_cannot_be_read_cost_no_answer() -> None:
    decoder, _ = feed(START, delta(0, text="a"), stop(), event("metadata", b"null"))
    (last,) = decoder.finish()
    assert finished([last]).content == (Text("a"),)


@pytest.mark.parametrize(
    ("kind", "error", "retryable"),
    [
        ("throttlingException", RateLimited, True),
        ("validationException", InvalidRequest, False),
        ("internalServerException", ProviderUnavailable, True),
        ("serviceUnavailableException", ProviderUnavailable, True),
        ("modelStreamErrorException", ProviderUnavailable, True),
        ("modelTimeoutException", ProviderUnavailable, True),
        ("accessDeniedException", AuthenticationFailed, False),
        ("somethingNewException", ProviderUnavailable, True),
        ("", ProviderUnavailable, True),
    ],
)
def test_exceptions_are_typed_and_lose_no_text(
    kind: str, error: type[PenstockError], retryable: bool
) -> None:
    decoder, events = feed(START, delta(0, text="a"), failure(kind, {"message": "It broke."}))
    assert events == [Chunk("a")]
    with pytest.raises(error, match=r"It broke\.") as caught:
        decoder.feed([delta(0, text="b")])
    assert type(caught.value) is error
    assert caught.value.retryable is retryable
    assert decoder.finish() == []


def test_an_exception_at_the_start_is_raised_at_once() -> None:
    with pytest.raises(RateLimited):
        feed(START, failure("throttlingException"))


def test_an_unmodelled_error_is_in_the_headers() -> None:
    headers = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "Oh"}
    with pytest.raises(ProviderUnavailable, match=r"\(InternalFailure\): Oh"):
        feed(START, EventStreamMessage(headers, b""))


@given(
    st.lists(
        st.builds(
            EventStreamMessage,
            st.fixed_dictionaries(
                {
                    ":event-type": st.sampled_from(
                        ["contentBlockStart", "contentBlockDelta", "messageStop", "metadata", "x"]
                    ),
                    ":message-type": st.sampled_from(["event", "exception", "error"]),
                }
            ),
            st.binary() | st.sampled_from([frame.payload for frame in WHOLE]),
        )
    )
)
def test_any_messages_end_in_one_reply_or_one_typed_error(
    frames: list[EventStreamMessage],
) -> None:
    decoder = ConverseStreamDecoder({})
    try:
        events = [*decoder.feed(frames), *decoder.finish()]
    except PenstockError:
        return
    finished(events)


def test_a_piece_of_text_is_cheap() -> None:
    """Far above what it takes, so that only a change of kind fails here."""
    frames = [delta(0, text="token ") for _ in range(2000)]

    def seconds() -> float:
        decoder = ConverseStreamDecoder({})
        began = time.thread_time()
        assert len(decoder.feed(frames)) == 2000
        return time.thread_time() - began

    assert min(seconds() for _ in range(3)) / 2000 < 50e-6
