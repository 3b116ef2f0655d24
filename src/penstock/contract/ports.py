"""The protocols by which the layers meet; `gateway.py` introduces the implementations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

import msgspec

from penstock.contract.adaptation import Adaptation, dropped
from penstock.contract.estimates import BudgetVerdict
from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities


class Target(msgspec.Struct, frozen=True):
    """One provider and the name that a model has there."""

    provider: str
    model: str

    def __str__(self) -> str:
        """`provider/model`, as it is written in the configuration."""
        return f"{self.provider}/{self.model}"


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that a provider offers."""

    id: str
    owned_by: str = ""
    created: int | None = None


ProviderStream = AsyncGenerator[Sequence[ProviderEvent], None]
"""Events in batches, one batch a network read, so that a fast stream costs little; the last event
of the last batch is `Finished`. Closing the generator stops the upstream call."""


class Provider(Protocol):
    """A configured endpoint that answers requests for its models."""

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        ...

    def capabilities(self, model: str) -> Capabilities:
        """What this model takes and gives."""
        ...

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        """The whole answer at once."""
        ...

    def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        """The answer while it is made."""
        ...

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        """A vector for each text, in order, whatever the batch limit of the wire."""
        ...

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        """The words of a recording."""
        ...

    async def models(self) -> Sequence[ModelInfo]:
        """The models on offer; also the health check, for it costs no tokens."""
        ...

    async def count_tokens(self, model: str, request: SamplingRequest) -> int | None:
        """The provider's own count of the prompt's tokens; None when it offers none."""
        ...

    async def aclose(self) -> None:
        """Give back connections, threads and memory."""
        ...


class Health(Protocol):
    """Knows which targets may be asked just now."""

    def available(self, target: Target) -> tuple[bool, str]:
        """Whether it may be asked, and why not: an open breaker, a failed check, an order.

        Called for every target of every request, and without effect: no probe is used up by it.
        """
        ...


class RankedTarget(msgspec.Struct, frozen=True):
    """A target with its place in the ranking: why it is there, and whether it may be asked.

    Whatever is None is not known, or was not looked at.
    """

    target: Target
    available: bool
    reasons: tuple[str, ...]
    score: float = 0.0
    """Its utility: what the priorities make of it, among targets that are equal otherwise; more is
    better."""
    quality: float | None = None
    """How good its answer is expected to be, from 0 to 1."""
    uncertainty: float | None = None
    """The standard deviation of that."""
    neighbours: float | None = None
    """How many answers to similar prompts it rests on."""
    cost_usd: float | None = None
    latency_ms: float | None = None
    hint: str | None = None
    """The hint that it matches, as the caller wrote it."""
    propensity: float | None = None
    """How likely it was to be put first, where there were dice."""
    budgets: tuple[BudgetVerdict, ...] = ()
    """What each budget that covers it would decide; empty where no ledger is kept."""


class RouteDecision(msgspec.Struct, frozen=True):
    """Which targets would serve a request, best first, and the reasons of each."""

    model: str | None
    """What the caller asked for; None when it was left to us."""
    ranked: tuple[RankedTarget, ...]
    left_out: tuple[RankedTarget, ...] = ()
    """Targets that were looked at and will not be tried."""
    strategy: str = "ordered"
    """What orders targets that are equal otherwise."""
    explored: bool = False
    """Whether the first one is tried to learn about it, and another was expected to be better."""
    reason: str = ""
    """Why the first one is first, in one sentence."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets in the order in which they are tried."""
        return tuple(each.target for each in self.ranked)


class Router(Protocol):
    """Decides which targets may serve a request, best first."""

    async def explain(
        self, request: SamplingRequest, *, key: str | None = None, streaming: bool = False
    ) -> RouteDecision:
        """The ranking with its reasons; `rank` gives the same targets in the same order.

        Nothing is tried for the sake of learning, and nothing is remembered.
        """
        ...

    async def rank(
        self,
        request: SamplingRequest,
        *,
        request_id: str | None = None,
        key: str | None = None,
        streaming: bool = False,
        told: Callable[[RouteDecision], None] | None = None,
    ) -> Sequence[Target]:
        """The targets to try in order; raises ModelNotFound when there are none.

        Under its `request_id` a request is remembered, and may be used to learn; without one it is
        ranked as `explain` would. `key` is whose it is, and `streaming` says how it is answered.
        `told` hears the decision where there is more to it than the configured order.
        """
        ...


class Attempt(msgspec.Struct, frozen=True):
    """The attempt that answers, and how many there were up to it."""

    target: Target
    number: int
    adapted: tuple[Adaptation, ...] = ()
    """The options of the request that the target did not get as they were."""
    continues: bool = False
    """Whether it continues a stream that another attempt began."""

    @property
    def dropped_options(self) -> tuple[str, ...]:
        """The options that were left out or replaced by the nearest value."""
        return dropped(self.adapted)


class Try(Protocol):
    """The record of one attempt while it is made."""

    def calling(self) -> AbstractContextManager[None]:
        """The block in which the provider is called; for a stream, until its first event."""
        ...

    def first_token(self) -> None:
        """The first event is there."""
        ...

    def end(self, error: BaseException | None = None, calls: Sequence[Usage] = ()) -> None:
        """It is over; `calls` is what each call took that was billed."""
        ...


class Trail(Protocol):
    """Where the attempts of one request are written down."""

    @property
    def key(self) -> str | None:
        """The name of the key that the caller has shown."""
        ...

    def begin(self, attempt: Attempt) -> Try:
        """A target is about to be asked."""
        ...

    @property
    def used(self) -> Usage | None:
        """What the attempts took together that have ended; None when nothing was billed."""
        ...

    async def afford(self, target: Target, request: SamplingRequest | None = None) -> None:
        """Have money for one more attempt, after some that were billed; raises BudgetExceeded.

        `request` is the one of this attempt, where it is longer than that of the caller.
        """
        ...


class OpenStream(msgspec.Struct):
    """A stream that has begun; the attempt changes when another target goes on with it."""

    attempt: Attempt
    batches: ProviderStream


class Pool(Protocol):
    """Turns a ranked list of targets into one answer: failover lives in here."""

    async def generate(
        self, ranked: Sequence[Target], request: SamplingRequest, trail: Trail
    ) -> tuple[Attempt, Reply]:
        """The first good answer."""
        ...

    async def count_tokens(self, target: Target, request: SamplingRequest) -> int | None:
        """This target's own count of the prompt's tokens; None when it offers none."""
        ...

    def open(
        self, ranked: Sequence[Target], request: SamplingRequest, trail: Trail
    ) -> AbstractAsyncContextManager[OpenStream]:
        """The first stream that starts; leaving the context stops it."""
        ...

    async def embed(
        self, target: Target, request: EmbeddingRequest, trail: Trail
    ) -> tuple[Attempt, Vectors]:
        """The vectors of this one target, for those of others do not compare."""
        ...

    async def transcribe(
        self, ranked: Sequence[Target], request: TranscriptionRequest, trail: Trail
    ) -> tuple[Attempt, Transcript]:
        """The first good transcript."""
        ...
