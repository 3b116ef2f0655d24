"""What an engine learns from its requests, and how it is told how good an answer was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.budget.stores.sqlite.guard import StoreGuards
from penstock.config.settings import Config
from penstock.contract.errors import InvalidRequest, Problem, shown
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.contract.spelling import suggests_names
from penstock.engine.running import is_generated_id
from penstock.routing.catalogue import family_of
from penstock.routing.targets import parse_target
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import RequestContent, RequestRecord
from penstock.wiring import embedder_name, features_of, outcomes_of

if TYPE_CHECKING:
    from penstock.routing.features import FeatureMaker
    from penstock.routing.index import VectorIndex
    from penstock.routing.learned import LearnedRouter
    from penstock.routing.learning import Learning
    from penstock.routing.pgvector_table import PgvectorTable

Embed: TypeAlias = Callable[[str, str], Awaitable[Sequence[float]]]
"""Gives the vector of a text by a model; both by name."""
FeedbackSource: TypeAlias = Literal["feedback", "validation", "judge", "retry"]

_LONGEST_ID = 200


class Teaching:
    """What an engine offers to those who know how good its answers were."""

    def __init__(self, learning: Learning | None) -> None:
        """None: no model of this engine learns."""
        self._learning = learning

    @property
    def learning(self) -> Learning | None:
        """What the models learn with; None when none of them does."""
        return self._learning

    @suggests_names
    async def record_feedback(
        self,
        request_id: str,
        *,
        score: float,
        source: FeedbackSource = "feedback",
        caller: Caller | None = None,
    ) -> None:
        """Say how good the answer to a request was: 0 is useless, 1 is perfect.

        `source` says who knows it: a person or program, a check, another model, or that the caller
        asked again; they count differently. Of one source the latest word counts. Raises
        InvalidRequest for a request that is not remembered: only those of models with
        `routing = "learned"` are.
        """
        problems: list[Problem] = []
        if not (isinstance(score, int | float) and 0 <= score <= 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            text = f"is {shown(score)}; give a number from 0 (useless) to 1 (perfect)"
            problems.append(Problem("score", text))
        if not is_name(request_id):
            text = f"is {shown(request_id)}; give the `request_id` of an answer"
            problems.append(Problem("request_id", text))
        elif self._learning is None:
            text = 'cannot be scored: no model of the configuration has routing = "learned"'
            problems.append(Problem("request_id", text))
        if problems or self._learning is None:
            raise InvalidRequest.of(problems)
        from penstock.routing.outcomes import Quality, Source

        try:
            quality = Quality(float(score), Source(source))
        except ValueError:
            known = ", ".join(each.value for each in Source)
            problem = Problem("source", f"is {shown(source)}; it must be one of {known}")
            raise InvalidRequest.of([problem]) from None
        key = None if caller is None else caller.key
        # An id that a caller has chosen can be guessed, or be chosen by another key as well.
        own_only = key is not None and not is_generated_id(request_id)
        await self._learning.feedback(request_id, quality, key, own_only=own_only)

    def validated(self, request_id: str, /, *, fits: bool) -> None:
        """Say whether an answer was of the type that it was read as; generators do."""
        if self._learning is not None:
            self._learning.validated(request_id, fits=fits)

    async def _go_on_learning(self, before: Teaching) -> None:
        """Begin with what another has learnt, which learns no more."""
        if self._learning is not None:
            if before._learning is not None:
                self._learning.adopt(before._learning)
            await self._learning.look(serving=True)


def is_name(text: object) -> bool:
    """Whether this can be the id of a request at all."""
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_ID:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in text)


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
    from penstock.routing.learning import Learning, Settings
    from penstock.routing.reading import Reader, Remote

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
    from penstock.routing.features import SIZE
    from penstock.routing.pgvector_table import PgvectorTable

    return PgvectorTable(url.get_secret_value(), SIZE)


def _index(
    config: Config, model: str, shared: PgvectorTable | None
) -> Callable[[int], VectorIndex]:
    if shared is not None:
        # Made now: where nothing is left to learn, the table must hear that, too.
        index = shared.index(model)
        return lambda _: index
    from penstock.routing.index_graph import index_for

    return index_for(config.routing.memory, config.routing.index)


def _router(
    config: Config, model: str, maker: FeatureMaker, index: Callable[[int], VectorIndex]
) -> LearnedRouter:
    from penstock.routing.learned import LearnedRouter, RoutingSettings
    from penstock.routing.learner import LearnerSettings

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
