"""Routers, and which labels they were taught: one that is given again is not another one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from penstock.routing.learned import LearnedRouter
from penstock.routing.store import Event

MOST_LABELS = 20_000
"""Scores that are remembered: a new one of an older label counts beside what it was."""


class Taught:
    """The routers of all models that learn, by model."""

    def __init__(self, routers: Mapping[str, LearnedRouter]) -> None:
        """They have been taught nothing yet."""
        self.routers = routers
        self._scores: OrderedDict[tuple[int, str], float] = OrderedDict()

    def learn(self, event: Event) -> None:
        """Take in an event, unless its model learns no more."""
        router = self.routers.get(event.model)
        if router is None:
            return
        outcome, label = event.outcome, event.label
        if label is not None and outcome.quality is not None:
            before = self._scores.pop(label, None)
            self._scores[label] = outcome.quality.score
            if len(self._scores) > MOST_LABELS:
                self._scores.popitem(last=False)
            if before is not None:
                outcome = msgspec.structs.replace(outcome, instead_of=before)
        router.learn(outcome)
