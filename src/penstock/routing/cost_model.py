"""What answers of a target take: time, tokens and money, by what its recent ones took.

These follow from the target and the size of the prompt, hardly from what the prompt is about; so
they are means that forget, one set a target, and no neighbours are looked for.
"""

from __future__ import annotations

from typing import NamedTuple

TIMES = 200
"""Answers after which what one took of time counts e times less; ..."""
SIZES = 1_000
"""... and what it took of tokens and money. A few answers are ten times as long as most, so it
needs many to tell what is usual, and a provider does not grow wordy within the hour."""


class Expected(NamedTuple):
    """What an answer is expected to take; None where nothing is known."""

    cost_usd: float | None
    usual_cost_usd: float | None
    """Whatever the size of the prompt."""
    latency_ms: float | None
    output_tokens: float | None


class Line:
    """A forgetting regression on the size of the prompt: so much anyway, and so much a token."""

    __slots__ = ("_number", "_slope", "_xs", "_xx", "_xy", "_ys", "mean")

    def __init__(self) -> None:
        """Nothing is known."""
        self._number = self._xs = self._ys = self._xx = self._xy = self._slope = 0.0
        self.mean: float | None = None
        """What answers take, whatever the size of the prompt."""

    def add(self, size: float, value: float) -> None:
        """One more answer: the size of its prompt, and what it took."""
        keep = 1 - 1 / SIZES
        self._number = self._number * keep + 1
        self._xs = self._xs * keep + size
        self._ys = self._ys * keep + value
        self._xx = self._xx * keep + size * size
        self._xy = self._xy * keep + size * value
        centre, self.mean = self._xs / self._number, self._ys / self._number
        spread = max(0.0, self._xx - self._xs * centre)
        # Some answers without any slope are added: few prompts of almost one size tell none.
        self._slope = (self._xy - self._xs * self.mean) / (spread + 3 * (centre * centre / 4 + 1))

    def at(self, size: float) -> float | None:
        """What an answer to a prompt of this size takes; never less than nothing."""
        if self.mean is None:
            return None
        return max(0.0, self.mean + self._slope * (size - self._xs / self._number))


class Mean:
    """A forgetting mean."""

    __slots__ = ("_count", "value")

    def __init__(self) -> None:
        """Nothing is known."""
        self._count = 0
        self.value: float | None = None

    def add(self, value: float) -> None:
        """One more."""
        self._count = min(self._count + 1, TIMES)
        before = value if self.value is None else self.value
        self.value = before + (value - before) / self._count


class Traffic:
    """What the answers of one target took."""

    __slots__ = ("_cost", "_latency", "_output")

    def __init__(self) -> None:
        """Nothing is known."""
        self._cost = Line()
        self._output = Line()
        self._latency = Mean()

    def add(
        self,
        prompt_tokens: int,
        *,
        cost_usd: float | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
    ) -> None:
        """One more answer; what is not known about it teaches nothing."""
        if cost_usd is not None:
            self._cost.add(prompt_tokens, cost_usd)
        if output_tokens is not None:
            self._output.add(prompt_tokens, output_tokens)
        if latency_ms is not None:
            self._latency.add(latency_ms)

    def expected(self, prompt_tokens: int) -> Expected:
        """What an answer to a prompt of this size will take."""
        return Expected(
            self._cost.at(prompt_tokens),
            self._cost.mean,
            self._latency.value,
            self._output.at(prompt_tokens),
        )
