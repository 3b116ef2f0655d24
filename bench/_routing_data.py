"""What the routing bench evaluates on: a set of outcomes, here a made-up one."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.contract.ports import Target
from penstock.providers.embedded.embeddings import TableEmbedder
from penstock.routing.learning.features import FeatureMaker

Floats = NDArray[np.float64]


class Outcomes(NamedTuple):
    """What every model did with every prompt; a row is a prompt, a column a model."""

    name: str
    prompts: list[str]
    targets: list[Target]
    scores: Floats
    costs: Floats

    def sample(self, most: int) -> Outcomes:
        """Some of the prompts, the same ones in every run."""
        if len(self.prompts) <= most:
            return self
        rows = np.random.default_rng(0).permutation(len(self.prompts))[:most]
        prompts: list[str] = [self.prompts[row] for row in rows.tolist()]
        return self._replace(prompts=prompts, scores=self.scores[rows], costs=self.costs[rows])


def made_up(number: int) -> Outcomes:
    """Prompts of four kinds and three models, each of which is good at some of them."""
    dice = random.Random(7)
    words = {
        "sums": [
            "add",
            "multiply",
            "divide",
            "number",
            "total",
            "each",
            "apples",
            "price",
            "percent",
            "how",
            "many",
        ],
        "law": [
            "court",
            "contract",
            "statute",
            "plaintiff",
            "liable",
            "appeal",
            "clause",
            "damages",
            "rule",
            "held",
        ],
        "code": [
            "def",
            "return",
            "loop",
            "list",
            "index",
            "error",
            "function",
            "class",
            "import",
            "test",
        ],
        "talk": [
            "story",
            "friend",
            "weather",
            "poem",
            "letter",
            "happy",
            "morning",
            "garden",
            "travel",
            "song",
        ],
    }
    skill = {  # the chance of a right answer, by kind, and dollars a thousand characters
        "large": ((0.9, 0.85, 0.9, 0.9), 0.01),
        "coder": ((0.6, 0.3, 0.9, 0.5), 0.002),
        "small": ((0.35, 0.4, 0.3, 0.85), 0.0005),
    }
    prompts: list[str] = []
    scores, costs = np.zeros((number, len(skill))), np.zeros((number, len(skill)))
    for row in range(number):
        kind = dice.randrange(len(words))
        chosen = dice.choices(list(words.values())[kind], k=dice.randrange(8, 60))
        digits = [str(dice.randrange(99)) for _ in range(9)] if kind == 0 else []
        prompts.append(" ".join(dice.sample(chosen + digits, len(chosen) + len(digits))) + "?")
        for column, (chances, price) in enumerate(skill.values()):
            scores[row, column] = float(dice.random() < chances[kind])
            costs[row, column] = price * (0.1 + len(prompts[-1]) / 1000)
    targets = [Target("bench", model) for model in skill]
    return Outcomes("made up", prompts, targets, scores, costs)


def feature_rows(prompts: list[str]) -> NDArray[np.float32]:
    """What the router knows of each prompt."""
    maker = FeatureMaker(TableEmbedder())
    return np.asarray([maker.vector(prompt) for prompt in prompts])


def tokens(prompt: str) -> int:
    """The size of a prompt, as the costs of the sets were estimated by."""
    return len(prompt) // 4
