"""How the configuration wants targets to be chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.config.settings import (
    Config,
)
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.providers.registry import callable_names
from penstock.routing.router import parse_target

if TYPE_CHECKING:
    pass

from typing import TYPE_CHECKING

from penstock.contract.ports import Health
from penstock.providers.registry import model_name, owner_of
from penstock.routing.forecast import Outlook, Price
from penstock.routing.latency_history import Experience
from penstock.routing.router import TargetTable, Ways
from penstock.routing.sessions import Sessions
from penstock.routing.strategies import ORDERED, Cheapest, Fastest, Preferred, Strategy
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import RequestRecord

if TYPE_CHECKING:
    from penstock.routing.learning.service import Learning


def ways_of(
    config: Config,
    able: Callable[[Target], Capabilities],
    price: Price,
    *,
    learning: Learning | None = None,
    earlier: Ways | None = None,
) -> Ways:
    """How the models of this configuration choose; `earlier` ways hand on what they have seen.

    `learning` is there when a model learns.
    """
    experience = earlier.outlook.experience if earlier and earlier.outlook else Experience()
    sessions = earlier.sessions if earlier and earlier.sessions else Sessions()
    outlook = Outlook(experience, price)
    return Ways(
        able,
        {
            name: _strategy(name, model.routing, outlook, learning)
            for name, model in config.models.items()
            if model.routing != ORDERED
        },
        frozenset(name for name, model in config.models.items() if model.sticky),
        sessions,
        outlook,
        Preferred(outlook) if _reorders(config) else None,
        frozenset(name for name, model in config.models.items() if model.priorities == "off"),
    )


def table_of(config: Config, health: Health, ways: Ways, *, model_files: bool) -> TargetTable:
    """The models of this configuration; `model_files`: a caller may name files of models."""
    return TargetTable(
        {
            name: tuple(parse_target(target) for target in model.targets)
            for name, model in config.models.items()
        },
        callable_names(config.providers),
        config.default_model,
        refused=lambda target: not model_files and target.model.endswith(".gguf"),
        owner=owner_of,
        canonical=lambda target: canonical(config, target),
        health=health,
        ways=ways,
    )


def canonical(config: Config, target: Target) -> Target:
    """The target under the one name that its model has there."""
    configured = config.providers.get(target.provider)
    kind = (configured and configured.kind) or target.provider
    return Target(target.provider, model_name(kind, target.model))


def watch(hooks: Hooks, ways: Ways) -> Callable[[], None]:
    """Have the ways see the requests that they learn from; returns what ends that.

    Where nothing is learnt from them nobody listens, and no record is made for it.
    """
    ends = [hooks.subscribe(each, only=(RequestRecord,)) for each in _listeners(ways)]

    def end() -> None:
        for each in ends:
            each()

    return end


def _listeners(ways: Ways) -> Iterator[Experience | Sessions]:
    if (ways.strategies or ways.preferred) and ways.outlook is not None:
        yield ways.outlook.experience
    if ways.sticky and ways.sessions is not None:
        yield ways.sessions


def _reorders(config: Config) -> bool:
    """Whether a request's priorities can order the targets of a model without a strategy."""
    models = config.models.values()
    using = [each for each in models if each.routing == ORDERED and each.priorities == "on"]
    # Hints choose among the targets of all models.
    return bool(using) and sum(len(each.targets) for each in models) > 1


def _strategy(model: str, way: str, outlook: Outlook, learning: Learning | None) -> Strategy:
    if way == Cheapest.name:
        return Cheapest(outlook)
    if way == Fastest.name:
        return Fastest(outlook)
    if learning is None:
        raise RuntimeError(f"the model {model!r} learns, and there is nothing to learn with")
    # Only here, for it takes numpy, which takes longer to import than all the rest.
    from penstock.routing.learning.strategy import Learned

    return Learned(model, learning, outlook)


def targets_of(config: Config) -> Mapping[str, Sequence[str]]:
    """The configured models with their targets, as they are written."""
    return {name: model.targets for name, model in config.models.items()}
