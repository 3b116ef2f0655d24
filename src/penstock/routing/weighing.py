"""The strategy `learned` while nothing has been learnt: the catalogue, by the priorities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Target
from penstock.routing.decision import Offer, Scored, Weights, choose
from penstock.routing.outlook import Forecast, Outlook
from penstock.routing.strategies import Opinion, money


class Weighing:
    """Utility = intelligence x quality - cost x relative cost - speed x relative time."""

    name = "learned"

    def __init__(self, outlook: Outlook) -> None:
        """What to expect of targets."""
        self._outlook = outlook
        self._no_dice = np.random.default_rng(0)

    async def judge(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        *,
        deciding: bool,
        request_id: str | None,
        key: str | None,
    ) -> Sequence[Opinion]:
        """By the request's priorities; without any, mostly by quality."""
        forecasts = self._outlook(request, targets)
        weights = Weights.of(request.model_preferences)
        # Whatever has no price is taken for as dear as the dearest that has one.
        dearest = max((each.cost_usd for each in forecasts if each.cost_usd is not None), default=0)
        offers = [
            Offer(
                target,
                each.quality,
                cost_usd=dearest if each.cost_usd is None else each.cost_usd,
                latency_ms=each.latency_ms,
            )
            for target, each in zip(targets, forecasts, strict=True)
        ]
        ranked = choose(offers, weights, self._no_dice, floor=0.0, noise=0.0).ranked
        found = {each.target: (place, each) for place, each in enumerate(ranked)}
        return [
            _opinion(*found[target], forecast)
            for target, forecast in zip(targets, forecasts, strict=True)
        ]


def _opinion(place: int, scored: Scored, forecast: Forecast) -> Opinion:
    cost = "no known price" if forecast.cost_usd is None else money(forecast.cost_usd)
    return Opinion(
        place=float(place),
        utility=scored.utility,
        quality=forecast.quality,
        cost_usd=forecast.cost_usd,
        latency_ms=forecast.latency_ms,
        propensity=scored.propensity,
        note=f"has {'a' if place else 'the best'} utility of {scored.utility:.3f} "
        f"(quality {forecast.quality:.2f}, {cost}, {forecast.latency_ms:.0f} ms)",
    )
