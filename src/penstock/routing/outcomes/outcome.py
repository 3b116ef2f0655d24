"""What the router learns from: one outcome for each request that a target has answered."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from penstock.contract.ports import Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Source(Enum):
    """Who says how good an answer was."""

    FEEDBACK = "feedback"
    """A person or a program that knows: `record_feedback`."""
    VALIDATION = "validation"
    """Structured output or tool calls that were checked."""
    JUDGE = "judge"
    """Another model."""
    RETRY = "retry"
    """The caller has asked again, edited the answer or gone to a larger model."""


WEIGHTS = {Source.FEEDBACK: 1.0, Source.VALIDATION: 1.0, Source.JUDGE: 0.5, Source.RETRY: 0.3}
"""What a label of each source counts."""


class Quality(msgspec.Struct, frozen=True):
    """How good an answer was, from 0 to 1, and who says so."""

    score: float
    source: Source = Source.FEEDBACK

    @property
    def weight(self) -> float:
        """What it counts beside other labels."""
        return WEIGHTS[self.source]


class Logged(msgspec.Struct, frozen=True):
    """What was thought when the target was chosen: what a policy is judged by afterwards."""

    tick: int
    """The number of the decision; evidence ages by it."""
    propensity: float
    """How likely it was that this target would be chosen."""
    learned: Target
    """The target that the estimates put first."""
    static: Target
    """The target that comes first as configured."""
    predicted: tuple[float, float, float]
    """The quality expected of the target itself, of the learned choice and of the static one."""
    spent: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What cost and time took off the utility of the same three."""
    intelligence: float = 1.0
    """What quality counts in that utility."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request at one target; none of its text.

    Whatever is None is not known, and teaches nothing. A request that failed has no quality: that
    a provider was not there says nothing about its model.
    """

    target: Target
    features: NDArray[np.float32]
    prompt_tokens: int
    quality: Quality | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: float | None = None
    first_token_ms: float | None = None
    logged: Logged | None = None
    given: bool = False
    """Whether it is of a file of outcomes: the target was not chosen by what was thought of it."""
    key: str | None = None
    """Whose request it was."""
    label: tuple[int, str] | None = None
    """Which label it has, by the number of the outcome and the source: one that was changed comes a
    second time, and then counts in the place of what it was."""
