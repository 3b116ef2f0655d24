"""Events in, deltas and one terminal event out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
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
from penstock.contract.exchange import Reply
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.openai_chat.decode import ChatStreamDecoder
from penstock.streaming.sse import ServerSentEvent
from tests.unit.providers.openai_chat.chat_wire import (
    COUNTED,
    DONE,
    USAGE,
    WireEvent,
    call,
    call_delta,
    delta,
    frame,
    reply_of,
    run,
)


def test_a_stream_of_text() -> None:
    assert run(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content=None),
        delta(content="lo"),
        delta("stop"),
        {"id": "r1", "model": "m-1", "choices": [], "usage": USAGE},
        DONE,
    ) == [
        Chunk("Hel"),
        Chunk("lo"),
        Finished(Reply((Text("Hello"),), "m-1", "endTurn", COUNTED, "r1", "stop")),
    ]


def test_thinking_comes_before_the_text() -> None:
    events = run(
        delta(reasoning_content="H"),
        delta(reasoning="m."),
        delta(content="Yes"),
        delta("stop"),
        DONE,
    )
    assert events[:-1] == [ReasoningDelta("H"), ReasoningDelta("m."), Chunk("Yes")]
    assert reply_of(events).content == (Reasoning(text="Hm."), Text("Yes"))


def test_parts_keep_the_order_in_which_they_began() -> None:
    events = run(
        delta(content="a"),
        call_delta(call("f", "{}", index=0, id="c1")),
        delta(content="b"),
        delta(reasoning="c"),
        delta("tool_calls", content="d"),
    )
    assert reply_of(events).content == (
        Text("a"),
        ToolUse("c1", "f", {}),
        Text("b"),
        Reasoning(text="c"),
        Text("d"),
    )


@pytest.mark.parametrize(
    ("pieces", "deltas", "calls"),
    [
        pytest.param(
            [
                [call("f", "", index=0, id="a")],
                [call(None, '{"x"', index=0)],
                [call(None, ":1}", index=0)],
                [call("g", "", index=1, id="b")],
                [call(None, "{}", index=1)],
            ],
            [
                ToolUseDelta(0, "a", "f"),
                ToolUseDelta(0, arguments='{"x"'),
                ToolUseDelta(0, arguments=":1}"),
                ToolUseDelta(1, "b", "g"),
                ToolUseDelta(1, arguments="{}"),
            ],
            [ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {})],
            id="by index, as OpenAI",
        ),
        pytest.param(
            [
                [call("f", "{", index=0, id="a"), call("g", "{", index=1, id="b")],
                [call(None, "}", index=1), call(None, "}", index=0)],
            ],
            [
                ToolUseDelta(0, "a", "f", "{"),
                ToolUseDelta(1, "b", "g", "{"),
                ToolUseDelta(1, arguments="}"),
                ToolUseDelta(0, arguments="}"),
            ],
            [ToolUse("a", "f", {}), ToolUse("b", "g", {})],
            id="interleaved",
        ),
        pytest.param(
            [[call("f", "{", index=0, id="a")], [call("f", "}", index=0, id="a")]],
            [ToolUseDelta(0, "a", "f", "{"), ToolUseDelta(0, arguments="}")],
            [ToolUse("a", "f", {})],
            id="id and name repeated in each delta",
        ),
        pytest.param(
            [[call("f", "{", id="a")], [call(None, "}", id="a")], [call("g", "{}", id="b")]],
            [
                ToolUseDelta(0, "a", "f", "{"),
                ToolUseDelta(0, arguments="}"),
                ToolUseDelta(1, "b", "g", "{}"),
            ],
            [ToolUse("a", "f", {}), ToolUse("b", "g", {})],
            id="no index, by id",
        ),
        pytest.param(
            [[call("f", "{")], [call(None, "}")], [call("f", '{"x":2}')]],
            [
                ToolUseDelta(0, "call_r1_0", "f", "{"),
                ToolUseDelta(0, arguments="}"),
                ToolUseDelta(1, "call_r1_1", "f", '{"x":2}'),
            ],
            [ToolUse("call_r1_0", "f", {}), ToolUse("call_r1_1", "f", {"x": 2})],
            id="neither index nor id",
        ),
        pytest.param(
            [[call("f", "{}", index=0, id="a")], [call("f", '{"x":1}', index=0, id="b")]],
            [ToolUseDelta(0, "a", "f", "{}"), ToolUseDelta(1, "b", "f", '{"x":1}')],
            [ToolUse("a", "f", {}), ToolUse("b", "f", {"x": 1})],
            id="every call has index 0, as Ollama",
        ),
        pytest.param(
            [
                [call("f", "", index=0, id="0")],
                [call(None, "{}", index=0, id="0")],
                [call("f", "", index=0, id="1")],
                [call(None, '{"x":1}', index=0, id="1")],
            ],
            [
                ToolUseDelta(0, "0", "f"),
                ToolUseDelta(0, arguments="{}"),
                ToolUseDelta(1, "1", "f"),
                ToolUseDelta(1, arguments='{"x":1}'),
            ],
            [ToolUse("0", "f", {}), ToolUse("1", "f", {"x": 1})],
            id="index 0 and an id in each delta, as SGLang",
        ),
        pytest.param(
            [[call("f", "{}", index=0, id="f"), call("f", '{"x":1}', index=1, id="f")]],
            [ToolUseDelta(0, "f", "f", "{}"), ToolUseDelta(1, "call_r1_1", "f", '{"x":1}')],
            [ToolUse("f", "f", {}), ToolUse("call_r1_1", "f", {"x": 1})],
            id="one id for two calls",
        ),
        pytest.param(
            [[call("f", {"x": 1}, index=0, id="a"), call("g", {}, index=1, id="b")]],
            [ToolUseDelta(0, "a", "f", '{"x":1}'), ToolUseDelta(1, "b", "g")],
            [ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {})],
            id="whole calls with objects",
        ),
        pytest.param(
            [[call(None, None, index=0, id="a")], [call("f", "{}", index=0)]],
            [ToolUseDelta(0, "a"), ToolUseDelta(0, name="f", arguments="{}")],
            [ToolUse("a", "f", {})],
            id="the name comes late",
        ),
        pytest.param(
            [[call("f", "", index=0, id="a")], [{"index": 0}], [call(None, "", index=0)]],
            [ToolUseDelta(0, "a", "f")],
            [ToolUse("a", "f", {})],
            id="pieces without news",
        ),
    ],
)
def test_tool_calls_however_a_server_cuts_them(
    pieces: list[list[dict[str, Any]]], deltas: list[ToolUseDelta], calls: list[ToolUse]
) -> None:
    events = run(*(call_delta(*piece) for piece in pieces), delta("tool_calls"), DONE)
    assert events[:-1] == deltas
    assert reply_of(events).content == tuple(calls)
    assert reply_of(events).stop_reason == "toolUse"


@pytest.mark.parametrize("arguments", ["", '{"city": "Be'])
def test_a_call_that_ran_out_of_tokens_is_left_out(arguments: str) -> None:
    text_and_call = delta(content="So", tool_calls=[call("f", arguments, id="a")])
    reply = reply_of(run(text_and_call, delta("length")))
    assert (reply.content, reply.stop_reason) == ((Text("So"),), "maxTokens")
    whole = call_delta(call("f", "{}", id="a"), call("g", arguments, id="b"))
    reply = reply_of(run(whole, delta("length")))
    assert (reply.content, reply.stop_reason) == ((ToolUse("a", "f", {}),), "toolUse")


def test_broken_arguments_without_that_excuse_are_malformed() -> None:
    with pytest.raises(MalformedResponse, match="not JSON"):
        run(call_delta(call("f", "{", id="a")), delta("tool_calls"), DONE)
    with pytest.raises(MalformedResponse, match="not JSON"):
        run(call_delta(call("f", "{", id="a"), call("f", "{}", id="b")), delta("length"))


def test_a_finish_reason_is_enough_without_done() -> None:
    assert reply_of(run(delta(content="Hi"), delta("stop"))).text == "Hi"


def test_the_terminal_event_comes_once_and_nothing_after_it() -> None:
    decoder = ChatStreamDecoder()
    decoder.feed([frame(delta("stop", content="Hi"))])
    events = decoder.feed([frame(DONE), frame(delta(content="more")), frame(DONE)])
    assert [type(event) for event in events] == [Finished]
    assert decoder.feed([frame(delta(content="more")), frame(DONE)]) == []
    assert decoder.finish() == []


@pytest.mark.parametrize("reason", [None, "", "null", "NULL"])
def test_a_stream_without_finish_reason_and_done_is_interrupted(reason: str | None) -> None:
    with pytest.raises(StreamInterrupted) as caught:
        run(delta(content="Hel"), delta(reason, content="lo"))
    assert caught.value.partial == "Hello"
    assert caught.value.retryable


@pytest.mark.parametrize("reason", [None, "", "null"])
def test_done_is_enough_where_a_service_gives_no_finish_reason(reason: str | None) -> None:
    reply = reply_of(run(delta(content="Hel"), delta(reason, content="lo"), DONE))
    assert (reply.text, reply.stop_reason, reply.stop_detail) == ("Hello", "endTurn", "missing")
    assert reply.response_status is None
    called = reply_of(run(call_delta(call("f", "{}", id="a")), delta(reason), DONE))
    assert (called.stop_reason, called.stop_detail) == ("toolUse", "missing")


def test_a_body_that_ends_before_its_first_event_is_interrupted() -> None:
    with pytest.raises(StreamInterrupted) as caught:
        run()
    assert caught.value.partial == ""


@pytest.mark.parametrize(
    "events",
    [
        [DONE],
        [{"usage": USAGE}, DONE],
        [{"choices": []}],
        [{"result": "something else"}],
        ["not json", DONE],
    ],
)
def test_a_stream_without_choices_is_malformed(events: list[Any]) -> None:
    with pytest.raises(MalformedResponse):
        run(*events)


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        b'{"choices": [{"delta": {"content": "\xff"}}]}',
        {"choices": "x"},
        {"choices": [{"delta": {"content": 7}}]},
        b"[" * 100_000,
    ],
)
def test_an_event_that_cannot_be_read_breaks_the_stream(broken: Any) -> None:
    decoder = ChatStreamDecoder()
    events = decoder.feed([frame(delta(content="a")), frame(broken), frame(delta(content="b"))])
    assert events == [Chunk("a")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.feed([])
    assert (caught.value.partial, caught.value.retryable) == ("a", True)
    assert decoder.feed([frame(delta("stop")), frame(DONE)]) == decoder.finish() == []


@pytest.mark.parametrize(
    "harmless",
    [
        frame(""),
        frame("null"),
        frame("{}"),
        frame({"object": "heartbeat", "at": 7}),
        ServerSentEvent(b"still here", "ping"),
        ServerSentEvent(b"{", "keepalive"),
    ],
)
def test_what_holds_nothing_of_the_answer_is_skipped(harmless: ServerSentEvent) -> None:
    decoder = ChatStreamDecoder()
    frames = [frame(delta(content="a")), harmless, frame(delta("stop", content="b")), frame(DONE)]
    assert reply_of(decoder.feed([harmless, *frames])).text == "ab"


def test_behind_the_reason_nothing_of_the_answer_is_left_to_break() -> None:
    decoder = ChatStreamDecoder()
    decoder.feed([frame(delta("stop", content="a")), frame('{"choices": [], "usa')])
    assert reply_of(decoder.finish()).text == "a"


def test_a_refusal_is_raised_at_the_end_with_the_partial() -> None:
    decoder = ChatStreamDecoder()
    pieces = [delta(content="Well"), delta(refusal="I "), delta(refusal="cannot"), delta("stop")]
    assert decoder.feed([frame(piece) for piece in pieces]) == [Chunk("Well")]
    with pytest.raises(ContentRejected, match="I cannot") as caught:
        decoder.feed([frame(DONE)])
    assert caught.value.partial == "Well"


def test_a_content_filter_is_raised_at_the_end_with_the_partial() -> None:
    with pytest.raises(ContentRejected) as caught:
        run(delta(content="Well"), delta("content_filter"))
    assert caught.value.partial == "Well"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "x", "type": "server_error", "code": None}, ProviderUnavailable),
        ({"message": "x", "code": "rate_limit_exceeded", "type": "tokens"}, RateLimited),
        ({"message": "x", "type": "BadRequestError", "code": 400}, InvalidRequest),
        ({"message": "x", "code": "content_filter"}, ContentRejected),
        ("x", ProviderUnavailable),
    ],
)
def test_an_error_inside_a_stream_is_typed(error: Any, kind: type[PenstockError]) -> None:
    with pytest.raises(kind, match="x") as caught:
        run(delta(content="Well"), {"error": error}, DONE)
    if isinstance(caught.value, ContentRejected):
        assert caught.value.partial == "Well"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"message": "oh", "type": "overloaded_error"}', ProviderUnavailable),
        (b'{"detail": "oh", "code": 429}', RateLimited),
        (b"oh", ProviderUnavailable),
        (b'{"x": "oh\xff"}', ProviderUnavailable),
        (b"{}", ProviderUnavailable),
    ],
)
def test_an_event_named_error_is_one_whatever_it_holds(
    data: bytes, kind: type[PenstockError]
) -> None:
    decoder = ChatStreamDecoder()
    with pytest.raises(PenstockError) as caught:
        decoder.feed([ServerSentEvent(data, "error")])
    assert type(caught.value) is kind
    assert ("oh" in caught.value.message) == (b"oh" in data)


def test_text_that_arrived_with_an_error_is_delivered_first() -> None:
    decoder = ChatStreamDecoder()
    broken = [frame(delta(content="Well")), frame({"error": "boom"}), frame(delta(content="no"))]
    assert decoder.feed(broken) == [Chunk("Well")]
    with pytest.raises(ProviderUnavailable, match="boom"):
        decoder.finish()
    decoder = ChatStreamDecoder()
    decoder.feed(broken)
    with pytest.raises(ProviderUnavailable, match="boom"):
        decoder.feed([frame(DONE)])


def test_names_may_come_late_or_never() -> None:
    azure: WireEvent = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
    reply = reply_of(run(azure, delta(content="a"), delta("stop"), DONE))
    assert (reply.response_id, reply.model) == ("r1", "m-1")
    bare = {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}
    reply = reply_of(run(bare, DONE))
    assert (reply.response_id, reply.model, reply.text) == (None, "", "a")


pieces = st.one_of(
    st.text(min_size=1).map(lambda text: delta(content=text)),
    st.text(min_size=1).map(lambda text: delta(reasoning_content=text)),
    st.just(delta(role="assistant")),
    st.just({"choices": [], "usage": USAGE}),
    st.just("{broken"),
    st.uuids().map(lambda id: call_delta(call("f", "{}", id=str(id)))),
)


def text_of(event: WireEvent) -> str:
    if not isinstance(event, dict) or not event["choices"]:
        return ""
    return event["choices"][0]["delta"].get("content") or ""


@given(st.lists(pieces, max_size=8), st.booleans(), st.data())
def test_a_stream_cut_anywhere_is_finished_only_if_it_said_so(
    middle: list[WireEvent], done: bool, data: st.DataObject
) -> None:
    stream: list[WireEvent] = [delta(role="assistant", content=""), *middle, delta("stop")]
    whole = len(stream)
    stream += [DONE] if done else []
    cut = data.draw(st.integers(0, len(stream)))
    size = data.draw(st.integers(1, 4))
    frames = [frame(event) for event in stream[:cut]]
    readable = stream[:cut]
    if "{broken" in readable:
        readable = readable[: readable.index("{broken")]
    said = "".join(map(text_of, readable))
    decoder = ChatStreamDecoder()
    events: list[ProviderEvent] = []
    interrupted: StreamInterrupted | None = None
    try:
        for start in range(0, cut, size):
            events += decoder.feed(frames[start : start + size])
        events += decoder.finish()
    except StreamInterrupted as error:
        interrupted = error
    assert "".join(event.text for event in events if isinstance(event, Chunk)) == said
    if cut >= whole and "{broken" not in stream:
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
