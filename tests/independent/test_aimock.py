"""What aimock shows of the cells that it cannot fill."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from penstock import StreamEvent, Usage, assistant, user
from tests.conformance.behaviours import BEHAVIOURS
from tests.conformance.case import completed
from tests.conformance.checks.generators import ADA, BAD, GOOD, Person
from tests.conformance.checks.transcription import SAID
from tests.independent.aimock import Aimock
from tests.independent.aimock_rows import ROWS
from tests.independent.rows import Row
from tests.independent.upstream import AimockUpstream
from tests.support.wire.scenario import Scenario

STREAMS = 8


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_streams_at_once_do_not_mix(row: Row[Aimock], aimock: Aimock) -> None:
    """As far as a server that goes by the clock can show it."""
    arrivals: list[int] = []

    async with row.connect(aimock).open(BEHAVIOURS["concurrent"]) as case:
        assert isinstance(case.scripted, AimockUpstream)
        case.scripted.latency_ms = 20
        case.play(*(Scenario(text=(f"a{n} ", f"b{n} ", f"c{n}")) for n in range(STREAMS)))

        async def one(number: int) -> str:
            events: list[StreamEvent] = []
            async for event in await case.stream():
                events.append(event)
                arrivals.append(number)
            return completed(events).text

        said = await asyncio.gather(*map(one, range(STREAMS)))
    assert sorted(said) == [f"a{n} b{n} c{n}" for n in range(STREAMS)]
    turns = sum(one != other for one, other in itertools.pairwise(arrivals))
    assert turns >= STREAMS, "the streams came one after the other"


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_an_answer_that_does_not_fit_is_asked_for_again(
    row: Row[Aimock], aimock: Aimock
) -> None:
    async with row.connect(aimock).open(BEHAVIOURS["typed-repair"]) as case:
        case.play(BAD, GOOD)
        generator = case.engine.structured_generator(
            Person, "Who?", max_tokens=64, model=f"{case.provider}/{case.model}"
        )
        person, metadata = await generator.generate()
        first, second = case.upstream.seen
    assert (person, metadata.api_calls) == (Person(**ADA), 2)
    assert first.messages == (user("Who?"),)
    *earlier, complaint = second.messages
    assert earlier == [*first.messages, assistant(BAD.whole_text)]
    assert "name" in complaint.text


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_value_that_is_no_object(row: Row[Aimock], aimock: Aimock) -> None:
    async with row.connect(aimock).open(BEHAVIOURS["typed-root"]) as case:
        case.play(Scenario(text=('{"answer": [1, 2]}',)))
        generator = case.engine.structured_generator(
            list[int], "Count.", max_tokens=64, model=f"{case.provider}/{case.model}"
        )
        assert (await generator.generate())[0] == [1, 2]


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if "transcription" not in row.subject.not_applicable],
    ids=lambda row: row.name,
)
async def test_the_words_of_a_recording(row: Row[Aimock], aimock: Aimock) -> None:
    async with row.connect(aimock).open(BEHAVIOURS["transcription"]) as case:
        case.play(SAID)
        result = await case.transcribe()
    assert result.text == "Good morning, Zoë."
    # It says of some dialects how much of it was sound.
    assert result.usage in (Usage(21, 4), Usage(21, 4, input_audio_tokens=21))
