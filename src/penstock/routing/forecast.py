"""What an answer is expected to be and to take, of each of some targets.

By what the target's recent answers took; before there are any, by the catalogue. Its price is what
the price book says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Target
from penstock.routing.catalogue import family_of
from penstock.routing.cost_model import Expected
from penstock.routing.latency_history import Experience
from penstock.tokens import Estimates

Price: TypeAlias = Callable[[Target, int, int], float | None]
"""What so many tokens of input and of output cost in USD; None when that is not known."""

USUAL_OUTPUT = 500
"""Tokens of an answer while no target has given any: `max_tokens` is often far above it."""


class Forecast(NamedTuple):
    """What is expected of one target."""

    quality: float
    """From 0 to 1, by the catalogue."""
    cost_usd: float | None
    """None when there is no price."""
    latency_ms: float
    seen: bool
    """Whether the latency is that of its own answers."""
    prompt_tokens: int
    """The size of the prompt, as this target counts."""


def unpriced(target: Target, read: int, written: int) -> None:
    """For where nobody knows prices."""


class Outlook:
    """Looks ahead."""

    def __init__(self, experience: Experience | None = None, price: Price = unpriced) -> None:
        """`experience` is what the targets' answers took; `price` is what they cost."""
        self.experience = experience or Experience()
        self._price = price

    async def __call__(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        past: Callable[[Target, int], Expected] | None = None,
    ) -> list[Forecast]:
        """One forecast for each, in their order.

        `past` tells of answers that this process has not seen itself.
        """
        forecasts: list[Forecast] = []
        for target, (prompt, written, known) in zip(
            targets, await self._expected(request, targets, past), strict=True
        ):
            row, latency_ms = family_of(target.model), known.latency_ms
            forecasts.append(
                Forecast(
                    row.quality,
                    self._price(target, prompt, round(written)),
                    row.latency_ms(written) if latency_ms is None else latency_ms,
                    latency_ms is not None,
                    prompt,
                )
            )
        return forecasts

    async def tokens(
        self, request: SamplingRequest, targets: Sequence[Target]
    ) -> list[tuple[int, int]]:
        """How many tokens each target is expected to read and to write."""
        return [
            (prompt, round(written))
            for prompt, written, _ in await self._expected(request, targets, None)
        ]

    async def _expected(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        past: Callable[[Target, int], Expected] | None,
    ) -> list[tuple[int, float, Expected]]:
        estimates = Estimates(request)
        await estimates.prepare(target.model for target in targets)
        prompts = [estimates.of(target.model) for target in targets]
        seen = [
            self._seen(target, prompt, past)
            for target, prompt in zip(targets, prompts, strict=True)
        ]
        told = [each.output_tokens for each in seen if each.output_tokens is not None]
        # A target that has not answered yet must not seem more expensive than the others for that.
        usual = sum(told) / len(told) if told else USUAL_OUTPUT
        return [
            (
                prompt,
                min(
                    usual if known.output_tokens is None else known.output_tokens,
                    request.max_tokens,
                ),
                known,
            )
            for prompt, known in zip(prompts, seen, strict=True)
        ]

    def _seen(
        self, target: Target, prompt: int, past: Callable[[Target, int], Expected] | None
    ) -> Expected:
        mine = self.experience.expected(target, prompt)
        return mine if past is None or mine.latency_ms is not None else past(target, prompt)
