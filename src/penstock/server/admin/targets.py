"""The part of the admin API that is about who answers: providers, targets, models and routes."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

import msgspec

from penstock.contract.errors import ConfigurationError
from penstock.contract.options import ModelPreferences
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from penstock.engine.health import ProviderHealth
from penstock.providers.registry import unknown_kind
from penstock.server.admin.redacted import masked, without_credentials
from penstock.server.admin.requests import (
    DownOrder,
    ProviderPath,
    ProvidersQuery,
    RouteOrder,
    UpOrder,
)
from penstock.server.admin.responses import (
    ConfigAnswer,
    HealthInfo,
    MarkedTargets,
    ModelInfo,
    ModelList,
    ProviderInfo,
    ProviderList,
    RouteAnswer,
    TargetList,
)
from penstock.server.admin.views import merged_targets, route_answer, target_list
from penstock.server.errors import Failure, HttpProblem
from penstock.server.process.peers import Question, Siblings
from penstock.server.typed_endpoints import Call, Nothing


async def providers(engine: Engine, call: Call[Nothing, ProvidersQuery, Nothing]) -> ProviderList:
    """The configured providers; with `check`, each is asked now whether it answers."""
    if call.query.check:
        return ProviderList(provider_list(engine, await engine.provider_health()))
    return ProviderList(provider_list(engine))


def provider_list(
    engine: Engine, health: Sequence[ProviderHealth] | None = None
) -> list[ProviderInfo]:
    """The configured providers with their health; None: as far as it is known already."""
    known = engine.last_provider_health() if health is None else health
    found = {each.provider: each for each in known if each.evidence is not None}
    return [_provider(engine, name, found.get(name)) for name in _names(engine)]


async def provider(engine: Engine, call: Call[ProviderPath, Nothing, Nothing]) -> ProviderInfo:
    """One provider, asked now whether it answers."""
    name = call.path.name
    if name not in engine.config.providers:
        said = unknown_kind(name, set(_names(engine)))
        raise HttpProblem(Failure(404, said, code="not_found"))
    (health,) = await engine.provider_health([name])
    return _provider(engine, name, health)


class Targets:
    """The targets as all workers see them."""

    def __init__(self, siblings: Siblings) -> None:
        """These are the other workers."""
        self._siblings = siblings

    async def targets(self, engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> TargetList:
        """Every target that was asked so far: its breaker, why it is left alone, and its load."""
        return await self.all(engine)

    async def mark_down(
        self, engine: Engine, call: Call[Nothing, Nothing, DownOrder]
    ) -> MarkedTargets:
        """Leave targets alone until they are marked up; requests go to the next of their model.

        A provider or a pattern also covers targets that are asked for later.
        """
        order = call.body
        with _refusing():
            matched = engine.mark_down(order.target, order.reason, seen=await self._seen())
        told = [order.target, order.reason, *matched]
        return _marked(await self._all(engine, Question.DOWN, told), matched)

    async def mark_up(self, engine: Engine, call: Call[Nothing, Nothing, UpOrder]) -> MarkedTargets:
        """Ask targets again, whatever was held against them."""
        order = call.body
        with _refusing():
            matched = engine.mark_up(order.target, seen=await self._seen())
        return _marked(await self._all(engine, Question.UP, [order.target, *matched]), matched)

    async def _seen(self) -> list[str]:
        """The targets that other workers know."""
        answers = await self._siblings.ask(Question.TARGETS)
        lists = [msgspec.convert(each, TargetList) for each in answers]
        return [target.target for part in lists for target in part.targets]

    async def all(self, engine: Engine) -> TargetList:
        """The targets of all workers."""
        return await self._all(engine, Question.TARGETS)

    async def _all(self, engine: Engine, question: Question, argument: object = None) -> TargetList:
        answers = await self._siblings.ask(question, argument)
        others = [msgspec.convert(each, TargetList) for each in answers]
        return merged_targets([target_list(engine), *others])


async def models(engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> ModelList:
    """The models of the configuration, with the targets that serve them."""
    return ModelList(model_list(engine))


def model_list(engine: Engine) -> list[ModelInfo]:
    """The models of the configuration."""
    default = engine.config.default_model
    return [
        ModelInfo(name, name == default, model.routing, list(model.targets))
        for name, model in engine.config.models.items()
    ]


async def route(engine: Engine, call: Call[Nothing, Nothing, RouteOrder]) -> RouteAnswer:
    """Which targets would be tried in which order, and why; no call is made."""
    order = call.body
    preferences = ModelPreferences(
        hints=tuple(order.hints),
        cost=None if isinstance(order.cost, msgspec.UnsetType) else order.cost,
        speed=None if isinstance(order.speed, msgspec.UnsetType) else order.speed,
        intelligence=(
            None if isinstance(order.intelligence, msgspec.UnsetType) else order.intelligence
        ),
    )
    decision = await engine.route(
        order.prompt,
        model=order.model or None,
        model_preferences=preferences,
        caller=Caller(key=order.key or None),
    )
    return route_answer(decision)


async def config(engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> ConfigAnswer:
    """The configuration that is in force, without its secrets."""
    return ConfigAnswer(masked(engine.config))


def _names(engine: Engine) -> Sequence[str]:
    return list(engine.config.providers)


def _provider(engine: Engine, name: str, health: ProviderHealth | None) -> ProviderInfo:
    configured = engine.config.providers[name]
    return ProviderInfo(
        name=name,
        kind=configured.kind or name,
        url=None if configured.url is None else without_credentials(configured.url),
        health=None
        if health is None
        else HealthInfo(
            health.status,
            health.latency_ms,
            [model.id for model in health.models],
            health.error,
            health.checked_at,
            health.evidence,
        ),
    )


def _marked(targets: TargetList, matched: list[str]) -> MarkedTargets:
    return MarkedTargets(targets.targets, targets.background, matched)


@contextlib.contextmanager
def _refusing() -> Generator[None]:
    """Name the field at fault where no target is covered."""
    try:
        yield
    except ConfigurationError as error:
        raise HttpProblem(Failure(404, error.message, code="not_found", param="target")) from error
