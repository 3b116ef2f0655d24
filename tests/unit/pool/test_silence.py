"""How long a silent target is waited for while another one is left, also for whole answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from penstock.contract.errors import (
    AuthenticationFailed,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import (
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Usage,
)
from penstock.contract.messages import Audio, Text, ToolUse, user
from penstock.contract.options import Capabilities, Extra, ReasoningLevel
from penstock.contract.ports import Provider, ProviderStream, Target
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.pool.targets.latency import Waits
from tests.support.stub import FINISHED, HELLO, REPLY, Pause, StubProvider

LIMIT_S = 0.1
LONG = SamplingRequest(messages=(user("hi"),), max_tokens=4096)
SHORT = msgspec.structs.replace(LONG, max_tokens=1)
FIRST, SECOND = Target("first", "m"), Target("second", "m")


class Recording(StubProvider):
    """A stub that notes how it was asked; `generate` gives the same answer, or its own error."""

    def __init__(self, *steps: object, whole: object = REPLY, **options: object) -> None:
        super().__init__(steps or HELLO, name="first", **options)  # type: ignore[arg-type]
        self.asked: list[str] = []
        self._whole = whole

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        self.asked.append("whole")
        if isinstance(self._whole, Pause):
            self._whole.reached.set()
            await self._whole.over.wait()
        if isinstance(self._whole, BaseException):
            raise self._whole
        return REPLY

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        self.asked.append("stream")
        async for batch in super().stream(model, request):
            yield batch


def pool_of(first: StubProvider, *, limit_s: float = LIMIT_S) -> tuple[FailoverPool, StubProvider]:
    second = StubProvider(name="second")
    providers: dict[str, Provider] = {"first": first, "second": second}
    settings = RetrySettings(retries=0, first_token_timeout_s=limit_s)
    return FailoverPool(providers.__getitem__, settings=settings), second


async def answered_by(
    pool: FailoverPool, request: SamplingRequest = LONG, ranked: Sequence[Target] = (FIRST, SECOND)
) -> str:
    async with asyncio.timeout(30):
        attempt, reply = await pool.generate(ranked, request)
    assert reply == REPLY
    return attempt.target.provider


@pytest.mark.parametrize("request_", [LONG, SHORT], ids=["long", "short"])
async def test_a_silent_target_gives_way_to_the_next_for_a_whole_answer(
    request_: SamplingRequest,
) -> None:
    first = Recording(Pause(), whole=Pause())
    pool, _ = pool_of(first)
    assert await answered_by(pool, request_) == "second"
    assert first.asked == ["stream" if request_ is LONG else "whole"]
    assert first.open_streams == 0
    health = pool.states[FIRST].health
    assert (health.status, health.evidence) == ("degraded", "requests")


async def test_a_silent_target_gives_way_to_the_next_for_a_stream() -> None:
    first = Recording(Pause())
    pool, _ = pool_of(first)
    async with asyncio.timeout(30), pool.open((FIRST, SECOND), LONG) as opened:
        assert opened.attempt.target == SECOND
        assert opened.attempt.number == 2
    assert first.open_streams == 0


async def test_the_error_says_for_how_long_it_was_silent() -> None:
    first = Recording(Pause())
    pool, second = pool_of(first)
    second.steps = (ProviderUnavailable("down"),)
    with pytest.raises(PenstockError) as caught:
        await answered_by(pool)
    silent, _ = caught.value.attempts  # type: ignore[attr-defined]
    assert isinstance(silent, ProviderTimeout)
    assert (silent.provider, str(silent)) == ("first", "no token came within 0.1 s")


async def test_the_only_target_is_given_all_its_time() -> None:
    pause = Pause()
    first = Recording(whole=pause)
    pool, _ = pool_of(first, limit_s=0.01)
    asked = asyncio.create_task(answered_by(pool, ranked=(FIRST,)))
    await pause.reached.wait()
    await asyncio.sleep(0.05)
    assert not asked.done()
    pause.over.set()
    assert await asked == "first"
    assert first.asked == ["whole"]


async def test_a_target_that_has_begun_may_take_its_time() -> None:
    pause = Pause()
    first = Recording([Chunk("Hel")], pause, [Chunk("lo")], [FINISHED])
    pool, _ = pool_of(first)
    asked = asyncio.create_task(answered_by(pool))
    await pause.reached.wait()
    await asyncio.sleep(3 * LIMIT_S)
    pause.over.set()
    assert await asked == "first"


async def test_a_target_that_is_down_is_no_other_target() -> None:
    first = Recording(whole=REPLY)
    pool, _ = pool_of(first)
    pool.states.mark_down("second", "maintenance")
    assert await answered_by(pool) == "first"
    assert first.asked == ["whole"]


async def test_what_only_the_body_holds_is_fetched_whole() -> None:
    able = Capabilities(extra_of="openai-chat")
    for name, optional, asked in (
        ("logprobs", (), "whole"),
        ("logprobs", ("logprobs",), "stream"),
        ("frequency_penalty", (), "stream"),
    ):
        extra = Extra("openai-chat", {name: 1}, frozenset(optional))
        first = Recording(able=able)
        pool, _ = pool_of(first)
        assert await answered_by(pool, msgspec.structs.replace(LONG, extra=extra)) == "first"
        assert first.asked == [asked]


async def test_a_model_that_does_not_stream_is_fetched_whole() -> None:
    first = Recording(able=Capabilities(streaming=False))
    pool, _ = pool_of(first)
    assert await answered_by(pool) == "first"
    assert first.asked == ["whole"]


REFUSALS: list[PenstockError] = [
    InvalidRequest("your organization must be verified to stream this model"),
    AuthenticationFailed("not allowed: InvokeModelWithResponseStream"),
    MalformedResponse("a stream was asked for, but JSON came back"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_a_target_that_refuses_to_stream_is_asked_for_the_whole_and_remembered(
    error: PenstockError,
) -> None:
    first = Recording(error)
    pool, second = pool_of(first)
    assert [await answered_by(pool) for _ in range(3)] == ["first"] * 3
    assert first.asked == ["stream", "whole", "whole", "whole"]
    assert second.requests == []


async def test_a_request_that_is_wrong_in_any_form_says_nothing_about_streams() -> None:
    first = Recording(InvalidRequest("bad"), whole=InvalidRequest("bad"))
    pool, _ = pool_of(first)
    for _ in range(2):
        with pytest.raises(InvalidRequest):
            await answered_by(pool)
    assert first.asked == ["stream", "whole"] * 2
    first.steps = HELLO
    assert await answered_by(pool) == "first"
    first.steps = (InvalidRequest("bad"),)
    with pytest.raises(InvalidRequest):
        await answered_by(pool)
    # It has streamed before, so that cannot be the reason.
    assert first.asked[-2:] == ["stream", "stream"]


@pytest.mark.parametrize(
    "error", [ContextLengthExceeded("too long"), ProviderUnavailable("down"), StreamInterrupted("")]
)
async def test_other_failures_go_on_to_the_next_target(error: PenstockError) -> None:
    first = Recording(error)
    pool, _ = pool_of(first)
    assert await answered_by(pool) == "second"
    assert first.asked == ["stream"]


async def test_a_whole_answer_that_breaks_off_is_made_again_elsewhere() -> None:
    first = Recording([Chunk("Half an ans")], StreamInterrupted("cut"))
    pool, second = pool_of(first)
    assert await answered_by(pool) == "second"
    assert [request for _, request in second.requests] == [LONG]


async def test_a_whole_answer_with_thoughts_and_calls_is_as_the_stream_ends() -> None:
    call = ToolUse("c1", "weather", {"city": "Bonn"})
    reply = Reply((Text("Hi"), call), "stub-1", "toolUse", Usage(1, 2), "resp_1", "tool_calls")
    first = Recording(
        [ReasoningDelta("hm")],
        [Chunk("Hi"), ToolUseDelta(0, "c1", "weather", "{}")],
        [Finished(reply)],
    )
    pool, _ = pool_of(first)
    _, got = await pool.generate((FIRST, SECOND), LONG)
    assert got is reply


async def test_a_whole_answer_that_never_ends_is_cut() -> None:
    class Endless(Recording):
        async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
            self.asked.append("stream")
            while True:
                yield [Chunk("x" * 100_000)]

    first = Endless()
    pool, _ = pool_of(first, limit_s=60)
    assert await answered_by(pool) == "second"
    assert first.asked == ["stream"]


# ---- what is usual


def waits(*seconds: float, times: int = 1) -> Waits:
    found = Waits()
    for _ in range(times):
        for each in seconds:
            found.add(each)
    return found


@pytest.mark.parametrize(
    ("known", "limit_s"),
    [
        (waits(), 30.0),
        (waits(0.1, times=19), 30.0),
        (waits(0.1, times=20), 10.0),
        (waits(4.0, times=50), 16.0),
        (waits(20.0, times=50), 30.0),
        (waits(*[0.5] * 99, 6.0), 24.0),
    ],
)
def test_the_limit_follows_what_is_usual_within_bounds(known: Waits, limit_s: float) -> None:
    assert known.silence_s(30.0) == limit_s


async def test_a_target_that_has_become_slower_is_given_more_time() -> None:
    first = Recording(Pause())
    pool, _ = pool_of(first, limit_s=0.3)
    state = pool.states[FIRST]
    for _ in range(20):
        state.first_tokens.add(0.0)
    assert state.first_tokens.silence_s(0.3) == pytest.approx(0.1)
    assert await answered_by(pool) == "second"
    assert state.first_tokens.silence_s(0.3) == 0.3


@pytest.mark.parametrize(
    ("level", "able", "times"),
    [
        (None, Capabilities(), 1),
        ("none", Capabilities(), 1),
        ("low", Capabilities(), 1),
        ("med", Capabilities(), 2),
        ("high", Capabilities(), 4),
        ("high", Capabilities(reasoning=False), 1),
        (None, Capabilities(reasoning_off=False), 2),
        (None, Capabilities(reasoning=False, reasoning_off=False), 1),
    ],
)
def test_a_model_that_thinks_first_gets_more_time(
    level: ReasoningLevel | None, able: Capabilities, times: float
) -> None:
    assert able.patience(level) == times


async def test_what_thinking_takes_is_learnt_apart() -> None:
    first = Recording()
    pool, _ = pool_of(first, limit_s=60)
    thinking = msgspec.structs.replace(LONG, reasoning_level="high")
    await answered_by(pool, thinking)
    state = pool.states[FIRST]
    assert state.first_tokens.quantile(0.5) is None
    for _ in range(20):
        state.first_after_thinking.add(10.0)
    assert state.first_after_thinking.silence_s(240) == 80
    assert state.first_tokens.silence_s(60) == 60


HEARS = Capabilities(audio=True, transcription=True)
HEARD = Transcript(text="hello")
# Three megabytes; one more than 0.1 s is a second for each 100 kB.
LONG_RECORDING = TranscriptionRequest(audio=Audio("A" * 4_000_000, "audio/wav"))
RECORDING = TranscriptionRequest(audio=Audio("AAAA", "audio/wav"))


class Silent(StubProvider):
    """Does not transcribe before it may."""

    def __init__(self) -> None:
        super().__init__(name="first", able=HEARS)
        self.pause = Pause()

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        self.pause.reached.set()
        await self.pause.over.wait()
        return HEARD


def transcribing_pool(first: StubProvider) -> FailoverPool:
    second = StubProvider(name="second", able=HEARS, transcripts=lambda _: HEARD)
    providers: dict[str, Provider] = {"first": first, "second": second}
    settings = RetrySettings(retries=0, first_token_timeout_s=LIMIT_S)
    return FailoverPool(providers.__getitem__, settings=settings)


async def test_a_silent_target_gives_way_to_the_next_for_a_transcript() -> None:
    first = Silent()
    async with asyncio.timeout(30):
        attempt, transcript = await transcribing_pool(first).transcribe((FIRST, SECOND), RECORDING)
    assert (attempt.target, attempt.number, transcript) == (SECOND, 2, HEARD)
    assert first.pause.reached.is_set()


@pytest.mark.parametrize(
    ("ranked", "recording"), [((FIRST,), RECORDING), ((FIRST, SECOND), LONG_RECORDING)]
)
async def test_a_transcript_may_take_longer_if_no_target_is_left_or_the_recording_is_long(
    ranked: Sequence[Target], recording: TranscriptionRequest
) -> None:
    first = Silent()
    asked = asyncio.create_task(transcribing_pool(first).transcribe(ranked, recording))
    async with asyncio.timeout(30):
        await first.pause.reached.wait()
        done, _ = await asyncio.wait({asked}, timeout=2 * LIMIT_S)
        assert not done
        first.pause.over.set()
        attempt, transcript = await asked
    assert (attempt.target, attempt.number, transcript) == (FIRST, 1, HEARD)
