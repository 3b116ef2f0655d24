"""From the model that a caller names to the targets that serve it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from penstock.contract.checks.lengths import too_long
from penstock.contract.errors import ConfigurationError, InvalidRequest, ModelNotFound, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import Capabilities, ModelPreferences
from penstock.contract.ports import Health, RouteDecision, Target
from penstock.routing.explanation import Dropped, explained
from penstock.routing.filters import Filter, of_provider
from penstock.routing.forecast import Forecast, Outlook
from penstock.routing.ranking import (
    AllAvailable,
    Candidate,
    Placed,
    distinct,
    judged,
    order,
    tried,
)
from penstock.routing.sessions import Session, Sessions, session_of
from penstock.routing.strategies import ORDERED, Strategy, has_priorities, ignores_priorities


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


def _folded(target: Target) -> Target:
    return Target(target.provider, target.model.lower())


class Ways(NamedTuple):
    """How targets are chosen, beside their configured order."""

    able: Callable[[Target], Capabilities] | None = None
    """What a target can do; without it all can do everything. May raise ConfigurationError."""
    strategies: Mapping[str, Strategy] = {}
    """By the name of the model; one that is not in it goes by its configured order."""
    sticky: Collection[str] = ()
    """Models whose sessions stay with the target that has served them."""
    sessions: Sessions | None = None
    outlook: Outlook | None = None
    """What explanations tell of targets that no strategy has looked at."""
    preferred: Strategy | None = None
    """Orders the targets of a model without a strategy when a request has priorities."""
    priorities_off: Collection[str] = ()
    """Models that do not use the priorities of a request."""


class _Ranking(NamedTuple):
    placed: list[Placed]
    dropped: list[Dropped]
    strategy: Strategy | None
    session: Session | None
    served: Target | None
    unused: str
    """Why the request's priorities were not used; empty when they were, or when it has none."""
    unable: Sequence[Dropped] = ()
    """What cannot serve the request and is in `placed` all the same, for nothing else is there."""


def _without_priorities(request: SamplingRequest) -> SamplingRequest:
    hints = () if request.model_preferences is None else request.model_preferences.hints
    return msgspec.structs.replace(request, model_preferences=ModelPreferences(hints))


def _joined(rankings: Sequence[_Ranking]) -> _Ranking:
    """One ranking of several models, in the order of the models.

    As within one model, targets that may not be asked now, or may be too small, rank last; a model
    that cannot serve the request is passed over if another one can.
    """
    able = [each for each in rankings if not each.unable] or rankings
    placed: dict[Target, Placed] = {}
    for ranking in able:
        for each in ranking.placed:
            placed.setdefault(each.candidate.target, each)
    dropped = [
        each
        for ranking in rankings
        for each in (*ranking.dropped, *(() if ranking in able else ranking.unable))
    ]
    inorder = sorted(placed.values(), key=lambda each: (each.unavailable, each.tight))
    return rankings[0]._replace(placed=inorder, dropped=dropped)


class TargetTable:
    """Models in the order of their configured targets; `provider/model` works without an alias."""

    def __init__(
        self,
        models: Mapping[str, Sequence[Target]],
        providers: Collection[str],
        default: str | None,
        *,
        refused: Callable[[Target], bool] = lambda target: False,
        owner: Callable[[str], str | None] = lambda model: None,
        canonical: Callable[[Target], Target] = lambda target: target,
        health: Health | None = None,
        ways: Ways | None = None,
    ) -> None:
        """`providers` are all names that a target may begin with.

        `refused` says which targets must be configured and may not just be named by a caller.
        `owner` is the provider whose model has such a name, for suggestions.
        `canonical` gives all spellings of a target the same name.
        Without `health` every target may be asked at any time.
        """
        self._refused = refused
        self._owner = owner
        self._health = health or AllAvailable()
        self._ways = ways or Ways()
        self._filter = Filter(self._ways.able, self._health)
        self._configured = {target for targets in models.values() for target in targets}
        self._canonical = canonical
        self._spelled = {_folded(canonical(target)): target for target in self._configured}
        self._models = models
        self._providers = providers
        self._default = default
        self._candidates = {name: distinct(_of(name, models[name])) for name in models}
        mine = self._candidates.get(default or "", ())
        others = (_of(name, models[name], only_if_hinted=True) for name in models)
        self._hinted = distinct(chain(mine, chain.from_iterable(others)))
        self._plain = {
            name: tuple(each.target for each in candidates)
            for name, candidates in self._candidates.items()
            if name not in self._ways.strategies and name not in self._ways.sticky
        }

    async def rank(
        self,
        request: SamplingRequest,
        *,
        request_id: str | None = None,
        key: str | None = None,
        streaming: bool = False,
        told: Callable[[RouteDecision], None] | None = None,
    ) -> Sequence[Target]:
        """The targets to try in order, as `explain` explains them.

        With a `request_id` the strategy decides: then chance may put another one first.
        """
        plain = self._as_configured(request, streaming)
        if plain is not None:
            return plain
        ranking = await self._rank(request, request_id=request_id, key=key, streaming=streaming)
        sessions = self._ways.sessions
        if sessions is not None and ranking.session is not None and request_id is not None:
            sessions.begin(request_id, ranking.session)
        if told is not None and (ranking.strategy is not None or ranking.unused):
            told(self._explained(request, ranking))
        return tried(ranking.placed, request.model_preferences)

    async def explain(
        self, request: SamplingRequest, *, key: str | None = None, streaming: bool = False
    ) -> RouteDecision:
        """The targets in their order: those that may be asked, then by hints, then as configured.

        Hints choose among the targets of the model that is asked for. When none is, they may also
        choose targets of any other configured model.
        """
        ranking = await self._rank(request, request_id=None, key=key, streaming=streaming)
        outlook, forecasts = self._ways.outlook, {}
        if outlook is not None:
            targets = [each.candidate.target for each in ranking.placed if each.opinion is None]
            forecasts = dict(zip(targets, await outlook(request, targets), strict=True))
        return self._explained(request, ranking, forecasts)

    def renew(self) -> None:
        """A provider was replaced: ask anew what targets can do."""
        self._filter.renew()

    def _as_configured(
        self, request: SamplingRequest, streaming: bool
    ) -> tuple[Target, ...] | None:
        """The configured order, where nothing speaks for another: so it is for most requests."""
        name = request.model or self._default or ""
        targets = None if request.fallback_models else self._plain.get(name)
        preferences = request.model_preferences
        if targets is None or (preferences is not None and preferences.hints):
            return None
        if "_provider" in request.metadata:
            return None
        if len(targets) > 1:
            if has_priorities(preferences):
                return None
            if not self._filter.passes(name, targets, request, streaming):
                return None
            available = self._health.available
            for target in targets:
                if not available(target)[0]:
                    return None
        return targets

    async def _rank(
        self, request: SamplingRequest, *, request_id: str | None, key: str | None, streaming: bool
    ) -> _Ranking:
        """The targets of the model; then those of each of its fallbacks."""
        if not request.fallback_models:
            return await self._rank_model(
                request, request_id=request_id, key=key, streaming=streaming
            )
        rankings: list[_Ranking] = []
        for name in (request.model, *request.fallback_models):
            one = msgspec.structs.replace(request, model=name, fallback_models=())
            # Only the first is a choice to learn from: the others are the order of the caller.
            identifier = None if rankings else request_id
            rankings.append(
                await self._rank_model(one, request_id=identifier, key=key, streaming=streaming)
            )
        return _joined(rankings)

    async def _rank_model(
        self, request: SamplingRequest, *, request_id: str | None, key: str | None, streaming: bool
    ) -> _Ranking:
        name = request.model or self._default or ""
        asked, dropped = of_provider(
            request, self._asked(request), self._providers, self._health, limited=key is not None
        )
        whole = name if asked is self._candidates.get(name) else None
        kept, unable, tight = await self._filter(asked, request, streaming, model=whole)
        session = session_of(request, name, key) if name in self._ways.sticky else None
        served = self._served(session)
        preferences = request.model_preferences
        placed = order(kept, preferences, self._health, tight=tight, session=served)
        restored: Sequence[Dropped] = ()
        if unable and not tried(placed, preferences):
            # Whoever is left was not asked for: the pool says what is wrong with the others.
            restored, unable = unable, []
            placed = order(asked, preferences, self._health, tight=tight, session=served)
        strategy, unused = self._strategy(name, request)
        if unused:
            request = _without_priorities(request)
        if strategy is not None:
            placed = await judged(strategy, placed, request, request_id=request_id, key=key)
        return _Ranking(placed, [*unable, *dropped], strategy, session, served, unused, restored)

    def _strategy(self, name: str, request: SamplingRequest) -> tuple[Strategy | None, str]:
        """What orders the targets of a model for this request, and why not by its priorities."""
        ways = self._ways
        strategy = ways.strategies.get(name)
        if not has_priorities(request.model_preferences):
            return strategy, ""
        if name in ways.priorities_off:
            return strategy, f'`priorities` is "off" for the model {name!r}'
        if strategy is not None and ignores_priorities(strategy):
            return strategy, f'`routing` of the model {name!r} is "{strategy.name}"'
        return strategy or ways.preferred, ""

    def _explained(
        self,
        request: SamplingRequest,
        ranking: _Ranking,
        forecasts: Mapping[Target, Forecast] = {},
    ) -> RouteDecision:
        return explained(
            request.model,
            ranking.placed,
            request.model_preferences,
            strategy=ORDERED if ranking.strategy is None else ranking.strategy.name,
            dropped=ranking.dropped,
            forecasts=forecasts,
            session=ranking.served,
            unused=ranking.unused,
        )

    def _asked(self, request: SamplingRequest) -> Sequence[Candidate]:
        preferences = request.model_preferences
        name = request.model or self._default or ""
        targets = self.resolve(request.model)
        if not request.model and (
            (preferences is not None and preferences.hints) or "_provider" in request.metadata
        ):
            return self._hinted
        if name in self._candidates:
            return self._candidates[name]
        return tuple(_of(name, targets))

    def _served(self, session: Session | None) -> Target | None:
        sessions = self._ways.sessions
        return None if sessions is None or session is None else sessions.target(session)

    def resolve(self, model: str | None) -> Sequence[Target]:
        """The targets of an alias, or the one that `provider/model` spells out."""
        name = model or self._default
        if name is None:
            raise ModelNotFound("no model was given and the configuration names none in [models]")
        if name in self._models:
            return self._models[name]
        if problem := too_long(name):
            raise InvalidRequest.of([Problem("model", problem)])
        provider, separator, upstream = name.partition("/")
        if separator and upstream and provider in self._providers:
            target = Target(provider, upstream)
            if target not in self._configured:
                # Another spelling must not have another price, or none of the budgets.
                target = self._canonical(target)
                target = self._spelled.get(_folded(target), target)
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
            owner = self._owner(name)
            if not near and owner in self._providers:
                near = [f"{owner}/{name}"]
        if near:
            return f"{what}; did you mean {near[0]!r}?"
        hints = [f"known: {', '.join(known)}"] if known else []
        hints += ["or write provider/model"] if provider is None else []
        return "; ".join([what, *hints])
