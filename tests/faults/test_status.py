"""Providers that refuse, fail and stay silent: alone, and with somebody to fall back to."""

from __future__ import annotations

import pytest

from penstock import ProviderTimeout, RateLimited
from tests.faults.answer import WHOLE
from tests.faults.asking import BOTH, Ask, engine_on, whole
from tests.faults.manifest import proves
from tests.faults.scenarios import CASES, Case
from tests.faults.server import FaultServer

PATIENT = {"request_timeout_s": 2.0}
ROWS = proves(*dict.fromkeys(case.row for case in CASES))


@ROWS
@BOTH
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
async def test_alone(case: Case, ask: Ask) -> None:
    async with FaultServer() as server, engine_on(server, case.fault) as engine:
        got = await ask(engine)
        assert len(server.of(case.fault)) == case.attempts
        if case.alone is None:
            assert got.text == WHOLE
        else:
            assert isinstance(got.error, case.alone), repr(got)
            assert (got.text, got.result) == ("", None)
            assert (got.error.provider, got.error.model) == ("primary", case.fault)
            assert got.error.request_id


@ROWS
@BOTH
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
async def test_with_a_fallback(case: Case, ask: Ask) -> None:
    async with FaultServer() as server, engine_on(server, case.fault, "healthy.b") as engine:
        got = await ask(engine)
        assert len(server.of(case.fault)) == case.attempts
        if not case.fallback:
            assert case.alone is not None
            assert isinstance(got.error, case.alone)
            assert server.of("healthy.b") == []
            return
        assert got.text == WHOLE
        assert got.result is not None
        assert got.result.text == WHOLE
        expected = 0 if case.alone is None else 1
        assert len(server.of("healthy.b")) == expected
        assert got.result.metadata.attempts == case.attempts + expected


@BOTH
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
async def test_nobody_answers(case: Case, ask: Ask) -> None:
    """Both have the fault: each is asked as often as it makes sense, and one error tells of it."""
    pool = {"retries": 1}
    models = (case.fault, case.fault)
    async with FaultServer() as server, engine_on(server, *models, pool=pool) as engine:
        got = await ask(engine)
        if case.alone is None:
            assert got.text == WHOLE
            return
        assert (got.text, got.result) == ("", None)
        assert isinstance(got.cause, case.alone), repr(got)
        asked = min(case.attempts, 2) * (2 if case.fallback else 1)
        assert len(server.of(case.fault)) == asked


@proves("429-seconds", "429-ms", "429-date")
@pytest.mark.parametrize(("form", "least_s"), [("seconds", 1.0), ("ms", 0.12), ("date", 0.9)])
async def test_a_pause_that_is_asked_for_is_kept(form: str, least_s: float) -> None:
    async with FaultServer() as server, engine_on(server, f"429.{form}") as engine:
        assert (await whole(engine)).text == WHOLE
        (gap,) = server.gaps(f"429.{form}")
        assert gap >= least_s


@proves("429-deadline")
@BOTH
async def test_a_pause_beyond_the_deadline_is_not_waited_for(ask: Ask) -> None:
    async with FaultServer() as server, engine_on(server, "429.later", "healthy.b") as engine:
        got = await ask(engine, timeout=8)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.of("429.later")) == 1
    async with FaultServer() as server, engine_on(server, "429.later") as engine:
        got = await ask(engine, timeout=8)
        assert isinstance(got.error, RateLimited)
        assert got.error.retry_after == 9


@proves("deadline")
@BOTH
async def test_one_deadline_is_shared_by_all_attempts(ask: Ask) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "silence.a", "silence.b", "silence.c", pool=PATIENT) as engine,
    ):
        got = await ask(engine, timeout=3.5)
        assert isinstance(got.error, ProviderTimeout)
        assert "own limit" in str(got.error)
        assert [len(server.of(f"silence.{each}")) for each in "abc"] == [1, 1, 0]
