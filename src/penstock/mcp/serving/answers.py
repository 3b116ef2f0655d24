"""What the tools take and give, as their schemas tell."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from penstock.contract.estimates import BudgetVerdict
from penstock.contract.exchange import EmbeddingResult, Result, TokenCount
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import RankedTarget, RouteDecision

Model = Annotated[
    str | None,
    Field(description="A model of the gateway, or provider/model; its default when left out."),
]
Priority = Annotated[float | None, Field(ge=0, le=1)]


class Turn(BaseModel):
    """One turn of the conversation before the prompt."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["user", "assistant", "system"]
    content: str


class Preferences(BaseModel):
    """What matters when a model is chosen."""

    model_config = ConfigDict(extra="forbid")

    hints: Annotated[
        list[str], Field(description="Parts of model names; the first that fits counts.")
    ] = []
    cost: Priority = None
    speed: Priority = None
    intelligence: Priority = None

    def ours(self) -> ModelPreferences:
        """The same as the engine takes it."""
        return ModelPreferences(tuple(self.hints), self.cost, self.speed, self.intelligence)


class Tokens(BaseModel):
    """As the provider counted them; what it did not say is missing."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False


class Answer(BaseModel):
    """A model's answer, and what there is to know about it."""

    text: str
    model: str
    provider: str
    stop_reason: str
    usage: Tokens
    cost_usd: float | None
    request_id: str
    attempts: int
    continued_by: Annotated[
        str | None,
        Field(description="The target that finished the answer after another one broke off."),
    ] = None
    stop_detail: Annotated[
        str | None,
        Field(description="The provider's stop reason if it is unknown, or `missing`."),
    ] = None

    @classmethod
    def of(cls, result: Result) -> Answer:
        """What the engine answered."""
        metadata = result.metadata
        return cls(
            text=result.text,
            model=result.model,
            provider=metadata.provider,
            stop_reason=result.stop_reason,
            usage=Tokens(
                input_tokens=result.usage.input_tokens,
                output_tokens=result.usage.output_tokens,
                cached_input_tokens=result.usage.cached_input_tokens,
                reasoning_tokens=result.usage.reasoning_tokens,
                estimated=result.usage.estimated,
            ),
            cost_usd=result.cost_usd,
            request_id=result.request_id,
            attempts=metadata.attempts,
            continued_by=metadata.continued_by,
            stop_detail=metadata.stop_detail,
        )


class Vectors(BaseModel):
    """A vector for each text, in the texts' order."""

    vectors: list[list[float]]
    model: str
    provider: str
    dimensions: int

    @classmethod
    def of(cls, result: EmbeddingResult) -> Vectors:
        """What the engine gave."""
        return cls(
            vectors=[list(vector) for vector in result.vectors],
            model=result.model,
            provider=result.metadata.provider,
            dimensions=len(result.vectors[0]) if result.vectors else 0,
        )


class Count(BaseModel):
    """How many tokens a model reads for a prompt."""

    tokens: int
    estimated: Annotated[bool, Field(description="Whether it is an estimate, not a count.")]
    provider: str
    model: str

    @classmethod
    def of(cls, count: TokenCount) -> Count:
        """What the engine counted."""
        return cls(
            tokens=count.tokens,
            estimated=count.estimated,
            provider=count.provider,
            model=count.model,
        )


class Verdict(BaseModel):
    """What one budget would decide about the request; amounts are in nano-dollars."""

    budget: str
    fits: bool
    hard: Annotated[bool, Field(description="Whether it refuses what does not fit.")]
    limit_nanos: Annotated[int | None, Field(description="Null: it is not your key's budget.")]
    remaining_nanos: Annotated[int | None, Field(description="Null: it is not your key's budget.")]
    asked_nanos: Annotated[int | None, Field(description="The most that the request may cost.")]
    resets_at: Annotated[float | None, Field(description="Unix time; null: never.")]
    reason: Annotated[str, Field(description="Why it does not fit.")]

    @classmethod
    def of(cls, verdict: BudgetVerdict, own: Collection[str] | None) -> Verdict:
        """What the ledger says; `own` are the budgets whose amounts may be shown, None is all."""
        if own is None or verdict.budget in own:
            return cls(**msgspec.structs.asdict(verdict))
        reason = "" if verdict.fits else f"the budget {verdict.budget!r} has no room for it"
        return cls(
            budget=verdict.budget,
            fits=verdict.fits,
            hard=verdict.hard,
            limit_nanos=None,
            remaining_nanos=None,
            asked_nanos=verdict.asked_nanos,
            resets_at=verdict.resets_at,
            reason=reason,
        )


class Ranked(BaseModel):
    """A target with its place in the ranking."""

    target: str
    available: bool
    reasons: list[str]
    score: Annotated[float, Field(description="Its utility; more is better.")]
    quality: Annotated[float | None, Field(description="Expected, from 0 to 1.")]
    uncertainty: Annotated[float | None, Field(description="The deviation of the quality.")]
    neighbours: Annotated[float | None, Field(description="Similar prompts it rests on.")]
    cost_usd: Annotated[float | None, Field(description="Expected.")]
    latency_ms: Annotated[float | None, Field(description="Expected.")]
    hint: Annotated[str | None, Field(description="The hint that it matches.")]
    propensity: Annotated[float | None, Field(description="How likely it was to be first.")]
    budgets: Annotated[
        list[Verdict], Field(description="The verdict of each budget; empty without a ledger.")
    ]

    @classmethod
    def of(cls, ranked: RankedTarget, own: Collection[str] | None) -> Ranked:
        """What the router says of it."""
        return cls(
            target=str(ranked.target),
            available=ranked.available,
            reasons=list(ranked.reasons),
            score=ranked.score,
            quality=ranked.quality,
            uncertainty=ranked.uncertainty,
            neighbours=ranked.neighbours,
            cost_usd=ranked.cost_usd,
            latency_ms=ranked.latency_ms,
            hint=ranked.hint,
            propensity=ranked.propensity,
            budgets=[Verdict.of(each, own) for each in ranked.budgets],
        )


class Explanation(BaseModel):
    """Which targets would serve a request, best first, and why."""

    model: str | None
    ranked: list[Ranked]
    left_out: list[Ranked]
    strategy: str
    explored: bool
    reason: Annotated[str, Field(description="Why the first one is first.")]

    @classmethod
    def of(cls, decision: RouteDecision, own: Collection[str] | None) -> Explanation:
        """What the router decided; `own` as for a verdict."""
        return cls(
            model=decision.model,
            ranked=[Ranked.of(each, own) for each in decision.ranked],
            left_out=[Ranked.of(each, own) for each in decision.left_out],
            strategy=decision.strategy,
            explored=decision.explored,
            reason=decision.reason,
        )


class Usage(BaseModel):
    """What was used and what it cost, in all and by model; money in nano-dollars."""

    model_config = ConfigDict(extra="allow")

    key: Annotated[str | None, Field(description="Whose it is; null: everybody's.")]
    requests: int
    input_tokens: int
    output_tokens: int
    amount_nanos: int
    cost_usd: float
