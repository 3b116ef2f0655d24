"""Lines in, deltas and one terminal event out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.ollama import DIALECT
from penstock.providers.ollama.decode import OllamaStreamDecoder
from tests.unit.providers.ollama.ollama_wire import call, frame, last, line, reply_of, run

STREAM: list[dict[str, Any]] = [
    line(thinking="Let me"),
    line(thinking=" see."),
    line("Hel"),
    line(""),
    line("lo"),
    line(tool_calls=[call("tool.f", {"x": 1}), call("g")]),
    line("!"),
    last(),
]


@pytest.mark.parametrize("whole", [False, True])
def test_a_stream_of_text(whole: bool) -> None:
    assert run(line("Hel"), line("lo"), last(), whole=whole) == [
        Chunk("Hel"),
        Chunk("lo"),
        Finished(Reply((Text("Hello"),), "llama3.2", "endTurn", Usage(26, 282), None, "stop")),
    ]


@pytest.mark.parametrize("whole", [False, True])
def test_all_kinds_of_pieces(whole: bool) -> None:
    events = run(*STREAM, whole=whole)
    calls = [event for event in events if isinstance(event, ToolUseDelta)]
    first, second = calls
    assert events[:-1] == [
        ReasoningDelta("Let me"),
        ReasoningDelta(" see."),
        Chunk("Hel"),
        Chunk("lo"),
        ToolUseDelta(0, first.id, "f", '{"x":1}'),
        ToolUseDelta(1, second.id, "g", "{}"),
        Chunk("!"),
    ]
    reply = reply_of(events)
    assert reply.stop_reason == "toolUse"
    assert reply.content == (
        Reasoning("Let me see."),
        Text("Hello"),
        ToolUse(first.id, "f", {"x": 1}),
        ToolUse(second.id, "g", {}),
        Text("!"),
    )


def test_the_last_line_may_hold_content_too() -> None:
    events = run(line("a"), last("length", content="b", tool_calls=[call("f")]))
    assert events[:2] == [Chunk("a"), Chunk("b")]
    assert [type(part) for part in reply_of(events).content] == [Text, ToolUse]


def test_a_last_line_without_a_message() -> None:
    events = run(line("a"), b'{"model":"m","done":true,"done_reason":"stop"}')
    assert reply_of(events) == Reply((Text("a"),), "m", "endTurn", Usage(), None, "stop")


@pytest.mark.parametrize("count", range(len(STREAM)))
@pytest.mark.parametrize("whole", [False, True])
def test_a_stream_that_is_cut_is_never_a_success(count: int, whole: bool) -> None:
    lines = STREAM[:count]
    decoder = OllamaStreamDecoder()
    seen: list[Any] = []
    for read in [lines] if whole else [[each] for each in lines]:
        seen += decoder.feed([frame(each) for each in read])
    with pytest.raises(StreamInterrupted) as caught:
        decoder.finish()
    said = "".join(event.text for event in seen if isinstance(event, Chunk))
    assert caught.value.partial == said == "".join(each["message"]["content"] for each in lines)
    assert not any(isinstance(event, Finished) for event in seen)


def test_nothing_counts_after_the_end() -> None:
    decoder = OllamaStreamDecoder()
    events = decoder.feed([frame(line("a")), frame(last()), frame(line("b"))])
    assert reply_of(events).text == "a"
    assert decoder.feed([frame(line("c")), frame(last())]) == []
    assert decoder.finish() == []


@pytest.mark.parametrize("bad", [b"nonsense", b"[7]", b'{"message": 7}', b"\xff\xfe", b"[" * 5000])
def test_a_line_that_cannot_be_read_breaks_the_stream(bad: bytes) -> None:
    decoder = OllamaStreamDecoder()
    assert decoder.feed([frame(line("a")), bad, frame(line("b")), frame(last())]) == [Chunk("a")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.feed([])
    assert caught.value.partial == "a"


@pytest.mark.parametrize("nothing", [b"{}", b"null", b"[]", b'{"status": "ok"}'])
def test_what_holds_nothing_of_the_answer_is_skipped(nothing: bytes) -> None:
    events = OllamaStreamDecoder().feed(
        [frame(line("a")), nothing, frame(line("b")), frame(last())]
    )
    assert reply_of(events).text == "ab"


def test_a_body_without_any_message_is_malformed() -> None:
    with pytest.raises(MalformedResponse):
        run(b"upstream connect error")
    with pytest.raises(StreamInterrupted):
        run()


def test_an_error_as_the_first_line_is_raised_at_once() -> None:
    with pytest.raises(ProviderUnavailable, match="runner has terminated") as caught:
        OllamaStreamDecoder().feed([b'{"error": "runner has terminated"}'])
    assert caught.value.retryable


def test_an_error_after_text_in_one_read_loses_no_text() -> None:
    decoder = OllamaStreamDecoder()
    assert decoder.feed([frame(line("a")), b'{"error": "no memory"}', frame(last())]) == [
        Chunk("a")
    ]
    with pytest.raises(ProviderUnavailable, match="no memory"):
        decoder.feed([frame(last())])
    assert decoder.finish() == []


def test_an_error_after_text_is_raised_at_the_end_too() -> None:
    decoder = OllamaStreamDecoder()
    decoder.feed([frame(line("a")), b'{"error": "no memory"}'])
    with pytest.raises(ProviderUnavailable, match="no memory"):
        decoder.finish()


def test_a_call_without_a_name_is_malformed_and_the_text_is_kept() -> None:
    decoder = OllamaStreamDecoder()
    events = decoder.feed([frame(line("a")), frame(last(tool_calls=[call("")]))])
    assert events[0] == Chunk("a")
    with pytest.raises(MalformedResponse, match="no name"):
        decoder.finish()


def test_a_last_line_whose_counts_are_nonsense_keeps_its_answer() -> None:
    events = run(line("a"), b'{"message": {}, "done": true, "eval_count": "many"}')
    assert isinstance(end := events[-1], Finished)
    assert (end.reply.text, end.reply.usage.output_tokens) == ("a", -1)


def test_each_stream_gets_a_decoder_of_its_own() -> None:
    assert DIALECT.stream_decoder({}) is not DIALECT.stream_decoder({})


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([frame(x) for x in STREAM]))))
def test_any_lines_end_once_or_in_a_typed_error(frames: list[bytes]) -> None:
    decoder = OllamaStreamDecoder()
    events: list[Any] = []
    try:
        for each in frames:
            events += decoder.feed([each])
        events += decoder.finish()
    except PenstockError:
        assert not any(isinstance(event, Finished) for event in events)
    else:
        assert sum(isinstance(event, Finished) for event in events) == 1
