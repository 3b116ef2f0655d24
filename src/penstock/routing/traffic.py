"""What answers of a target take: time, tokens and money, by what its recent ones took.

These follow from the target and the size of the prompt, hardly from what the prompt is about; so
they are means that forget, one set a target, and no neighbours are looked for.
"""

from __future__ import annotations

import math

import msgspec

MEMORY = 200
"""Answers after which an observation counts e times less."""


class Expected(msgspec.Struct, frozen=True):
    """What an answer is expected to take; None where nothing is known."""

    cost_usd: float | None
    usual_cost_usd: float | None
    """Whatever the size of the prompt."""
    latency_ms: float | None
    latency_p95_ms: float | None
    first_token_ms: float | None
    output_tokens: float | None


class Line:
    """A forgetting regression on the size of the prompt: so much anyway, and so much a token."""

    __slots__ = ("_number", "_xs", "_xx", "_xy", "_ys")

    def __init__(self) -> None:
        """Nothing is known."""
        self._number = self._xs = self._ys = self._xx = self._xy = 0.0

    def add(self, size: float, value: float) -> None:
        """One more answer: the size of its prompt, and what it took."""
        keep = 1 - 1 / MEMORY
        self._number = self._number * keep + 1
        self._xs = self._xs * keep + size
        self._ys = self._ys * keep + value
        self._xx = self._xx * keep + size * size
        self._xy = self._xy * keep + size * value

    @property
    def mean(self) -> float | None:
        """What answers take, whatever the size of the prompt."""
        return self._ys / self._number if self._number else None

    def at(self, size: float) -> float | None:
        """What an answer to a prompt of this size takes; never less than nothing."""
        if not self._number:
            return None
        centre, mean = self._xs / self._number, self._ys / self._number
        spread = max(0.0, self._xx - self._xs * centre)
        # Some answers without any slope are added: few prompts of almost one size tell none.
        slope = (self._xy - self._xs * mean) / (spread + 3 * (centre * centre / 4 + 1))
        return max(0.0, mean + slope * (size - centre))


class Mean:
    """A forgetting mean."""

    __slots__ = ("_count", "value")

    def __init__(self) -> None:
        """Nothing is known."""
        self._count = 0
        self.value: float | None = None

    def add(self, value: float) -> None:
        """One more."""
        self._count = min(self._count + 1, MEMORY)
        before = value if self.value is None else self.value
        self.value = before + (value - before) / self._count


class Quantile:
    """What a share of the recent values stays below, in one number: it moves a step at a time."""

    __slots__ = ("_count", "_log", "_share")

    def __init__(self, share: float) -> None:
        """Nothing is known."""
        self._share = share
        self._count = 0
        self._log: float | None = None

    @property
    def value(self) -> float | None:
        """The quantile, as far as it has been found."""
        return None if self._log is None else math.exp(self._log)

    def add(self, value: float) -> None:
        """One more; durations differ by factors, so steps are factors too."""
        log = math.log(max(value, 1e-3))
        if self._log is None:
            self._log = log
            return
        self._count = min(self._count + 1, MEMORY)
        step = 2 / (self._count + 2) ** 0.6
        above = log > self._log
        self._log += step * (self._share if above else self._share - 1)


class Traffic:
    """What the answers of one target took."""

    __slots__ = ("_cost", "_first_token", "_latency", "_output", "_p95")

    def __init__(self) -> None:
        """Nothing is known."""
        self._cost = Line()
        self._output = Line()
        self._latency = Mean()
        self._first_token = Mean()
        self._p95 = Quantile(0.95)

    def add(
        self,
        prompt_tokens: int,
        *,
        cost_usd: float | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
        first_token_ms: float | None = None,
    ) -> None:
        """One more answer; what is not known about it teaches nothing."""
        if cost_usd is not None:
            self._cost.add(prompt_tokens, cost_usd)
        if output_tokens is not None:
            self._output.add(prompt_tokens, output_tokens)
        if latency_ms is not None:
            self._latency.add(latency_ms)
            self._p95.add(latency_ms)
        if first_token_ms is not None:
            self._first_token.add(first_token_ms)

    def expected(self, prompt_tokens: int) -> Expected:
        """What an answer to a prompt of this size will take."""
        return Expected(
            self._cost.at(prompt_tokens),
            self._cost.mean,
            self._latency.value,
            self._p95.value,
            self._first_token.value,
            self._output.at(prompt_tokens),
        )
