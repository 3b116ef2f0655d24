"""Money as the pipeline sees it: held before anybody is called, settled whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from penstock.contract.estimates import BudgetVerdict
from penstock.contract.exchange import AnyRequest
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.contract.terms import Admission
from penstock.telemetry.record_builder import Trail
from penstock.telemetry.records import AttemptRecord


class Hold(Protocol):
    """What was set aside for one request."""

    @property
    def targets(self) -> Sequence[Target]:
        """Those that may be tried, in their order: their budgets have room for it."""
        ...

    async def extend(
        self,
        target: Target,
        attempts: Sequence[AttemptRecord],
        request: AnyRequest | None = None,
    ) -> None:
        """Have enough for one more attempt at this target beside these; raises BudgetExceeded.

        `request` is the one of that attempt, where it is longer than the one reserved for.
        """
        ...

    def settle(self, attempts: Sequence[AttemptRecord]) -> None:
        """Replace it by what the attempts took; raises nothing that a caller could mend."""
        ...


class Accounts(Protocol):
    """Knows what calls cost, and whether there is money for them."""

    async def reserve(
        self, request_id: str, request: AnyRequest, ranked: Sequence[Target], caller: Caller
    ) -> Hold | None:
        """Set aside the most that the request may cost; raises BudgetExceeded.

        None: nothing is held, and all targets may be tried.
        """
        ...

    async def estimate(self, request: AnyRequest, ranked: Sequence[Target]) -> int | None:
        """The most that one call of the dearest of these may cost; None when that is not known."""
        ...

    async def verdicts(
        self, request: AnyRequest, targets: Sequence[Target], caller: Caller
    ) -> Sequence[tuple[BudgetVerdict, ...]]:
        """What each budget would decide about a call of each target; nothing is reserved."""
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
    ) -> None:
        """Nothing is held."""

    async def estimate(self, request: AnyRequest, ranked: Sequence[Target]) -> int | None:
        """Unknown."""
        return None

    async def verdicts(
        self, request: AnyRequest, targets: Sequence[Target], caller: Caller
    ) -> Sequence[tuple[BudgetVerdict, ...]]:
        """There are no budgets."""
        return [()] * len(targets)

    def cost(self, attempts: Sequence[AttemptRecord]) -> int | None:
        """Unknown."""
        return None


class Paid:
    """The block in which targets may be asked: entered with a hold, left with its settlement."""

    __slots__ = ("_admission", "_admit", "_hold", "_ranked", "_reserve", "_trail")

    _hold: Hold | None

    def __init__(
        self,
        ranked: Sequence[Target],
        admit: Callable[[Sequence[Target]], Awaitable[Admission]] | None,
        reserve: Callable[[Sequence[Target]], Awaitable[Hold | None]],
        trail: Trail,
    ) -> None:
        """`admit` asks the caller's terms, where there are any.

        `trail` is that of the request; more is set aside when it has to pay twice.
        """
        self._ranked = ranked
        self._admit = admit
        self._reserve = reserve
        self._trail = trail
        self._admission: Admission | None = None

    async def __aenter__(self) -> Sequence[Target]:
        """The targets that the caller may use and has money for.

        Raises ModelNotFound, RateLimited or BudgetExceeded.
        """
        ranked = self._trail.ranked = self._ranked
        if self._admit is not None:
            self._admission = await self._admit(ranked)
            ranked = self._admission.targets
        try:
            hold = self._hold = await self._reserve(ranked)
        except BaseException:
            if self._admission is not None:
                self._admission.settle(None)
            raise
        if hold is None:
            self._trail.allowed = ranked
            return ranked
        self._trail.extend = hold.extend
        self._trail.allowed = hold.targets
        return hold.targets

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Whatever has happened is paid for."""
        if self._admission is not None:
            self._admission.settle(self._trail.used)
        if self._hold is not None:
            self._hold.settle(self._trail.attempts)
