"""Every fault through the gateway, at its doors, by a plain HTTP client.

Scenarios of one wire and the same limits share a gateway, where each visit has a model and
providers of its own, so that no breaker and no retry is shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest

from tests.faults import scenarios
from tests.faults.asking import DIALECTS, limits_for
from tests.faults.doors import Told, words_of
from tests.faults.gateways import Site, Visit, gateway_on, visits
from tests.faults.manifest import ANSWERS, WITHOUT_HEADERS, shows
from tests.faults.scenarios import Scenario
from tests.faults.ways import packed_bomb

pytestmark = pytest.mark.timeout(60)
AT_ONCE = 8
"""So few that a healthy target is not late only because everybody asks."""
RETRIES = 10
"""What an engine allows a few requests together."""
TABLES = {
    "cases": scenarios.cases,
    "streams": scenarios.broken_streams,
    "wires": scenarios.every_wire,
    "in-band": scenarios.in_band,
    "endings": scenarios.endings,
    "bodies": scenarios.odd_bodies,
    "dripping": scenarios.dripping,
    "vectors": scenarios.vectors,
}


def _shared(scenario: Scenario) -> tuple[str, str]:
    """What scenarios must agree on to be met at one gateway."""
    limits = {**limits_for(scenario.models), **scenario.pool}
    return scenario.kind, repr(sorted(limits.items()))


def _groups() -> dict[str, list[Scenario]]:
    """The scenarios of one gateway each; all of an engine's requests share its retries."""
    found: dict[str, list[Scenario]] = {}
    for table, make in TABLES.items():
        for (kind, _), members in groupby(sorted(make(), key=_shared), _shared):
            group: list[Scenario] = []
            for scenario in members:
                if not group or sum(each.retries for each in [*group, scenario]) > RETRIES:
                    group = found[f"{table}-{kind}-{len(found)}"] = []
                group.append(scenario)
    return found


GROUPS = _groups()
EVERY = [visit for group in GROUPS.values() for visit in visits(group)]


def _shown(rows: Iterable[Scenario]) -> dict[str, set[str]]:
    shown: dict[str, set[str]] = {}
    for scenario in rows:
        shown.setdefault(scenario.row, set()).update(scenario.doors)
    return shown


async def visit_all(site: Site, every: Iterable[Visit]) -> list[str]:
    """What is not as it should be."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(visit: Visit) -> str | None:
        async with room:
            told: Told | None = None
            try:
                told = await visit.door.send(site.client, visit.caller, visit.stream)
                check(site, visit, told)
            except (AssertionError, KeyError) as error:
                return f"{visit}: {error!r} of {told}"
        return None

    return list(filter(None, await asyncio.gather(*map(one, every))))


def check(site: Site, visit: Visit, told: Told) -> None:
    """What the caller has got, and what the provider has seen of it."""
    scenario, caller = visit.scenario, visit.caller
    models = [model.rpartition("@")[2] for model in scenario.models]
    asked = tuple(len(site.server.of(model, caller)) for model in models)
    assert asked == scenario.asked, "how often each was asked"
    assert told.text == scenario.text
    if visit.door.has_headers or scenario.error is None:
        assert told.headers["x-request-id"].startswith("req_")
    if scenario.error is None:
        assert (told.status, told.whole, list(told.errors)) == (200, True, [])
        check_facts(visit, told)
        return
    words = words_of(scenario.error, overloaded=scenario.overloaded)
    assert not told.whole, "an error is taken for a whole answer"
    (document,) = told.errors
    visit.door.check_error(document, words, scenario.retry_after)
    if not visit.door.has_headers:
        return
    if visit.door.name == "messages":
        assert document["request_id"] == told.headers["x-request-id"]
    if scenario.text:
        assert told.status == 200, "what was said cannot be taken back"
        check_facts(visit, told)
        return
    assert told.status == words.status
    pause = told.headers.get("retry-after")
    assert pause == (None if scenario.retry_after is None else str(scenario.retry_after)), pause
    if words.status >= 429:
        assert told.headers["x-should-retry"] in ("true", "false")


def check_facts(visit: Visit, told: Told) -> None:
    """The headers tell who answers: at the end of a whole answer, at the beginning of a stream.

    What a message says without headers is known at the end.
    """
    scenario, headers = visit.scenario, told.headers
    begun = visit.stream and scenario.begins and visit.door.has_headers
    last = max(at for at, count in enumerate(scenario.asked) if count)
    place = 0 if begun else last
    name = ("primary", "second", "third")[place]
    assert headers["x-penstock-provider"] == f"{name}-{visit.caller}"
    if visit.door.has_headers:
        assert headers["x-penstock-model"] == scenario.models[place].rpartition("@")[2]
    attempts = 1 if begun else sum(scenario.asked)
    assert headers["x-penstock-attempts"] == str(attempts)
    assert begun or visit.stream or float(headers["x-penstock-cost-usd"]) > 0


@pytest.mark.parametrize("group", GROUPS)
async def test_a_fault_at_every_door(group: str, tmp_path: Path) -> None:
    every = visits(GROUPS[group])
    first = GROUPS[group][0]
    packed_bomb()
    callers = {visit.caller: visit.scenario.models for visit in every}
    async with gateway_on(tmp_path, callers, kind=first.kind, pool=first.pool) as site:
        # What is made for the first request of all is not to count for a target's time.
        await site.ask("chat", "next")
        wrong = await visit_all(site, every)
        assert not wrong, "\n".join(wrong)
        await site.check_afterwards(ANSWERS)


for _row, _doors in _shown(visit.scenario for visit in EVERY).items():
    shows([_row], _doors)(test_a_fault_at_every_door)


def test_all_wires_are_met_at_all_doors() -> None:
    met = {(visit.scenario.kind, visit.door.name) for visit in EVERY}
    assert met >= {(kind, door) for kind in DIALECTS for door in (*ANSWERS, *WITHOUT_HEADERS)}
