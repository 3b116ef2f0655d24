"""From the model that a caller names to the targets that serve it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain

from penstock.contract.errors import ConfigurationError, ModelNotFound
from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Health, RouteDecision, Target
from penstock.routing.ranking import (
    AllAvailable,
    Candidate,
    Placed,
    Scorer,
    distinct,
    explained,
    order,
    tried,
)


def parse_target(text: str) -> Target:
    """Read `provider/model`; the model's own name may hold further slashes."""
    provider, separator, model = text.partition("/")
    if not (provider and separator and model):
        raise ConfigurationError(f"{text!r} is not a target; write provider/model")
    return Target(provider, model)


def _of(
    model: str, targets: Sequence[Target], *, only_if_hinted: bool = False
) -> Iterator[Candidate]:
    for place, target in enumerate(targets, 1):
        yield Candidate(target, model, place, only_if_hinted)


class TargetTable:
    """Models in the order of their configured targets; `provider/model` works without an alias."""

    def __init__(
        self,
        models: Mapping[str, Sequence[Target]],
        providers: Collection[str],
        default: str | None,
        *,
        refused: Callable[[Target], bool] = lambda target: False,
        health: Health | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        """`providers` are all names that a target may begin with.

        `refused` tells which targets must be configured and may not just be named by a caller.
        Without `health` every target may be asked at any time, and without a `scorer` priorities
        change nothing.
        """
        self._refused = refused
        self._health = health or AllAvailable()
        self._scorer = scorer
        self._configured = {target for targets in models.values() for target in targets}
        self._models = models
        self._providers = providers
        self._default = default
        self._candidates = {name: distinct(_of(name, models[name])) for name in models}
        mine = self._candidates.get(default or "", ())
        others = (_of(name, models[name], only_if_hinted=True) for name in models)
        self._hinted = distinct(chain(mine, chain.from_iterable(others)))

    async def rank(self, request: SamplingRequest) -> Sequence[Target]:
        """The targets to try in order, as `explain` explains them."""
        return tried(self._order(request), request.model_preferences)

    async def explain(self, request: SamplingRequest) -> RouteDecision:
        """The targets in their order: those that may be asked, then by hints, then as configured.

        Hints choose among the targets of the model that is asked for. When none is, they may also
        choose targets of any other configured model.
        """
        return explained(request.model, self._order(request), request.model_preferences)

    def _order(self, request: SamplingRequest) -> list[Placed]:
        preferences = request.model_preferences
        name = request.model or self._default or ""
        targets = self.resolve(request.model)
        if not request.model and preferences is not None and preferences.hints:
            candidates = self._hinted
        elif name in self._candidates:
            candidates = self._candidates[name]
        else:
            candidates = tuple(_of(name, targets))
        return order(candidates, preferences, self._health, self._scorer)

    def resolve(self, model: str | None) -> Sequence[Target]:
        """The targets of an alias, or the one that `provider/model` spells out."""
        name = model or self._default
        if name is None:
            raise ModelNotFound("no model was given and the configuration names none in [models]")
        if name in self._models:
            return self._models[name]
        provider, separator, upstream = name.partition("/")
        if separator and upstream and provider in self._providers:
            target = Target(provider, upstream)
            if target not in self._configured and self._refused(target):
                raise ModelNotFound(f"{name!r} is not among the configured targets", model=name)
            return (target,)
        raise ModelNotFound(self._unknown(name, provider if separator else None), model=name)

    def _unknown(self, name: str, provider: str | None) -> str:
        if provider in self._providers:
            return f"{name!r} names no model; write {provider}/model"
        if provider is not None:
            known, what = sorted(self._providers), f"there is no provider {provider!r}"
            near = difflib.get_close_matches(provider, known, 1)
        else:
            known, what = sorted(self._models), f"there is no model {name!r}"
            near = difflib.get_close_matches(name, known, 1)
        if near:
            return f"{what}; did you mean {near[0]!r}?"
        hints = [f"known: {', '.join(known)}"] if known else []
        hints += ["or write provider/model"] if provider is None else []
        return "; ".join([what, *hints])
