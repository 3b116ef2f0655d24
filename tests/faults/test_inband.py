"""Each dialect's own errors inside an answer that began well."""

from __future__ import annotations

import pytest

from penstock import ContentRejected
from tests.faults.answer import WHOLE, first_words
from tests.faults.asking import DIALECTS, engine_on, streamed, whole
from tests.faults.inband import INBAND
from tests.faults.manifest import proves
from tests.faults.server import FaultServer

POOL = {"retries": 1}
ANY = sorted(INBAND)
LATER = sorted(name for name, error in INBAND.items() if not error.only_first)
PLACES = pytest.mark.parametrize("place", ["whole", "first", "0"])


@proves("in-band-whole", "in-band-first", "in-band-final")
@PLACES
@pytest.mark.parametrize("name", ANY)
async def test_alone(name: str, place: str) -> None:
    error = INBAND[name]
    fault = f"inband.{name}.{place}"
    async with (
        FaultServer(DIALECTS[error.kind]) as server,
        engine_on(server, fault, kind=error.kind, pool=POOL) as engine,
    ):
        got = await (whole if place == "whole" else streamed)(engine)
        assert isinstance(got.error, error.error), repr(got)
        assert (got.text, got.result) == ("", None)
        assert (got.error.provider, got.error.model) == ("primary", fault)
        assert len(server.of(fault)) == (1 if error.final else 2)


@proves("in-band-whole", "in-band-first", "in-band-final")
@PLACES
@pytest.mark.parametrize("name", ANY)
async def test_with_a_fallback(name: str, place: str) -> None:
    error = INBAND[name]
    fault = f"inband.{name}.{place}"
    async with (
        FaultServer(DIALECTS[error.kind]) as server,
        engine_on(server, fault, "healthy.b", kind=error.kind, pool={"retries": 0}) as engine,
    ):
        got = await (whole if place == "whole" else streamed)(engine)
        asked = [len(server.of(model)) for model in (fault, "healthy.b")]
        if error.final:
            assert isinstance(got.error, error.error), repr(got)
            assert (got.text, got.result) == ("", None)
            assert asked == [1, 0]
            return
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.metadata.attempts == 2
        assert asked == [1, 1]


@proves("in-band-later", "in-band-final")
@pytest.mark.parametrize("name", LATER)
async def test_in_mid_stream_alone(name: str) -> None:
    error = INBAND[name]
    fault = f"inband.{name}.40"
    async with (
        FaultServer(DIALECTS[error.kind]) as server,
        engine_on(server, fault, kind=error.kind, pool=POOL) as engine,
    ):
        got = await streamed(engine)
        assert isinstance(got.error, error.error), repr(got)
        assert (got.text, got.result) == (first_words(40), None)
        if isinstance(got.error, ContentRejected):
            assert got.error.partial == got.text
        assert len(server.of(fault)) == (1 if error.final else 2)


@proves("in-band-later", "in-band-final")
@pytest.mark.parametrize("name", LATER)
async def test_in_mid_stream_with_a_fallback(name: str) -> None:
    error = INBAND[name]
    fault = f"inband.{name}.40"
    async with (
        FaultServer(DIALECTS[error.kind]) as server,
        engine_on(server, fault, "healthy.b", kind=error.kind, pool=POOL) as engine,
    ):
        got = await streamed(engine)
        asked = [len(server.of(model)) for model in (fault, "healthy.b")]
        if error.final:
            assert isinstance(got.error, error.error), repr(got)
            assert (got.text, got.result) == (first_words(40), None)
            assert asked == [1, 0]
            return
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.text == WHOLE
        assert got.result.metadata.provider == "second"
        assert asked == [1, 1]
