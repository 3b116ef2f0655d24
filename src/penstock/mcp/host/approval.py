"""Has a request, and then its answer, decided upon; whoever does not decide in time says no."""

from __future__ import annotations

import asyncio

import msgspec

from penstock.contract.approval import Approver, Decision, Review
from penstock.contract.errors import SamplingRejected
from penstock.contract.exchange import Result, SamplingRequest

REJECTED = "the user rejected the sampling request"
_MOST_SAID = 500


async def approved_request(
    approver: Approver, review: Review, timeout_s: float | None
) -> SamplingRequest:
    """The request as it was approved; raises SamplingRejected."""
    decision = await _decided(approver, review, timeout_s)
    return review.request if decision.request is None else decision.request


async def approved_answer(
    approver: Approver, review: Review, answer: Result, timeout_s: float | None
) -> Result:
    """The answer as it was approved; raises SamplingRejected."""
    shown = msgspec.structs.replace(review, answer=answer)
    decision = await _decided(approver, shown, timeout_s)
    if decision.content is None:
        return answer
    return msgspec.structs.replace(answer, content=decision.content)


async def _decided(approver: Approver, review: Review, timeout_s: float | None) -> Decision:
    clock = asyncio.timeout(timeout_s)
    try:
        async with clock:
            said = await approver(review)
    except TimeoutError as error:
        if not clock.expired():
            raise
        raise SamplingRejected(
            f"{REJECTED}: no decision about the {review.stage} within {timeout_s:g} s"
        ) from error
    decision = said if isinstance(said, Decision) else Decision(approved=said)
    # Only what is said clearly is a yes: a function that forgets to return anything says no.
    if decision.approved is not True:
        reason = decision.reason[:_MOST_SAID]
        raise SamplingRejected(f"{REJECTED}: {reason}" if reason else REJECTED)
    return decision
