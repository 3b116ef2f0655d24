"""Stop sequences of targets that have none: cut here, in streams, whole answers and at a joint."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import StreamInterrupted
from penstock.contract.events import (
    Chunk,
    Finished,
    ProviderEvent,
    ReasoningDelta,
    ToolUseDelta,
)
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.contract.messages import Content, Reasoning, Text, ToolUse, user
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.pool.stop_cut import StopCut, cut_reply
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.record_builder import Trail
from penstock.telemetry.records import AttemptRecord, RequestStarted
from tests.support.stub import Pause, Step, StubProvider

NO_STOPS = Capabilities(stop_sequences=False)
REQUEST = SamplingRequest(messages=(user("Count."),), max_tokens=90, stop_sequences=("END", "XX"))
USAGE = Usage(3, 40)


def finished(*content: Content, usage: Usage = USAGE) -> list[ProviderEvent]:
    return [Finished(Reply(content, "theirs", "endTurn", usage, "resp_1", "stop"))]


def chunks(*texts: str) -> list[Step]:
    return [[Chunk(text)] for text in texts]


class Followed:
    """A pool of some providers and the records of its attempts."""

    def __init__(self, *providers: StubProvider) -> None:
        by_name = {provider.name: provider for provider in providers}
        self.pool = FailoverPool(by_name.__getitem__, settings=RetrySettings(retries=0))
        self.ranked = [Target(each.name, "m") for each in providers]
        self.trail = Trail(Hooks(), RequestStarted(request_id="r", operation="chat", started=0.0))

    @property
    def attempts(self) -> Sequence[AttemptRecord]:
        return self.trail.attempts

    async def stream(self, request: SamplingRequest = REQUEST) -> tuple[list[str], Reply]:
        async with self.pool.open(self.ranked, request, self.trail) as opened:
            events = [event async for batch in opened.batches for event in batch]
        end = events.pop()
        assert isinstance(end, Finished)
        return [event.text for event in events if isinstance(event, Chunk)], end.reply

    async def whole(self, request: SamplingRequest = REQUEST) -> Reply:
        return (await self.pool.generate(self.ranked, request, self.trail))[1]


async def test_a_stream_ends_at_the_sequence_across_pieces_and_upstream_is_left() -> None:
    endless = StubProvider([*chunks("one E", "N", "D two"), Pause()], able=NO_STOPS)
    seen = Followed(endless)
    texts, reply = await seen.stream()
    assert "".join(texts) == "one "
    assert reply.content == (Text("one "),)
    assert (reply.stop_reason, reply.stop_sequence) == ("stopSequence", "END")
    # Nothing of it is sent upstream, and nobody listens there any more.
    assert endless.requests[0][1].stop_sequences == ()
    assert endless.open_streams == 0


@pytest.mark.parametrize("whole", [False, True])
async def test_what_was_delivered_is_the_bill_and_the_attempt_has_succeeded(whole: bool) -> None:
    def provider() -> StubProvider:
        return StubProvider([*chunks("one two three ", "END and more"), Pause()], able=NO_STOPS)

    seen = Followed(provider())
    reply = await seen.whole() if whole else (await seen.stream())[1]
    (attempt,) = seen.attempts
    assert (attempt.outcome, attempt.error) == ("ok", None)
    assert attempt.usage is not None
    assert attempt.usage.estimated
    assert reply.usage == attempt.usage
    assert reply.text == "one two three "
    # It is what a stream costs that ends there and is not counted.
    plain = Followed(StubProvider([*chunks("one two three "), finished(usage=Usage())]))
    await plain.stream()
    (expected,) = plain.attempts
    assert expected.usage is not None
    assert attempt.usage.input_tokens == expected.usage.input_tokens
    assert 0 < (attempt.usage.output_tokens or 0) <= 6


@pytest.mark.parametrize("whole", [False, True])
async def test_a_count_of_the_provider_counts_when_it_came(whole: bool) -> None:
    seen = Followed(
        StubProvider([[Chunk("one END two"), *finished(Text("one END two"))]], able=NO_STOPS)
    )
    reply = await seen.whole() if whole else (await seen.stream())[1]
    assert (reply.text, reply.stop_reason, reply.usage) == ("one ", "stopSequence", USAGE)
    assert (reply.response_id, reply.model) == ("resp_1", "theirs")


async def test_without_a_sequence_all_is_delivered_and_the_reply_is_the_providers() -> None:
    seen = Followed(StubProvider([*chunks("one E", "N"), finished(Text("one EN"))], able=NO_STOPS))
    texts, reply = await seen.stream()
    assert ("".join(texts), reply.stop_reason, reply.usage) == ("one EN", "endTurn", USAGE)
    assert (await seen.whole()).text == "one EN"


async def test_a_target_that_has_them_is_left_to_do_it() -> None:
    native = StubProvider([*chunks("one END"), finished(Text("one END"))])
    texts, reply = await Followed(native).stream()
    assert native.requests[0][1].stop_sequences == REQUEST.stop_sequences
    assert ("".join(texts), reply.stop_sequence) == ("one END", None)


async def test_more_sequences_than_the_api_takes_are_all_enforced_here() -> None:
    few = StubProvider([*chunks("one XX two"), Pause()], able=Capabilities(max_stop_sequences=1))
    texts, reply = await Followed(few).stream()
    assert ("".join(texts), reply.stop_sequence) == ("one ", "XX")


async def test_an_answer_that_begins_with_the_sequence_is_empty_and_not_replaced() -> None:
    first = StubProvider([*chunks("END one"), Pause()], name="a", able=NO_STOPS)
    second = StubProvider(name="b")
    texts, reply = await Followed(first, second).stream()
    assert (texts, reply.content, reply.stop_reason) == ([], (), "stopSequence")
    assert second.requests == []


async def test_thinking_and_arguments_of_tools_are_not_searched() -> None:
    use = ToolUse("c", "say", {"a": "END"})
    seen = Followed(
        StubProvider(
            [
                [ReasoningDelta("END of thought")],
                [Chunk("E")],
                [ToolUseDelta(0, "c", "say"), ToolUseDelta(0, arguments='{"a":"END"}')],
                [Chunk("ND")],
                finished(Reasoning("END of thought"), Text("E"), use, Text("ND")),
            ],
            able=NO_STOPS,
        )
    )
    texts, reply = await seen.stream()
    # A tool call between them makes them two texts.
    assert (texts, reply.stop_reason) == (["E", "ND"], "endTurn")
    assert use in reply.content


async def test_what_came_before_the_sequence_is_kept_part_by_part() -> None:
    signed = Reasoning("Hm.", signature="s")
    seen = Followed(
        StubProvider(
            [
                [ReasoningDelta("Hm.")],
                [ReasoningDelta("", signed)],
                *chunks("one ", "EN", "D"),
                Pause(),
            ],
            able=NO_STOPS,
        )
    )
    _, reply = await seen.stream()
    assert reply.content == (signed, Text("one "))


@pytest.mark.parametrize("first_has_them", [False, True])
@pytest.mark.parametrize("prefill", [False, True])
async def test_a_sequence_across_a_joint_is_found(first_has_them: bool, prefill: bool) -> None:
    able = Capabilities(stop_sequences=first_has_them)
    first = StubProvider(
        [*chunks("one two three EN"), StreamInterrupted("cut")], name="a", able=able
    )
    text = "D four" if prefill else "one two three END four"
    second = StubProvider(
        [*chunks(text), Pause()], name="b", able=Capabilities(stop_sequences=False, prefill=prefill)
    )
    seen = Followed(first, second)
    texts, reply = await seen.stream()
    # What the caller has cannot be taken back.
    assert "".join(texts) == ("one two three EN" if first_has_them else "one two three ")
    assert (reply.stop_reason, reply.stop_sequence) == ("stopSequence", "END")
    assert reply.text == "".join(texts)
    assert [each.outcome for each in seen.attempts] == ["failed", "ok"]


async def test_text_that_was_held_back_is_part_of_what_is_continued() -> None:
    first = StubProvider([*chunks("one EN"), StreamInterrupted("cut")], name="a", able=NO_STOPS)
    prefills = Capabilities(stop_sequences=False, prefill=True)
    second = StubProvider(
        [*chunks("OUGH two"), finished(Text("OUGH two"))], name="b", able=prefills
    )
    texts, reply = await Followed(first, second).stream()
    assert second.requests[0][1].messages[-1].text == "one EN"
    assert ("".join(texts), reply.text) == ("one ENOUGH two", "one ENOUGH two")


async def test_an_error_has_the_text_that_the_caller_read() -> None:
    only = StubProvider([*chunks("one EN"), StreamInterrupted("cut")], able=NO_STOPS)
    with pytest.raises(StreamInterrupted) as caught:
        await Followed(only).stream()
    assert caught.value.partial == "one "


async def test_a_target_that_does_not_stream_is_cut_when_it_has_answered() -> None:
    able = Capabilities(stop_sequences=False, streaming=False)
    reply = await Followed(
        StubProvider([finished(Text("one E"), Text("ND two"))], able=able)
    ).whole()
    assert (reply.text, reply.stop_sequence, reply.usage) == ("one ", "END", USAGE)


PIECES = st.lists(st.text("abx", max_size=6), max_size=6)
STOPS = st.lists(st.text("abx", min_size=1, max_size=3), min_size=1, max_size=3)


@given(PIECES, STOPS)
def test_streams_and_whole_answers_are_cut_alike(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    whole = cut_reply(Reply(tuple(map(Text, pieces)), "m", "endTurn", Usage()), stops)
    cut = StopCut(stops)
    events = cut.cut([*map(Chunk, pieces), *finished(Text(text))])
    said = "".join(event.text for event in events if isinstance(event, Chunk))
    assert said == whole.text
    assert cut.is_hit == (whole.stop_reason == "stopSequence")
    if cut.is_hit:
        assert len(said) + cut.excess == len(text)
