"""The strategy `learned`: by what became of earlier requests, and why.

Until outcomes show that this earns more, the order stays what it would be without them: as
configured, or, when the request has priorities, by what the catalogue knows of the models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Target
from penstock.routing.forecast import Forecast, Outlook
from penstock.routing.learning.router import Known
from penstock.routing.learning.service import Learning
from penstock.routing.learning.trust import Verdict
from penstock.routing.selection import Offer, Scored, choose
from penstock.routing.strategies import Opinion, Weights, has_priorities, money

_NO_DICE = np.random.default_rng(0)
"""For choices without any chance."""


class Learned:
    """Judges the targets of one model."""

    name = "learned"

    def __init__(self, model: str, learning: Learning, outlook: Outlook) -> None:
        """`learning` knows what became of earlier requests, `outlook` prices and times."""
        self._model = model
        self._learning = learning
        self._outlook = outlook

    async def judge(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        *,
        deciding: bool,
        request_id: str | None,
        key: str | None,
    ) -> Sequence[Opinion]:
        """By expected quality, cost and time, as the request's priorities weigh them."""
        await self._learning.look(serving=request_id is not None)
        past = self._learning.expected(self._model, key)
        forecasts = await self._outlook(request, targets, past)
        known = {
            target: Known(each.cost_usd, each.latency_ms)
            for target, each in zip(targets, forecasts, strict=True)
        }
        order = targets
        if has_priorities(request.model_preferences):
            order = by_catalogue(targets, forecasts, Weights.of(request.model_preferences))
        asked = (self._model, request, order, known)
        size = forecasts[0].prompt_tokens
        if deciding and request_id is not None:
            choice = await self._learning.decide(
                *asked, prompt_tokens=size, request_id=request_id, key=key
            )
        else:
            choice = await self._learning.explain(*asked, prompt_tokens=size, key=key)
        verdict = self._learning.verdict(self._model, key)
        found = {each.target: (place, each) for place, each in enumerate(choice.ranked)}
        first = choice.chosen.target if choice.explored else None
        # Of one alone, because of a hint or a session, it is not said that others have less.
        most = max(each.utility for each in choice.ranked) if len(targets) > 1 else math.inf
        return [
            _opinion(*found[target], verdict, most=most, explored=target == first)
            for target in targets
        ]


def by_catalogue(
    targets: Sequence[Target], forecasts: Sequence[Forecast], weights: Weights
) -> list[Target]:
    """The targets by their utility, as far as it can be told without any outcome."""
    offers = [
        Offer(target, each.quality, cost_usd=each.cost_usd, latency_ms=each.latency_ms)
        for target, each in zip(targets, forecasts, strict=True)
    ]
    ranked = choose(offers, weights, _NO_DICE, floor=0.0, noise=0.0).ranked
    return [each.target for each in ranked]


def _opinion(
    place: int, scored: Scored, verdict: Verdict, *, most: float, explored: bool
) -> Opinion:
    offer = scored.offer
    return Opinion(
        place=float(place),
        utility=scored.utility,
        quality=offer.quality,
        uncertainty=offer.deviation,
        neighbours=offer.evidence,
        cost_usd=offer.cost_usd,
        latency_ms=offer.latency_ms,
        propensity=scored.propensity,
        explored=explored,
        note=_note(scored, verdict, most),
    )


def _note(scored: Scored, verdict: Verdict, most: float) -> str:
    offer = scored.offer
    cost = "no known price" if offer.cost_usd is None else money(offer.cost_usd)
    by = "by the catalogue"
    if offer.total >= 1:
        by = (
            f"± {offer.deviation:.2f} by {offer.total:.0f} outcome{'s' * (offer.total >= 1.5)}, "
            f"{offer.evidence:.0f} for similar prompts"
        )
    told = (
        f"has {'a' if scored.utility < most else 'the best'} utility of {scored.utility:.3f} "
        f"(quality {offer.quality:.2f} {by}, {cost}, {offer.latency_ms:.0f} ms)"
    )
    if verdict.in_force or not (verdict.outcomes or offer.total >= 1):
        return told
    if not verdict.outcomes:
        return f"{told}, which is advice only until labels of requests served here show a gain"
    return (
        f"{told}, which is advice only while {verdict.outcomes} labelled outcomes show a gain of "
        f"{verdict.gain:+.3f} ± {verdict.error:.3f}"
    )
