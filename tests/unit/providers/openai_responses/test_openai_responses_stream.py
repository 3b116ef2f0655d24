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
from penstock.contract.exchange import Reply
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.openai_responses.decode import ResponseStreamDecoder
from penstock.streaming.sse import ServerSentEvent
from tests.unit.providers.openai_responses.responses_wire import (
    COUNTED,
    USAGE,
    WireEvent,
    added,
    arguments,
    call,
    created,
    delta,
    done,
    end,
    frame,
    message,
    refusal,
    reply_of,
    run,
    summary,
    text,
    thought,
)

HELLO = message("Hello")
THOUGHT = thought("Let me", "Then")
PARIS = call("weather", '{"city":"Paris"}', id="fc_1", call_id="a")
NOON = call("clock", "{}", id="fc_2", call_id="b")
WHOLE: tuple[WireEvent, ...] = (
    created(),
    {"type": "response.in_progress", "response": {}},
    added(0, THOUGHT),
    summary(0, "Let "),
    summary(0, "me"),
    summary(0, "Then", 1),
    done(0, THOUGHT),
    added(1, HELLO),
    {"type": "response.content_part.added", "output_index": 1},
    text(1, "Hel"),
    text(1, "lo"),
    {"type": "response.output_text.done", "output_index": 1, "text": "Hello"},
    done(1, HELLO),
    added(2, PARIS),
    arguments(2, '{"city"'),
    arguments(2, ':"Paris"}'),
    {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "x"},
    done(2, PARIS),
    added(3, NOON),
    arguments(3, "{}"),
    done(3, NOON),
)
END = end(THOUGHT, HELLO, PARIS, NOON, usage=USAGE)
SIGNED = Reasoning("Let me\n\nThen", signature="enc", meta={"openai_id": "rs_1"})


def test_a_stream_of_everything() -> None:
    assert run(*WHOLE, END) == [
        ReasoningDelta("Let "),
        ReasoningDelta("me"),
        ReasoningDelta("\n\nThen"),
        ReasoningDelta("", SIGNED),
        Chunk("Hel"),
        Chunk("lo"),
        ToolUseDelta(0, "a", "weather"),
        ToolUseDelta(0, arguments='{"city"'),
        ToolUseDelta(0, arguments=':"Paris"}'),
        ToolUseDelta(1, "b", "clock"),
        ToolUseDelta(1, arguments="{}"),
        Finished(
            Reply(
                (
                    SIGNED,
                    Text("Hello"),
                    ToolUse("a", "weather", {"city": "Paris"}),
                    ToolUse("b", "clock", {}),
                ),
                "m-1",
                "toolUse",
                COUNTED,
                "r1",
                "completed",
            )
        ),
    ]


@pytest.mark.parametrize("count", range(len(WHOLE)))
def test_a_stream_that_ends_early_is_interrupted_with_its_text(count: int) -> None:
    decoder = ResponseStreamDecoder()
    events = [each for event in WHOLE[:count] for each in decoder.feed([frame(event)])]
    assert not any(isinstance(event, Finished) for event in events)
    with pytest.raises(StreamInterrupted) as caught:
        decoder.finish()
    told = "".join(event.text for event in events if isinstance(event, Chunk))
    assert caught.value.partial == told


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([end(HELLO)], id="only the end"),
        pytest.param([done(0, HELLO), end()], id="only the whole item"),
        pytest.param([text(0, "Hello"), end()], id="only pieces"),
        pytest.param([text(0, "Hel"), end(HELLO)], id="the last piece is missing"),
        pytest.param([text(None, "Hello"), end(HELLO)], id="neither number nor id"),
        pytest.param(
            [added(None, HELLO), text(None, "Hello", item_id="msg_1"), end(HELLO)], id="ids only"
        ),
        pytest.param(
            [added(0, HELLO), text(0, "Hello"), end(thought(encrypted=None), HELLO)],
            id="numbered differently at the end",
        ),
        pytest.param(
            [text(0, "Hello"), {"type": "response.completed"}], id="an end without a response"
        ),
        pytest.param([b"null", text(0, "Hello"), "[DONE]", end(HELLO)], id="noise"),
    ],
)
def test_the_text_is_told_once_however_a_server_says_it(events: list[WireEvent]) -> None:
    told = run(*events)
    assert "".join(event.text for event in told if isinstance(event, Chunk)) == "Hello"
    assert reply_of(told).text == "Hello"


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([done(0, PARIS), end(PARIS)], id="whole"),
        pytest.param([end(PARIS)], id="at the end"),
        pytest.param([arguments(0, '{"city"'), done(0, PARIS), end(PARIS)], id="not announced"),
        pytest.param([added(0, PARIS), arguments(0, '{"ci'), end(PARIS)], id="cut short"),
        pytest.param(
            [added(None, PARIS), arguments(None, '{"city":"Paris"}', item_id="fc_1"), end(PARIS)],
            id="ids only",
        ),
    ],
)
def test_a_call_is_told_once_however_a_server_says_it(events: list[WireEvent]) -> None:
    told = [event for event in run(*events) if isinstance(event, ToolUseDelta)]
    assert told[0] == ToolUseDelta(0, "a", "weather")
    assert not any(event.id or event.name for event in told[1:])
    assert "".join(event.arguments for event in told) == '{"city":"Paris"}'
    assert reply_of(run(*events)).content == (ToolUse("a", "weather", {"city": "Paris"}),)


def test_what_was_told_wins_over_a_whole_that_differs() -> None:
    events = run(text(0, " Hello"), end(HELLO))
    assert reply_of(events).text == " Hello"


@pytest.mark.parametrize(
    "broken",
    [
        ServerSentEvent(b"{"),
        ServerSentEvent(b"{", "response.output_text.delta"),
        ServerSentEvent(b'{"type": "response.output_text.delta", "delta": 7}'),
        frame({"type": "response.output_item.added", "item": {"type": "message", "content": 7}}),
        frame(done(1, {"type": "function_call", "name": 7})),
        frame(done(1, {"type": "mcp_approval_request", "id": 7})),
    ],
)
def test_an_event_that_cannot_be_read_breaks_the_stream(broken: ServerSentEvent) -> None:
    decoder = ResponseStreamDecoder()
    frames = [frame(text(0, "He")), broken, frame(text(0, "lo")), frame(end(HELLO))]
    assert decoder.feed(frames) == [Chunk("He")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.feed([])
    assert caught.value.partial == "He"


@pytest.mark.parametrize(
    "harmless",
    [
        ServerSentEvent(b""),
        ServerSentEvent(b"?", "ping"),
        ServerSentEvent(b"{", "response.new_event"),
        ServerSentEvent(b'{"type": "response.audio.delta", "delta": {}}'),
        ServerSentEvent(b'{"type": "response.created", "response": 7}', "response.created"),
    ],
)
def test_what_holds_nothing_of_the_answer_is_skipped(harmless: ServerSentEvent) -> None:
    frames = [frame(text(0, "He")), harmless, frame(text(0, "llo")), frame(end(HELLO))]
    assert reply_of(ResponseStreamDecoder().feed(frames)).text == "Hello"


def test_plain_thinking_of_open_models() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    events = run(delta("reasoning_text", 0, "H"), delta("reasoning_text", 0, "m."), end(item))
    assert events[:-1] == [ReasoningDelta("H"), ReasoningDelta("m.")]
    assert reply_of(events).content == (Reasoning("Hm."),)


def test_a_refusal_is_no_success() -> None:
    decoder = ResponseStreamDecoder()
    told = decoder.feed([frame(text(0, "Well")), frame(delta("refusal", 0, "I can"))])
    assert told == [Chunk("Well")]
    with pytest.raises(ContentRejected, match="I cannot") as caught:
        decoder.feed([frame(delta("refusal", 0, "not")), frame(end(refusal("I cannot", "Well")))])
    assert caught.value.partial == "Well"


def test_a_filter_strikes_in_the_middle() -> None:
    reason = {"incomplete_details": {"reason": "content_filter"}}
    decoder = ResponseStreamDecoder()
    last = end(message("Well"), status="incomplete", **reason)
    assert decoder.feed([frame(text(0, "Well")), frame(last)]) == [Chunk("Well")]
    with pytest.raises(ContentRejected) as caught:
        decoder.finish()
    assert caught.value.partial == "Well"


ERRORS: list[Any] = [
    {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "sequence_number": 3},
    {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}},
    {"error": {"code": "rate_limit_exceeded", "message": "slow"}},
    end(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
]


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_inside_a_stream_waits_for_the_text_before_it(error: dict[str, Any]) -> None:
    decoder = ResponseStreamDecoder()
    assert decoder.feed([frame(text(0, "a")), frame(error), frame(text(0, "b"))]) == [Chunk("a")]
    with pytest.raises(RateLimited, match="slow"):
        decoder.finish()
    alone = ResponseStreamDecoder()
    with pytest.raises(RateLimited):
        alone.feed([frame(error)])
    assert alone.feed([frame(text(0, "b"))]) == []


def test_a_policy_strikes_inside_a_stream() -> None:
    decoder = ResponseStreamDecoder()
    decoder.feed([frame(text(0, "Well"))])
    with pytest.raises(ContentRejected) as caught:
        decoder.feed([frame({"type": "error", "code": "bio_policy", "message": "no"})])
    assert caught.value.partial == "Well"


def test_items_that_nobody_can_read_are_left_out() -> None:
    foreign: dict[str, Any] = {"type": "tool_search_call", "arguments": {}}
    events = run(added(0, foreign), done(0, foreign), text(1, "a"), text(1, ""), end())
    assert reply_of(events).content == (Text("a"),)


def test_an_error_event_that_is_no_json() -> None:
    with pytest.raises(ProviderUnavailable, match="overloaded"):
        ResponseStreamDecoder().feed([frame(b"overloaded", "error")])


def test_running_out_of_tokens_leaves_out_the_broken_call() -> None:
    reason = {"incomplete_details": {"reason": "max_output_tokens"}}
    broken = {**PARIS, "arguments": '{"ci'}
    events = run(
        text(0, "a"),
        added(1, PARIS),
        arguments(1, '{"ci'),
        end(message("a"), broken, status="incomplete", **reason),
    )
    reply = reply_of(events)
    assert (reply.content, reply.stop_reason) == ((Text("a"),), "maxTokens")


def test_streams_of_nothing_and_of_something_else() -> None:
    with pytest.raises(StreamInterrupted):
        ResponseStreamDecoder().finish()
    decoder = ResponseStreamDecoder()
    assert decoder.feed([frame({"choices": []})]) == []
    with pytest.raises(MalformedResponse):
        decoder.feed([frame(b"x")])


def test_after_the_end_there_is_nothing() -> None:
    decoder = ResponseStreamDecoder()
    assert isinstance(decoder.feed([frame(end(HELLO))])[-1], Finished)
    assert decoder.feed([frame(text(0, "more"))]) == []
    assert decoder.finish() == []


@given(st.lists(st.integers(1, 6)))
def test_any_cut_into_reads_gives_the_same(sizes: list[int]) -> None:
    frames = [frame(event) for event in (*WHOLE, END)]
    decoder = ResponseStreamDecoder()
    out: list[ProviderEvent] = []
    at = 0
    for size in [*sizes, len(frames)]:
        out += decoder.feed(frames[at : at + size])
        at += size
    assert [*out, *decoder.finish()] == run(*WHOLE, END)


EVENTS = st.sampled_from([*WHOLE, END, *ERRORS, b"{", b"[]", "[DONE]", end(status="cancelled")])


@given(st.lists(EVENTS | st.binary(max_size=20), max_size=12))
def test_any_order_of_events_ends_once_or_fails_typed(events: list[WireEvent]) -> None:
    decoder = ResponseStreamDecoder()
    told: list[ProviderEvent] = []
    try:
        for event in events:
            told += decoder.feed([frame(event)])
        told += decoder.finish()
    except PenstockError:
        assert not any(isinstance(event, Finished) for event in told)
    else:
        reply = reply_of(told)
        assert "".join(each.text for each in told if isinstance(each, Chunk)) == reply.text
