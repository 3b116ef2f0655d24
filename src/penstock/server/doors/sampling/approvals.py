"""Whether the doors for sampling ask before they answer, and whom: see `[sampling] approval`.

A key is the policy of its caller, so `policy` asks nobody here. Answers are not shown before they
go out: they may be streams, and whoever calls a gateway has a key, which an MCP server has not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from penstock.config.sampling import SamplingConfig
from penstock.contract.approval import Decision, Estimate, Review
from penstock.contract.errors import SamplingRejected
from penstock.contract.exchange import SamplingRequest
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from penstock.mcp.host.approval import approved_request
from penstock.mcp.host.queue import ApprovalQueue
from penstock.pipeline.scope import NOBODY
from penstock.telemetry.records import ApprovalAsked, ApprovalEnded


class Approvals:
    """What the doors ask, and the queue in which their requests wait."""

    def __init__(self, queue: ApprovalQueue) -> None:
        """Whoever decides looks into this queue."""
        self.queue = queue

    def tell(self, happened: Callable[[ApprovalAsked | ApprovalEnded], object]) -> None:
        """Have what begins and ceases to wait told here."""
        self.queue.on_asked = lambda waiting: happened(
            ApprovalAsked(
                id=waiting.id,
                stage=waiting.review.stage,
                server=waiting.review.server or None,
                key=waiting.review.key,
                expires=waiting.expires,
                at=waiting.asked,
            )
        )
        self.queue.on_ended = lambda waiting, decision: happened(
            ApprovalEnded(
                id=waiting.id,
                outcome=_outcome(decision),
                reason="" if decision is None else decision.reason,
                at=time.time(),
            )
        )

    def configure(self, settings: SamplingConfig) -> None:
        """The configuration has changed; what waits already keeps its time."""
        self.queue.timeout_s = settings.approval_timeout_s
        self.queue.most = settings.max_waiting

    def caller(self, engine: Engine, caller: Caller | None) -> Caller | None:
        """The caller with whoever must approve its request; raises SamplingRejected."""
        match engine.config.sampling.approval:
            case "never":
                raise SamplingRejected(
                    'this gateway answers no sampling requests: `[sampling] approval` is "never"'
                )
            case "ask":
                known = caller or NOBODY
                return msgspec.structs.replace(known, review=_Asking(self.queue, known.key))
            case "always" | "policy":
                return caller


def _outcome(decision: Decision | None) -> Literal["approved", "denied", "gone"]:
    if decision is None:
        return "gone"
    return "approved" if decision.approved else "denied"


class _Asking:
    def __init__(self, queue: ApprovalQueue, key: str | None) -> None:
        self._queue = queue
        self._key = key

    async def __call__(
        self, request: SamplingRequest, estimate: Callable[[SamplingRequest], Awaitable[Estimate]]
    ) -> SamplingRequest:
        review = Review(request=request, estimate=await estimate(request), key=self._key)
        # The queue has a limit of its own.
        return await approved_request(self._queue, review, None)
