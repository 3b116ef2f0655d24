"""The stage between validating a request and routing it: somebody must approve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock import (
    Caller,
    Complete,
    InvalidRequest,
    RequestCancelled,
    SamplingRejected,
    SamplingRequest,
)
from penstock.config.settings import Config
from penstock.contract.approval import Estimate
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, Recorder, engine_with

Estimating = Callable[[SamplingRequest], Awaitable[Estimate]]


async def test_only_a_valid_request_is_shown_and_what_is_left_is_made() -> None:
    shown: list[SamplingRequest] = []

    async def shorten(request: SamplingRequest, estimate: Estimating) -> SamplingRequest:
        shown.append(request)
        return msgspec.structs.replace(request, max_tokens=3)

    caller, model = Caller(review=shorten), FakeProvider()
    async with engine_with(model) as engine:
        with pytest.raises(InvalidRequest):
            await engine.create_message("", max_tokens=9, caller=caller)
        await engine.create_message("Hi", max_tokens=9, caller=caller)
        stream = await engine.create_message_stream("Hi", max_tokens=9, caller=caller)
        async with stream:
            events = [event async for event in stream]
    assert [request.max_tokens for request in shown] == [9, 9]
    assert [request.max_tokens for request in model.requests] == [3, 3]
    assert isinstance(events[-1], Complete)


async def test_what_a_reviewer_leaves_must_be_valid_too() -> None:
    async def spoil(request: SamplingRequest, estimate: Estimating) -> SamplingRequest:
        return msgspec.structs.replace(request, temperature=99.0)

    model = FakeProvider()
    async with engine_with(model) as engine:
        with pytest.raises(InvalidRequest, match="temperature"):
            await engine.create_message("Hi", max_tokens=9, caller=Caller(review=spoil))
    assert model.requests == []


async def test_a_refusal_is_an_end_like_any_other() -> None:
    async def refuse(request: SamplingRequest, estimate: Estimating) -> SamplingRequest:
        raise SamplingRejected("no")

    recorder, model = Recorder(), FakeProvider()
    async with engine_with(model) as engine:
        engine.hooks.subscribe(recorder)
        with pytest.raises(SamplingRejected) as caught:
            await engine.create_message("Hi", max_tokens=9, caller=Caller(review=refuse))
        with pytest.raises(SamplingRejected):
            await engine.create_message_stream("Hi", max_tokens=9, caller=Caller(review=refuse))
    assert [record.outcome for record in recorder.requests] == ["failed", "failed"]
    assert caught.value.request_id == recorder.requests[0].request_id
    assert model.requests == []


async def test_a_request_that_waits_can_be_cancelled_by_its_id() -> None:
    asked = asyncio.Event()

    async def dither(request: SamplingRequest, estimate: Estimating) -> SamplingRequest:
        asked.set()
        await asyncio.Event().wait()
        return request

    async with engine_with(FakeProvider()) as engine:
        asking = asyncio.create_task(
            engine.create_message(
                "Hi", max_tokens=9, request_id="mine", caller=Caller(review=dither)
            )
        )
        await asked.wait()
        assert await engine.cancel_request("mine")
        with pytest.raises(RequestCancelled):
            await asking


@pytest.mark.parametrize(("price", "known"), [({"input": 1.0, "output": 2.0}, True), (None, False)])
async def test_the_estimate_is_of_the_dearest_target(
    price: dict[str, float] | None, known: bool
) -> None:
    found: list[Estimate] = []

    async def look(request: SamplingRequest, estimate: Estimating) -> SamplingRequest:
        found.append(await estimate(request))
        return request

    prices = {"one/echo": {"input": 0.5, "output": 1.0}} | (
        {} if price is None else {"two/x": price}
    )
    config = Config.model_validate(
        {
            "providers": {
                "one": {"kind": "fake"},
                "two": {"kind": "openai-chat", "url": "https://models.example.com/v1"},
            },
            "models": {"default": {"targets": ["one/echo", "two/x"], "prices": prices}},
        }
    )
    async with Engine(config) as engine:
        engine.use(FakeProvider(name="one"))
        await engine.create_message("Hi", max_tokens=1000, caller=Caller(review=look))
    (estimate,) = found
    assert estimate.tokens > 0
    if known:
        assert estimate.cost_nanos is not None
        assert 2_000_000 <= estimate.cost_nanos < 3_000_000
        assert estimate.cost_usd == estimate.cost_nanos / 1e9
    else:
        assert (estimate.cost_nanos, estimate.cost_usd) == (None, None)
