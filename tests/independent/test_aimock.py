"""Many streams at once, as far as a server that goes by the clock can show them."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from penstock import StreamEvent
from tests.conformance.behaviours import BEHAVIOURS
from tests.conformance.case import completed
from tests.independent.aimock import Aimock
from tests.independent.aimock_rows import ROWS
from tests.independent.rows import Row
from tests.independent.upstream import AimockUpstream
from tests.support.wire.scenario import Scenario

STREAMS = 8


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_streams_at_once_do_not_mix(row: Row[Aimock], aimock: Aimock) -> None:
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
