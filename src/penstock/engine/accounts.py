"""Money as the pipeline sees it: held before anybody is called, settled whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, TranscriptionRequest
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.telemetry.records import AttemptRecord
from penstock.telemetry.trail import Trail

AnyRequest: TypeAlias = SamplingRequest | EmbeddingRequest | TranscriptionRequest


class Hold(Protocol):
    """What was set aside for one request."""

    @property
    def targets(self) -> Sequence[Target]:
        """Those that may be tried, in their order: their budgets have room for it."""
        ...

    async def extend(self, target: Target) -> None:
        """Set aside what one more attempt at this target may cost; raises BudgetExceeded."""
        ...

    async def settle(self, attempts: Sequence[AttemptRecord]) -> None:
        """Replace it by what the attempts took; raises nothing that a caller could mend."""
        ...


class Accounts(Protocol):
    """Knows what calls cost, and whether there is money for them."""

    async def reserve(
        self, request_id: str, request: AnyRequest, ranked: Sequence[Target], caller: Caller
    ) -> Hold:
        """Set aside the most that the request may cost; raises BudgetExceeded."""
        ...

    def cost(self, attempts: Sequence[AttemptRecord]) -> int | None:
        """What these attempts cost together, in nano-dollars; None when that is not known."""
        ...


class NoAccounts:
    """For engines that keep no books: everything may be tried, and nothing is known of its cost."""

    def __init__(self) -> None:
        """There is nothing to open."""

    async def reserve(
        self, request_id: str, request: AnyRequest, ranked: Sequence[Target], caller: Caller
    ) -> Hold:
        """Everything may be tried."""
        return Everything(ranked)

    def cost(self, attempts: Sequence[AttemptRecord]) -> int | None:
        """Unknown."""
        return None


class Everything:
    """A hold that holds nothing back."""

    __slots__ = ("targets",)

    def __init__(self, targets: Sequence[Target]) -> None:
        """Of these targets."""
        self.targets = targets

    async def extend(self, target: Target) -> None:
        """There is no need to."""

    async def settle(self, attempts: Sequence[AttemptRecord]) -> None:
        """There is nothing to settle."""


class Paid:
    """The block in which targets may be asked: entered with a hold, left with its settlement."""

    __slots__ = ("_hold", "_reserve", "_trail")

    _hold: Hold

    def __init__(self, reserve: Callable[[], Awaitable[Hold]], trail: Trail) -> None:
        """`trail` is that of the request; more is set aside when it has to pay twice."""
        self._reserve = reserve
        self._trail = trail

    async def __aenter__(self) -> Sequence[Target]:
        """The targets that there is money for; raises BudgetExceeded."""
        self._hold = await self._reserve()
        self._trail.extend = self._hold.extend
        return self._hold.targets

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Whatever has happened is paid for."""
        await self._hold.settle(self._trail.attempts)
