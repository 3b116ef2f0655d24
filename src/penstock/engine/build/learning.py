"""Build learned routing and its store of outcomes from the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from penstock.config.settings import Config
from penstock.contract.ports import Target
from penstock.routing.catalogue import family_of
from penstock.routing.router import parse_target
from penstock.storage.sqlite.guard import StoreGuards
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import RequestContent, RequestRecord

if TYPE_CHECKING:
    from penstock.routing.index.exact import VectorIndex
    from penstock.routing.index.pgvector_table import PgvectorTable
    from penstock.routing.learning.features import FeatureMaker
    from penstock.routing.learning.router import LearnedRouter
    from penstock.routing.learning.service import Learning

from typing import TYPE_CHECKING

from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded.install import REMEDY

if TYPE_CHECKING:
    from penstock.routing.learning.features import Embedder, FeatureMaker
    from penstock.routing.outcomes.sqlite import SqliteOutcomes
from penstock.engine.build.storage import store_guards


def features_of(config: Config, embedder: Embedder | None = None) -> FeatureMaker:
    """What this configuration knows of prompts; raises ConfigurationError without numpy.

    `embedder` is for those that are not the bundled table of words.
    """
    # They bring numpy along, which only whoever learns needs.
    try:
        from penstock.routing.learning.features import FeatureMaker
    except ImportError as error:
        raise ConfigurationError(
            "learned routing takes numpy, which is not installed; run: pip install "
            f'"penstock[routing]", or, for the bundled word vectors too: {REMEDY}'
        ) from error
    from penstock.providers.embedded.embeddings import MODEL, TableEmbedder

    return FeatureMaker(TableEmbedder() if config.routing.embedder == MODEL else embedder)


def embedder_name(config: Config) -> str:
    """What distinguishes the embedder's vectors: of a model its targets, which may change."""
    embedder = config.routing.embedder
    model = config.models.get(embedder)
    return embedder if model is None else ", ".join(model.targets)


def outcomes_of(config: Config, stores: StoreGuards | None = None) -> SqliteOutcomes:
    """Where what became of requests is kept."""
    from penstock.routing.outcomes.sqlite import SqliteOutcomes

    storage = config.storage
    return SqliteOutcomes(
        storage.path,
        synchronous=storage.synchronous,
        keep=config.routing.keep_outcomes,
        guard=(stores or store_guards()).of(storage.path),
    )


Embed: TypeAlias = Callable[[str, str], Awaitable[Sequence[float]]]
"""Gives the vector of a text by a model; both by name."""


def learns(config: Config) -> list[str]:
    """The models of this configuration that learn."""
    return [name for name, model in config.models.items() if model.routing == "learned"]


def learning_of(config: Config, embed: Embed, stores: StoreGuards | None = None) -> Learning | None:
    """What the models of this configuration learn with; None when none of them does."""
    models = learns(config)
    if not models:
        return None
    maker, remote = features_of(config), None
    from penstock.providers.embedded.embeddings import MODEL
    from penstock.routing.learning.prompt_features import Reader, Remote
    from penstock.routing.learning.service import Learning, Settings

    settings = config.routing
    shared = _shared(config)
    if settings.embedder != MODEL:
        remote = Remote(embedder_name(config), partial(embed, settings.embedder))
    return Learning(
        models,
        lambda model: _router(config, model, maker, _index(config, model, shared)),
        Reader(maker, remote),
        outcomes_of(config, stores),
        Settings(
            settings.isolate_keys,
            settings.keep_prompts,
            settings.keep_days,
            rules=(
                settings,
                config.storage.path,
                {name: config.models[name].targets for name in models},
            ),
        ),
        shared=shared,
    )


def watch_learning(hooks: Hooks, learning: Learning | None) -> Callable[[], None]:
    """Have it hear of requests; returns what ends that."""
    if learning is None:
        return lambda: None
    return hooks.subscribe(learning.heard, content=True, only=(RequestContent, RequestRecord))


def _shared(config: Config) -> PgvectorTable | None:
    """The table that the indexes are in, if they are in one."""
    url = config.routing.index_url
    if config.routing.index != "pgvector" or url is None:
        return None
    from penstock.routing.index.pgvector_table import PgvectorTable
    from penstock.routing.learning.features import SIZE

    return PgvectorTable(url.get_secret_value(), SIZE)


def _index(
    config: Config, model: str, shared: PgvectorTable | None
) -> Callable[[int], VectorIndex]:
    if shared is not None:
        # Made now: where nothing is left to learn, the table must hear that, too.
        index = shared.index(model)
        return lambda _: index
    from penstock.routing.index.graph import index_for

    return index_for(config.routing.memory, config.routing.index)


def _router(
    config: Config, model: str, maker: FeatureMaker, index: Callable[[int], VectorIndex]
) -> LearnedRouter:
    from penstock.routing.learning.model import LearnerSettings
    from penstock.routing.learning.router import LearnedRouter, RoutingSettings

    settings = config.routing
    targets: list[Target] = [parse_target(each) for each in config.models[model].targets]
    return LearnedRouter(
        maker,
        RoutingSettings(
            learner=LearnerSettings(
                capacity=settings.memory,
                priors={target: family_of(target.model).quality for target in targets},
            ),
            floor=settings.explore,
            isolated=settings.isolate_keys,
            in_force=settings.trust == "always",
            seed=settings.seed,
        ),
        index,
    )
