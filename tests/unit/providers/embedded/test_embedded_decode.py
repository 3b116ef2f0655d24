"""Chunks of llama.cpp become events; literals in, literals out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.contract.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.embedded.decode import Decoder, failure
from penstock.providers.embedded.encode import ChatCall

PLAIN = ChatCall(body="")
CALLS = ChatCall(body="", calls=True, call_id="call_4")
PROGRESS = '{"choices":[{"finish_reason":null,"delta":{"role":"assistant","content":null}}]}'


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> str:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "chatcmpl-1", "choices": [choice], **more})


def timings(cached: int, prompt: int, predicted: int) -> dict[str, Any]:
    return {"cache_n": cached, "prompt_n": prompt, "predicted_n": predicted, "prompt_ms": 1.5}


def read(call: ChatCall, *chunks: str) -> tuple[list[ProviderEvent], Reply]:
    decoder = Decoder(call, model="smollm2")
    events = [event for each in chunks for event in decoder.feed([each])]
    assert decoder.feed(chunks) == []
    assert decoder.finish() == []
    *deltas, last = events
    assert isinstance(last, Finished)
    return deltas, last.reply


def test_text_arrives_piece_by_piece_with_usage_and_id() -> None:
    events, reply = read(
        PLAIN,
        PROGRESS,
        chunk("Hel", timings=timings(8, 4, 1)),
        chunk("lo", timings=timings(8, 4, 2)),
        chunk(finish="stop", timings=timings(8, 4, 3)),
    )
    assert events == [Chunk("Hel"), Chunk("lo")]
    assert reply == Reply(
        content=(Text("Hello"),),
        model="smollm2",
        stop_reason="endTurn",
        usage=Usage(input_tokens=12, output_tokens=3, cached_input_tokens=8),
        response_id="chatcmpl-1",
        response_status="stop",
    )


@pytest.mark.parametrize("broken", ["not json", '{"choices": 7}'])
def test_a_chunk_that_cannot_be_read_breaks_the_answer(broken: str) -> None:
    decoder = Decoder(PLAIN, model="smollm2")
    assert decoder.feed([chunk("Hel")]) == [Chunk("Hel")]
    with pytest.raises(StreamInterrupted, match="cannot be read") as caught:
        decoder.feed([broken])
    assert caught.value.partial == "Hel"


def test_an_answer_that_was_broken_off_is_no_answer() -> None:
    with pytest.raises(ProviderUnavailable, match="abort"):
        Decoder(PLAIN, model="smollm2").feed([chunk("Hel"), chunk(finish="abort")])


def test_running_out_of_tokens_is_said() -> None:
    _, reply = read(PLAIN, chunk("Hel"), chunk(finish="length"))
    assert (reply.text, reply.stop_reason) == ("Hel", "maxTokens")


def test_thinking_is_kept_apart() -> None:
    thought = json.dumps({"choices": [{"delta": {"reasoning_content": "hm"}}]})
    events, reply = read(PLAIN, thought, chunk("yes"), chunk(finish="stop"))
    assert events == [ReasoningDelta("hm"), Chunk("yes")]
    assert reply.content == (Reasoning("hm"), Text("yes"))


@pytest.mark.parametrize("pieces", [["a S", "TO", "P b"], ["a STOP b"], ["a ", "S", "T", "OP"]])
def test_a_stop_sequence_ends_the_answer_however_it_is_split(pieces: list[str]) -> None:
    call = ChatCall(body="", stop_sequences=("STOP", "NEVER"))
    more = [chunk(piece, timings=timings(0, 3, 2)) for piece in pieces]
    _, reply = read(call, *more, chunk("after"), chunk(finish="stop"))
    assert (reply.text, reply.stop_reason) == ("a ", "stopSequence")
    assert reply.usage.output_tokens == 2


def test_the_earliest_stop_sequence_wins() -> None:
    call = ChatCall(body="", stop_sequences=("c", "b"))
    _, reply = read(call, chunk("abc"))
    assert (reply.text, reply.stop_reason) == ("a", "stopSequence")


def test_what_only_looked_like_a_stop_sequence_is_delivered() -> None:
    call = ChatCall(body="", stop_sequences=("STOP",))
    events, reply = read(call, chunk("a ST"), chunk("ART ST"), chunk(finish="stop"))
    assert events == [Chunk("a "), Chunk("START "), Chunk("ST")]
    assert (reply.text, reply.stop_reason) == ("a START ST", "endTurn")


def test_a_call_comes_at_its_end() -> None:
    events, reply = read(
        CALLS,
        chunk('{ "name": "weather", "argu'),
        chunk('ments": {"city": "Paris"}}'),
        chunk(finish="stop"),
    )
    assert events == [ToolUseDelta(0, "call_4", "weather", '{"city":"Paris"}')]
    assert reply.content == (ToolUse("call_4", "weather", {"city": "Paris"}),)
    assert reply.stop_reason == "toolUse"


def test_a_reply_is_said_while_it_grows() -> None:
    events, reply = read(
        CALLS,
        chunk('{\n "rep'),
        chunk('ly": "Say \\'),
        chunk('"hi\\" \\ud83d'),
        chunk("\\ude00\\n"),
        chunk('"}'),
        chunk(finish="stop"),
    )
    assert events == [Chunk("Say "), Chunk('"hi" '), Chunk("😀\n")]
    assert (reply.text, reply.stop_reason) == ('Say "hi" 😀\n', "endTurn")


def test_a_begun_reply_is_continued_without_its_beginning() -> None:
    call = ChatCall(body="", calls=True, prefix='{"reply": "1, 2')
    events, reply = read(call, chunk(", 3"), chunk('"}'), chunk(finish="stop"))
    assert events == [Chunk(", 3")]
    assert reply.text == ", 3"


def test_a_stop_sequence_is_looked_for_in_the_reply_not_in_its_json() -> None:
    call = ChatCall(body="", calls=True, stop_sequences=('"', "\n"))
    events, reply = read(call, chunk('{\n"reply": "a b'), chunk('\\nc"}'), chunk(finish="stop"))
    assert events == [Chunk("a b")]
    assert reply.stop_reason == "stopSequence"


def test_half_a_call_is_no_call() -> None:
    events, reply = read(
        CALLS, chunk('{"name": "weather", "arguments": {"city": "Par'), chunk(finish="length")
    )
    assert events == []
    assert (reply.content, reply.stop_reason) == ((), "maxTokens")


def test_half_a_reply_is_delivered() -> None:
    _, reply = read(CALLS, chunk('{"reply": "It is'), chunk(finish="length"))
    assert (reply.text, reply.stop_reason) == ("It is", "maxTokens")


def test_a_structured_reply_is_delivered_as_json() -> None:
    _, reply = read(CALLS, chunk('{"reply": { "city": "Paris" } }'), chunk(finish="stop"))
    assert (reply.text, reply.stop_reason) == ('{"city":"Paris"}', "endTurn")
    _, reply = read(CALLS, chunk('{"reply": { "city": "Par'), chunk(finish="length"))
    assert (reply.text, reply.stop_reason) == ('{ "city": "Par', "maxTokens")


def test_a_stop_sequence_ends_a_structured_reply_too() -> None:
    call = ChatCall(body="", calls=True, stop_sequences=("Par",))
    _, reply = read(call, chunk('{"reply": { "city": "Paris" } }'), chunk(finish="stop"))
    assert (reply.text, reply.stop_reason) == ('{"city":"', "stopSequence")


def test_what_leaves_the_grammar_is_malformed() -> None:
    with pytest.raises(MalformedResponse, match="left its grammar"):
        read(CALLS, chunk("Sorry!"), chunk(finish="stop"))


def test_chunks_without_an_end_are_an_interruption() -> None:
    decoder = Decoder(PLAIN, model="smollm2")
    decoder.feed([chunk("half an")])
    with pytest.raises(StreamInterrupted) as caught:
        decoder.finish()
    assert caught.value.partial == "half an"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 400, "message": "m", "type": "exceed_context_size_error"}, ContextLengthExceeded),
        ({"code": 400, "message": "m", "type": "invalid_request_error"}, InvalidRequest),
        ({"code": 500, "message": "m", "type": "server_error"}, ProviderUnavailable),
        ({"message": "m"}, ProviderUnavailable),
    ],
)
def test_a_reported_error_is_typed(error: dict[str, Any], expected: type[PenstockError]) -> None:
    with pytest.raises(PenstockError, match="m") as caught:
        Decoder(PLAIN, model="smollm2").feed([json.dumps({"error": error})])
    assert type(caught.value) is expected
    assert caught.value.status == error.get("code")


def test_what_the_library_raises_is_typed() -> None:
    assert type(failure(ValueError("bad schema"))) is InvalidRequest
    broken = failure(RuntimeError("out of memory"))
    assert type(broken) is ProviderUnavailable
    assert not broken.retryable


def test_a_failure_under_a_schema_names_the_schema_as_something_to_change() -> None:
    error = failure(RuntimeError("no samplers"), constrained=True)
    assert isinstance(error, ProviderUnavailable)
    assert str(error) == "llama.cpp failed: no samplers; if the schema is large, simplify it"
    assert str(failure(RuntimeError("no samplers"))) == "llama.cpp failed: no samplers"
