"""How routers are compared: by the definitions of RouteLLM and RouterBench.

APGR: the share of the gap between the weak and the strong model that is recovered, averaged over
all shares of calls to the strong one. CPT50: the share of calls that recovers half of it.
AIQ: the quality averaged over the range of costs, along the non-decreasing hull of what the router
reaches; the hull of the single models is "no routing": they can be mixed by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Curve = list[tuple[float, float]]
ROUNDING = 1e-9
"""A difference in quality below this is none."""


class TwoModels(NamedTuple):
    """How much of the gap is recovered, and which per cent of calls recover half and most of it."""

    apgr: float
    cpt50: float
    cpt80: float


def two_models(preference: Floats, weak: Floats, strong: Floats) -> TwoModels | None:
    """A router that sends the prompts it prefers most to the strong model; None without a gap."""
    number = len(preference)
    best_first = np.argsort(-preference, kind="stable")
    gains = np.concatenate([[0.0], np.cumsum((strong - weak)[best_first])])
    if gains[-1] < ROUNDING:
        return None
    calls = np.round(np.linspace(0, number, 11)).astype(int)
    recovered = gains[calls] / gains[-1]
    share = calls / number
    return TwoModels(
        float(np.trapezoid(recovered, share)),
        float(np.interp(0.5, recovered, share)) * 100,
        float(np.interp(0.8, recovered, share)) * 100,
    )


def hull(points: Iterable[tuple[float, float]]) -> Curve:
    """The best that mixing the points reaches: cost, and quality that never falls."""
    best: Curve = []
    for cost, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if best and quality <= best[-1][1]:
            continue
        while len(best) >= 2 and _slope(best[-2], best[-1]) <= _slope(best[-2], (cost, quality)):
            best.pop()
        best.append((cost, quality))
    return best


def at_costs(curve: Curve, costs: Floats) -> Floats:
    """The quality that a curve has at each cost; outside, that of its ends."""
    x, y = zip(*curve, strict=True)
    return np.interp(costs, x, y)


def aiq(points: Iterable[tuple[float, float]], lowest: float, highest: float) -> float:
    """The mean quality of the hull over the range of costs."""
    return float(at_costs(hull(points), np.linspace(lowest, highest, 2001)).mean())


def single_models(scores: Floats, costs: Floats) -> Curve:
    """Cost and quality of each model by itself."""
    return list(zip(costs.mean(0).tolist(), scores.mean(0).tolist(), strict=True))


def reached(
    chosen: Sequence[int] | NDArray[np.intp], scores: Floats, costs: Floats
) -> tuple[float, float]:
    """Cost and quality of these choices, one a prompt."""
    rows = np.arange(len(scores))
    return float(costs[rows, chosen].mean()), float(scores[rows, chosen].mean())


def _slope(one: tuple[float, float], two: tuple[float, float]) -> float:
    return (two[1] - one[1]) / max(two[0] - one[0], 1e-12)
