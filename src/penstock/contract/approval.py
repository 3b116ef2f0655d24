"""What whoever approves a sampling request is shown, and what they may decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias

import msgspec

from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.messages import Content

ApprovalMode: TypeAlias = Literal["always", "policy", "ask", "never"]
"""Who decides: nobody, for all is allowed; the servers' rules; somebody; nobody, for nothing is."""


class Estimate(msgspec.Struct, frozen=True):
    """What a request would take, before it is made."""

    tokens: int
    """What the model reads; it writes at most the request's `max_tokens`."""
    cost_nanos: int | None
    """The most that one call of the dearest target may cost; None without a known price."""

    @property
    def cost_usd(self) -> float | None:
        """The cost for people."""
        return None if self.cost_nanos is None else self.cost_nanos / 1e9


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at: a request before it is made, or its answer before it goes out."""

    request: SamplingRequest
    estimate: Estimate
    server: str = ""
    """The MCP server that asks, by the name that the host has given it."""
    claims: str | None = None
    """What the server calls itself, which proves nothing."""
    key: str | None = None
    """The name of the caller's key, where a caller of the gateway asks."""
    answer: Result | None = None
    """None while the request is to be decided."""

    @property
    def stage(self) -> Literal["request", "answer"]:
        """What is to be decided."""
        return "request" if self.answer is None else "answer"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Yes or no; with a yes, what takes the place of the request or of the answer's content."""

    approved: bool
    request: SamplingRequest | None = None
    content: tuple[Content, ...] | None = None
    reason: str = ""
    """Why not, in words that the asker may read."""

    @classmethod
    def deny(cls, reason: str = "") -> Decision:
        """No."""
        return cls(approved=False, reason=reason)


Approver: TypeAlias = Callable[[Review], Awaitable[Decision | bool]]
"""Whoever decides; plain True and False will do."""


class Reviewer(Protocol):
    """The pipeline's question between validating a request and routing it."""

    async def __call__(
        self, request: SamplingRequest, estimate: Callable[[SamplingRequest], Awaitable[Estimate]]
    ) -> SamplingRequest:
        """The request that may be made, changed or not; raises SamplingRejected."""
        ...
