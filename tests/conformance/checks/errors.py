"""What the provider reports, as typed errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import pytest

from penstock import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from tests.conformance.case import Case, collect, failed, texts
from tests.conformance.checks.answers import PIECES
from tests.support.wire.scenario import Failure, FailureKind, Fault, Scenario


@dataclass(frozen=True, slots=True)
class Expected:
    """What becomes of a failure."""

    error: type[PenstockError]
    retryable: bool = False


EXPECTED: Mapping[FailureKind, Expected] = {
    "rate_limit": Expected(RateLimited, retryable=True),
    "quota": Expected(RateLimited),
    "authentication": Expected(AuthenticationFailed),
    "permission": Expected(AuthenticationFailed),
    "unknown_model": Expected(ModelNotFound),
    "context_length": Expected(ContextLengthExceeded),
    "bad_request": Expected(InvalidRequest),
    "content_filter": Expected(ContentRejected),
    "server_error": Expected(ProviderUnavailable, retryable=True),
    "overloaded": Expected(ProviderUnavailable, retryable=True),
}


def mapped(kind: FailureKind) -> Callable[[Case], Awaitable[None]]:
    """The check that a failure of this kind becomes its error, whole and streamed."""

    async def check(case: Case) -> None:
        failure = Failure(kind)
        case.play(Scenario(failure=failure), Scenario(failure=failure))
        for call in (case.ask, case.stream):
            with pytest.raises(PenstockError) as caught:
                await call()
            error = caught.value
            located(case, error)
            assert type(error) is EXPECTED[kind].error
            assert error.retryable is EXPECTED[kind].retryable
            assert error.status == case.upstream.status(failure)
            assert not case.key or case.key not in f"{error} {error!r} {error.__dict__}"

    return check


def located(case: Case, error: PenstockError) -> None:
    """The error says where it happened, and in a line that people can read."""
    assert (error.provider, error.model) == (case.provider, case.model)
    assert error.request_id is not None
    assert error.request_id.startswith("req_")
    assert "\n" not in str(error)


async def retry_after(case: Case) -> None:
    case.play(Scenario(failure=Failure("rate_limit", retry_after=7)))
    with pytest.raises(RateLimited) as caught:
        await case.ask()
    assert caught.value.retry_after == 7


async def context_length_live(case: Case) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        await case.ask("word " * 20_000)
    located(case, caught.value)


async def bad_request_live(case: Case) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await case.ask(output_schema={"type": "nonsense"})
    located(case, caught.value)


async def unknown_model_live(case: Case) -> None:
    with pytest.raises(ModelNotFound) as caught:
        await case.ask(model=f"{case.provider}/no-such-model")
    assert caught.value.model == "no-such-model"


async def refusal(case: Case) -> None:
    scenario = Scenario(refusal="I cannot help with that.")
    case.play(scenario, scenario)
    with pytest.raises(ContentRejected) as caught:
        await case.ask()
    located(case, caught.value)
    with pytest.raises(ContentRejected):
        await (await case.stream()).result()


async def filtered(case: Case) -> None:
    """A filter that strikes in the middle: what was said stays said, and is no success."""
    scenario = Scenario(text=PIECES, stop="filtered")
    case.play(scenario, scenario)
    with pytest.raises(ContentRejected) as caught:
        await case.ask()
    located(case, caught.value)
    events = await collect(await case.stream())
    assert texts(events) == list(PIECES)
    error = failed(events, ContentRejected)
    assert error.partial == "".join(PIECES)


async def in_stream(case: Case) -> None:
    """The provider reports its error when the answer has already begun."""
    case.play(Scenario(text=PIECES, failure=Failure("server_error"), fault=Fault("error_event", 2)))
    events = await collect(await case.stream())
    assert texts(events) == list(PIECES[:2])
    error = failed(events, ProviderUnavailable)
    located(case, error)
    assert error.retryable


async def in_stream_at_once(case: Case) -> None:
    """As the first event it is an exception, for nothing has been promised yet."""
    case.play(Scenario(failure=Failure("server_error"), fault=Fault("error_event")))
    with pytest.raises(ProviderUnavailable) as caught:
        await case.stream()
    located(case, caught.value)


async def under_200(case: Case) -> None:
    scenario = Scenario(failure=Failure("rate_limit"), fault=Fault("error_in_200"))
    case.play(scenario, scenario)
    for call in (case.ask, case.stream):
        with pytest.raises(RateLimited) as caught:
            await call()
        located(case, caught.value)


async def unknown_name(case: Case) -> None:
    """A name that the configuration does not know is refused here, with the nearest one."""
    near = f"{case.provider[:-1]}/{case.model}"
    with pytest.raises(ModelNotFound, match=case.provider):
        await case.ask(model=near)
    assert case.scripted is None or not case.scripted.seen
