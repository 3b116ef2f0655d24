"""What no protocol allows, and happens all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock import (
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    StreamInterrupted,
)
from tests.conformance.case import CLOSED_WITHIN_S, Case, collect, completed, failed, texts
from tests.conformance.checks.answers import LARGE, PIECES, TEXT
from tests.conformance.checks.control import ENDLESS
from tests.conformance.checks.errors import located
from tests.support.wire.scenario import Fault, FaultKind, Pause, Scenario

LIMIT_S = 0.5
"""A timeout that a check waits for."""
OWN_LIMIT_S = 3.0
"""The same for a request's own: it runs from its beginning, before it is on its way."""


def interrupted(kind: FaultKind, *, after: int = 2) -> Callable[[Case], Awaitable[None]]:
    """The check that this fault is StreamInterrupted, with the text that had come."""

    async def check(case: Case) -> None:
        case.play(Scenario(text=PIECES, fault=Fault(kind, after)))
        events = await collect(await case.stream())
        assert texts(events) == list(PIECES[:after])
        error = failed(events, StreamInterrupted)
        located(case, error)
        assert error.partial == "".join(PIECES[:after])
        assert error.retryable

    return check


def interrupted_unread(kind: FaultKind) -> Callable[[Case], Awaitable[None]]:
    """The check that a reader who comes late still gets all that came before the fault."""

    async def check(case: Case) -> None:
        pause = Pause(after=1)
        case.play(Scenario(text=PIECES, fault=Fault(kind, 3), pause=pause))
        handle = await case.stream()
        pause.resume.set()
        await case.upstream.idle()
        events = await collect(handle)
        assert texts(events) == list(PIECES[:3])
        assert failed(events, StreamInterrupted).partial == "".join(PIECES[:3])

    return check


async def truncated_anywhere(case: Case) -> None:
    """However many pieces had come, it is never a success."""
    for after in range(1, len(PIECES) + 1):
        await interrupted("truncated", after=after)(case)


async def truncated_at_once(case: Case) -> None:
    case.play(Scenario(text=PIECES, fault=Fault("truncated")))
    with pytest.raises(StreamInterrupted) as caught:
        await case.stream()
    located(case, caught.value)
    assert caught.value.partial == ""


async def idle(case: Case) -> None:
    case.play(Scenario(text=PIECES, fault=Fault("stall", 2)))
    events = await collect(await case.stream())
    error = failed(events, StreamInterrupted)
    assert error.partial == "".join(PIECES[:2])
    assert isinstance(error.__cause__, ProviderTimeout)
    await case.closed()


async def only_pings(case: Case) -> None:
    """Signs of life count for a limited time, before the first piece and after it."""
    case.play(Scenario(text=PIECES, fault=Fault("pings")))
    await _times_out(case, case.stream)
    case.play(Scenario(text=PIECES, fault=Fault("pings", 2)))
    error = failed(await collect(await case.stream()), StreamInterrupted)
    assert isinstance(error.__cause__, ProviderTimeout)
    await case.closed()


async def no_first_token(case: Case) -> None:
    case.play(Scenario(text=PIECES, fault=Fault("stall")))
    await _times_out(case, case.stream)


async def no_headers(case: Case) -> None:
    for call in (case.ask, case.stream):
        case.play(Scenario(text=PIECES, fault=Fault("silent")))
        await _times_out(case, call)


async def own_limit(case: Case) -> None:
    """The request's own `timeout`, before and after the first piece."""
    for call in (case.ask, case.stream):
        case.play(Scenario(text=PIECES, pause=Pause()))
        await _times_out(case, lambda call=call: call(timeout=OWN_LIMIT_S))
    case.play(Scenario(text=PIECES, pause=Pause(after=1)))
    events = await collect(await case.stream(timeout=OWN_LIMIT_S))
    assert texts(events) == list(PIECES[:1])
    located(case, failed(events, ProviderTimeout))
    await case.closed()


async def own_limit_live(case: Case) -> None:
    with pytest.raises(ProviderTimeout) as caught:
        await case.ask("Count.", max_tokens=8000, output_schema=ENDLESS, timeout=1)
    assert caught.value.request_id
    assert (await case.ask("Hi", max_tokens=2)).text


async def _times_out(case: Case, call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(ProviderTimeout) as caught:
        await call()
    assert not caught.value.retryable
    assert caught.value.request_id
    await case.closed()


def refused(
    kind: FaultKind,
    error: type[PenstockError],
    *,
    status: int | None = None,
    retryable: bool = True,
) -> Callable[[Case], Awaitable[None]]:
    """The check that such a body becomes this error, whole and streamed."""

    async def check(case: Case) -> None:
        scenario = Scenario(text=PIECES, fault=Fault(kind))
        case.play(scenario, scenario)
        for call in (case.ask, case.stream):
            with pytest.raises(error) as caught:
                await call()
            located(case, caught.value)
            assert caught.value.status == status
            assert caught.value.retryable is retryable
            assert "<html" not in str(caught.value)

    return check


html_error = refused("html_error", ProviderUnavailable, status=502)
html_page = refused("html", MalformedResponse)
wrong_type = refused("wrong_type", MalformedResponse)


async def not_json(case: Case) -> None:
    scenario = Scenario(text=PIECES, fault=Fault("not_json"))
    case.play(scenario, scenario)
    with pytest.raises(MalformedResponse) as caught:
        await case.ask()
    located(case, caught.value)
    # In a framed stream such a body holds no event at all.
    with pytest.raises((MalformedResponse, StreamInterrupted)) as streamed:
        await case.stream()
    located(case, streamed.value)


async def gzip_body(case: Case) -> None:
    case.play(Scenario(text=PIECES, fault=Fault("gzip")))
    assert (await case.ask()).text == TEXT
    assert "gzip" in case.seen.headers["accept-encoding"]


async def no_close(case: Case) -> None:
    """The answer is whole with its terminal event; nobody waits for the connection to end."""
    case.play(Scenario(text=PIECES, fault=Fault("open")))
    async with asyncio.timeout(CLOSED_WITHIN_S):
        assert completed(await collect(await case.stream())).text == TEXT
        await case.upstream.gone()


async def too_large(case: Case) -> None:
    case.play(Scenario(text=LARGE))
    with pytest.raises(MalformedResponse, match="max_response_bytes") as caught:
        await case.ask()
    located(case, caught.value)
    await case.closed()


async def redirected(case: Case) -> None:
    """The key goes to the configured address and to no other."""
    scenario = Scenario(text=PIECES, fault=Fault("redirect"))
    case.play(scenario, scenario)
    for call in (case.ask, case.stream):
        with pytest.raises(MalformedResponse) as caught:
            await call()
        located(case, caught.value)
        assert not caught.value.retryable
    assert len(case.upstream.seen) == 2


async def unreachable(case: Case) -> None:
    await case.upstream.stop()
    for call in (case.ask, case.stream):
        with pytest.raises(ProviderUnavailable) as caught:
            await call()
        located(case, caught.value)
        assert caught.value.retryable
