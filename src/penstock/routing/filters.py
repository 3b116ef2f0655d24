"""What leaves a target out before any ranking: its provider, and what it is able to do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import Capabilities
from penstock.contract.ports import Health, Target
from penstock.routing.eligibility import GOOD, Fit, Floor, Verdict, fit, floor_of, surely_fits
from penstock.routing.explanation import Dropped
from penstock.routing.ranking import Candidate
from penstock.tokens import Estimates

PROVIDER = "_provider"
"""What a request's metadata may name: the provider whose targets alone shall serve it."""
_PATH = f"metadata.{PROVIDER}"
_MOST_SHOWN = 100


class Filter:
    """Leaves out the targets that cannot serve a request, as long as others can."""

    def __init__(self, able: Callable[[Target], Capabilities] | None, health: Health) -> None:
        """`able` says what a target can do; without it all can do everything."""
        self._able = able
        self._health = health
        self._floors: dict[str, Floor] = {}

    def renew(self) -> None:
        """Ask anew what targets can do."""
        self._floors.clear()

    def passes(
        self, model: str, targets: Sequence[Target], request: SamplingRequest, streaming: bool
    ) -> bool:
        """Whether surely no target of this model is left out; quick."""
        if self._able is None:
            return True
        floor = self._floors.get(model)
        if floor is None:
            found = (self._known(target) for target in targets)
            floor = self._floors[model] = floor_of([able for able in found if able is not None])
        return surely_fits(request, floor, streaming)

    async def __call__(
        self,
        candidates: Sequence[Candidate],
        request: SamplingRequest,
        streaming: bool,
        *,
        model: str | None = None,
    ) -> tuple[Sequence[Candidate], list[Dropped], Mapping[Target, str]]:
        """Those that can, those that cannot, and those of the former that may be too small.

        When none can, all stay: what is wrong with each is then said by whoever asks it. `model`
        names the one whose targets the candidates are, all of them.
        """
        if self._able is None or len(candidates) < 2:
            return candidates, [], {}
        targets = [each.target for each in candidates]
        if model is not None and self.passes(model, targets, request, streaming):
            return candidates, [], {}
        sizes = Estimates(request)
        await sizes.prepare(target.model for target in targets)
        verdicts = [self._verdict(each.target, request, sizes, streaming) for each in candidates]
        pairs = list(zip(candidates, verdicts, strict=True))
        if all(verdict.fit is Fit.UNABLE for verdict in verdicts):
            return candidates, [], {}
        return (
            [each for each, verdict in pairs if verdict.fit is not Fit.UNABLE],
            [
                Dropped(each, self._health.available(each.target)[0], verdict.why)
                for each, verdict in pairs
                if verdict.fit is Fit.UNABLE
            ],
            {each.target: verdict.why for each, verdict in pairs if verdict.fit is Fit.TIGHT},
        )

    def _verdict(
        self, target: Target, request: SamplingRequest, sizes: Estimates, streaming: bool
    ) -> Verdict:
        able = self._known(target)
        return GOOD if able is None else fit(request, target, able, sizes, streaming=streaming)

    def _known(self, target: Target) -> Capabilities | None:
        # A target that cannot be reached at all is passed over by the pool, which says why.
        with suppress(ConfigurationError):
            return None if self._able is None else self._able(target)
        return None


def of_provider(
    request: SamplingRequest,
    candidates: Sequence[Candidate],
    providers: Collection[str],
    health: Health,
    *,
    limited: bool = False,
) -> tuple[Sequence[Candidate], list[Dropped]]:
    """The candidates of the provider that the request insists on, if it does, and the others.

    Raises InvalidRequest when there is no such provider, or none of its targets among them. A
    `limited` caller learns no names of providers and targets from it.
    """
    if PROVIDER not in request.metadata:
        return candidates, []
    name = request.metadata[PROVIDER]
    if limited and not any(each.target.provider == name for each in candidates):
        problem = f"no target of this model is of a provider {str(name)[:_MOST_SHOWN]!r}"
        raise InvalidRequest.of([Problem(_PATH, problem)])
    if not isinstance(name, str) or name not in providers:
        raise InvalidRequest.of([Problem(_PATH, _unknown(name, providers))])
    mine = [each for each in candidates if each.target.provider == name]
    # Whoever names a provider and no model asks for the default's targets there, if it has any.
    own = [each for each in mine if not each.only_if_hinted]
    kept = mine if own else [each._replace(only_if_hinted=False) for each in mine]
    if not kept:
        there = ", ".join(str(each.target) for each in candidates)
        raise InvalidRequest.of(
            [Problem(_PATH, f"{name!r} serves none of the targets of this model; it has {there}")]
        )
    chosen = {each.target for each in kept}
    return kept, [
        Dropped(each, health.available(each.target)[0], f"is not of the provider {name!r}")
        for each in candidates
        if each.target not in chosen and not each.only_if_hinted
    ]


def _unknown(name: object, providers: Collection[str]) -> str:
    if not isinstance(name, str):
        return f"is {type(name).__name__}; give the name of a provider"
    near = difflib.get_close_matches(name, sorted(providers), 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(providers))}"
    return f"there is no provider {name!r}; {remedy}"
