"""The accounts of an engine: what its calls cost, and a ledger where one is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.budget.entries import UNPRICED, Charge, Hold
from penstock.budget.ledger import Ledger
from penstock.budget.pricing.price_book import Cost, PriceBook
from penstock.budget.pricing.worst_case import bounds, worst_cases
from penstock.budget.queries import CODE
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.budget.verdicts import verdicts
from penstock.contract.errors import BudgetExceeded, ConfigurationError, PenstockError
from penstock.contract.estimates import BudgetVerdict, RecordedUsage, TargetEstimate
from penstock.contract.exchange import AnyRequest, SamplingRequest
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities
from penstock.contract.ports import RankedTarget, Target
from penstock.contract.requests import Caller
from penstock.telemetry.records import AttemptRecord
from penstock.tokens import measure_request
from penstock.tokens.size import measured

_RETRY_S, _TEND_EVERY = 1.0, 30
_LONGEST_TAG, _MOST_TAGS = 128, 16
"""Tags are written down with every entry; what is longer is no tag but something that was said."""
_log = logging.getLogger(__name__)


class Held(msgspec.Struct, eq=False):
    """What is held for one request, until it is settled."""

    _books: Books
    _ledger: Ledger
    _hold: Hold
    _costs: Sequence[tuple[Target, int | None]]
    """The most that one call of each target may cost."""
    _more: Sequence[Hold] = ()
    _added: Mapping[Target, int] = {}

    @property
    def targets(self) -> Sequence[Target]:
        """Those that may be tried."""
        return self._hold.targets

    async def extend(
        self,
        target: Target,
        attempts: Sequence[AttemptRecord],
        request: AnyRequest | None = None,
    ) -> None:
        """Hold so much more that one more call of this target fits beside what these have taken.

        Every budget that covers the target holds its cost already, and what was added for it: only
        what has been spent of that is missing, and what `request`, if it is another one than was
        reserved for, costs more.
        """
        hold, missing = self._hold, dict(self._costs)[target]
        if missing is not None:
            charges = [self._charge(each, usage) for each in attempts for usage in each.bills]
            further = 0
            if request is not None:
                further = max(0, (await self._books.most(request, target) or 0) - missing)
            spent = sum(charge.cost_nanos for charge in charges)
            missing = spent + further - self._added.get(target, 0)
            if missing <= 0:
                return
        asked = [(target, missing)]
        more = await self._ledger.reserve(hold.request_id, asked, key=hold.key, tags=hold.tags)
        self._more = (*self._more, more)
        self._added = {**self._added, target: self._added.get(target, 0) + (missing or 0)}

    def settle(self, attempts: Sequence[AttemptRecord]) -> None:
        """Have written down what the attempts took; what cannot be written now, the ledger keeps.

        It is written with what is written next, at most a moment later. Whoever kills the process
        in that moment finds the estimate of the hold in the ledger, as with a call under way.
        """
        charges = [self._charge(each, usage) for each in attempts for usage in each.bills]
        beside = sum([hold.amount_nanos for hold in self._more]) if self._more else 0
        try:
            # Nobody waits for it: the caller has an answer, and cannot mend the disk.
            self._ledger.settle_soon(self._hold, charges, beside)
            # Their calls are among the charges. At once, so that all of it is in one transaction:
            # nobody sees, and no kill leaves, the charges beside what was held for them.
            for hold in self._more:
                self._ledger.settle_soon(hold)
        except PenstockError as closed:
            _log.error("request %s is not settled: %s", self._hold.request_id, closed)

    def _charge(self, attempt: AttemptRecord, usage: Usage) -> Charge:
        charge = self._books.charge(attempt, usage)
        if charge.price_source == UNPRICED and dict(self._costs).get(charge.target) is not None:
            return self._as_held(attempt, usage, "counts nothing that its price is for")
        return charge

    def _as_held(self, attempt: AttemptRecord, usage: Usage, why: str) -> Charge:
        target = _target(attempt)
        _log.error(
            "request %s: %s %s: what was held is charged", self._hold.request_id, target, why
        )
        usage = msgspec.structs.replace(usage, estimated=True)
        return Charge(target, usage, self._hold.amount_nanos, UNPRICED, estimated=True)


class Books:
    """Prices every call; with a ledger, holds its cost before and settles it after.

    The ledger is opened with the first request, or by `ledger()`.
    """

    def __init__(
        self,
        prices: PriceBook,
        able: Callable[[Target], Capabilities],
        *,
        open_ledger: Callable[[], Awaitable[Ledger]] | None = None,
        budgets: Sequence[Budget] = (),
        source: str | None = None,
        declare: bool = True,
        prune: bool = True,
        exclusive: bool = False,
        at_once: int = 1,
        place: object = None,
    ) -> None:
        """`able` says what a target can do; `budgets` are those that the configuration declares.

        `source` names that configuration, None one that is in no file. Without `declare` they are
        not written into the ledger: for what only reads. `prune`: others that it has declared once
        and that are not among them go. `exclusive`: they are refused where another configuration
        has budgets in the ledger. `at_once` is how many targets may be asked
        for one request at the same time. Books of the same `place` have the same ledger.
        """
        self._place = place
        self.prices = prices
        self._able = able
        self._open_ledger = open_ledger
        self._budgets = budgets
        self._source = source or program()
        self._declares = declare
        self._exclusive = exclusive
        # Who declares none in code is no sign that somebody else's are gone.
        self._prune = prune and (source is not None or bool(budgets))
        self._at_once = at_once
        self._ledger: Ledger | None = None
        self._tight = any(budget.hard for budget in budgets)
        self._costed: tuple[AttemptRecord, Usage] | None = None
        self._found: Cost | None = None
        self._opening: asyncio.Task[Ledger] | None = None
        self._closed = False
        self._lent = False
        """Whether other books have the ledger, and close it."""

    @property
    def kept(self) -> bool:
        """Whether there is a ledger."""
        return self._open_ledger is not None

    async def ledger(self) -> Ledger:
        """The ledger, opened when first asked for; raises ConfigurationError when none is kept."""
        if self._ledger is None:
            if self._open_ledger is None:
                raise ConfigurationError(
                    "this engine keeps no ledger: write [storage] into penstock.toml, such as "
                    'url = "sqlite:///penstock.db"'
                )
            if self._closed:
                raise PenstockError("this engine and its ledger are closed: open a new engine")
            if self._opening is None:
                self._opening = asyncio.create_task(self._open(self._open_ledger))
            # One attempt for all that wait: a locked file may take half a minute.
            return await asyncio.shield(self._opening)
        return self._ledger

    async def _open(self, open_ledger: Callable[[], Awaitable[Ledger]]) -> Ledger:
        try:
            ledger = self._ledger = await self._opened(await open_ledger())
        finally:
            self._opening = None
        return ledger

    async def take_over(self, before: Books) -> None:
        """Go on with the ledger of other books if it is the same file, else open our own now.

        Those books may go on, too, but close it no more.
        """
        if self._open_ledger is None:
            return
        if before._open_ledger is None or before._place != self._place:
            await self.ledger()
            return
        ledger = await before.ledger()
        await self._declare(ledger)
        self._ledger, before._lent = ledger, True

    async def _opened(self, ledger: Ledger) -> Ledger:
        try:
            await self._declare(ledger)
            # What a killed process has left blocks nobody, also where none lives long enough to
            # tend the ledger.
            await ledger.sweep()
        except BaseException:
            # Whoever asked may go away meanwhile; the thread and the file would stay.
            await ledger.aclose()
            raise
        return ledger

    async def _declare(self, ledger: Ledger) -> None:
        if self._declares:
            await ledger.declare_budgets(
                self._budgets, source=self._source, prune=self._prune, exclusive=self._exclusive
            )

    async def balances(self) -> Sequence[Balance]:
        """Every budget, with those that only reading has not declared in the ledger."""
        return await (await self.ledger()).balances(() if self._declares else self._budgets)

    async def remove_budget(self, name: str) -> None:
        """Remove one that was set by hand, or else a declared one until it is declared again."""
        ledger = await self.ledger()
        before = await _declared_by(ledger, name)
        await ledger.remove_budget(name)
        if before:
            _log.warning(
                "budget %r is gone until the next start: it is declared by %s; take it out there",
                name,
                ", ".join(before),
            )
        elif after := await _declared_by(ledger, name):
            _log.warning("budget %r is again as %s declares it", name, ", ".join(after))

    async def reserve(
        self, request_id: str, request: AnyRequest, ranked: Sequence[Target], caller: Caller
    ) -> Held | None:
        """Hold the most that the dearest target may cost; raises BudgetExceeded. None: no books."""
        if not self.prices.prepared(ranked):
            await self._prepare(ranked)
        if self._open_ledger is None:
            return None
        ledger = self._ledger or await self.ledger()
        tags = _tags(request, caller)
        if not self._tight:
            # While no budget applies, a rough bound does, which takes no time on long prompts.
            with contextlib.suppress(BudgetExceeded):
                candidates = await self._bounded(request, ranked, rough=True)
                hold = await ledger.reserve(request_id, candidates, key=caller.key, tags=tags)
                self._tight = bool(hold.postings)
                return Held(self, ledger, hold, candidates)
            self._tight = True
        candidates = await self._bounded(request, ranked)
        hold = await ledger.reserve(request_id, candidates, key=caller.key, tags=tags)
        return Held(self, ledger, hold, candidates)

    async def estimate(self, request: AnyRequest, ranked: Sequence[Target]) -> int | None:
        """The most that one call of the dearest of these may cost; None without a price for one."""
        if not self.prices.prepared(ranked):
            await self._prepare(ranked)
        costs = [most for _, most in await self._bounded(request, ranked)]
        known = [most for most in costs if most is not None]
        return max(known) if known and len(known) == len(costs) else None

    async def verdicts(
        self, request: AnyRequest, targets: Sequence[Target], caller: Caller
    ) -> Sequence[tuple[BudgetVerdict, ...]]:
        """What each budget would decide about a call of each target; nothing is reserved."""
        if self._open_ledger is None:
            return [()] * len(targets)
        if not self.prices.prepared(targets):
            await self._prepare(targets)
        candidates = await self._bounded(request, targets)
        return verdicts(await self.balances(), candidates, caller.key, _tags(request, caller))

    async def estimates(
        self,
        request: SamplingRequest,
        ranked: Sequence[RankedTarget],
        expected: Sequence[tuple[int, int]],
        caller: Caller,
    ) -> list[TargetEstimate]:
        """What a call of each target would take; `expected` is what it reads and writes."""
        targets = [each.target for each in ranked]
        if not self.prices.prepared(targets):
            await self._prepare(targets)
        costs = await self._bounded(request, targets)
        contents = await measured(request, lambda: measure_request(request))
        judged = await self.verdicts(request, targets, caller)
        found: list[TargetEstimate] = []
        for place, (target, worst) in enumerate(costs):
            read, written = expected[place]
            most = bounds(request, target.model, self._abilities(target), contents)
            cost = self.prices.cost(target, Usage(input_tokens=read, output_tokens=written))
            found.append(
                TargetEstimate(
                    provider=target.provider,
                    model=target.model,
                    available=ranked[place].available,
                    input_tokens=read,
                    output_tokens=written,
                    max_input_tokens=most.read,
                    max_output_tokens=most.written,
                    expected_nanos=None if cost is None else cost.nanos,
                    worst_nanos=worst,
                    price_source=None if cost is None else cost.source,
                    budgets=judged[place],
                )
            )
        return found

    async def record(
        self,
        request_id: str,
        target: Target,
        usage: Usage,
        *,
        key: str | None,
        tags: Mapping[str, str],
    ) -> RecordedUsage:
        """Count a call that was made elsewhere; budgets that it exceeds count it too."""
        if not self.prices.prepared((target,)):
            await self._prepare((target,))
        cost = self.prices.cost(target, usage)
        charge = Charge(target, usage, 0, UNPRICED, usage.estimated)
        if cost is not None:
            charge = Charge(target, usage, cost.nanos, cost.source, usage.estimated, cost.price)
        settlement = await (await self.ledger()).record(request_id, charge, key=key, tags=tags)
        return RecordedUsage(
            request_id,
            target.provider,
            target.model,
            None if cost is None else cost.nanos,
            None if cost is None else cost.source,
            settlement.overdrawn,
        )

    async def most(self, request: AnyRequest, target: Target) -> int | None:
        """The most that one call of this target may cost; None without a price."""
        return (await self._bounded(request, (target,)))[0][1]

    async def _prepare(self, ranked: Sequence[Target]) -> None:
        # The list of prices is large, and is read once.
        await asyncio.to_thread(self.prices.prepare, ranked)

    def cost(self, attempts: Sequence[AttemptRecord]) -> int | None:
        """What these attempts cost together, in nano-dollars; None when that is not known."""
        total = 0
        for each in attempts:
            for usage in each.bills:
                cost = self._cost(each, usage)
                if cost is None:
                    return None
                total += cost.nanos
        return total

    async def tend(self) -> None:
        """Renew the leases of what is held and sweep what was left behind, for ever.

        Settlements that could not be written are tried again each second.
        """
        ticks = 0
        while True:
            await asyncio.sleep(_RETRY_S)
            ticks += 1
            if self._ledger is None:
                continue
            if ticks % _TEND_EVERY == 0:
                await self._ledger.tend()
            else:
                await self._ledger.write_again()

    async def aclose(self) -> None:
        """Write what is to be written, and close the ledger."""
        self._closed = True
        if (opening := self._opening) is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        ledger, self._ledger = self._ledger, None
        if ledger is not None and not self._lent:
            await ledger.aclose()

    async def _bounded(
        self, request: AnyRequest, ranked: Sequence[Target], *, rough: bool = False
    ) -> list[tuple[Target, int | None]]:
        able = [(target, self._abilities(target)) for target in ranked]
        costs = await measured(
            request, lambda: worst_cases(request, able, self.prices, rough=rough)
        )
        if self._at_once > 1:
            costs = [None if most is None else most * self._at_once for most in costs]
        return list(zip(ranked, costs, strict=True))

    def _abilities(self, target: Target) -> Capabilities:
        try:
            return self._able(target)
        except PenstockError:
            # The pool passes over a target that cannot be reached at all.
            return Capabilities()

    def charge(self, attempt: AttemptRecord, usage: Usage) -> Charge:
        """What the ledger is told of a call of this attempt that took so much."""
        target = _target(attempt)
        cost = self._cost(attempt, usage)
        if cost is None:
            return Charge(target, usage, 0, UNPRICED, usage.estimated)
        return Charge(target, usage, cost.nanos, cost.source, usage.estimated, cost.price)

    def _cost(self, attempt: AttemptRecord, usage: Usage) -> Cost | None:
        # It is asked for several times at the end of a request.
        costed = self._costed
        if costed is None or costed[0] is not attempt or costed[1] is not usage:
            self._found = self.prices.cost(_target(attempt), usage, at=_moment(attempt))
            self._costed = (attempt, usage)
        return self._found


def program() -> str:
    """The source of budgets that are declared in Python: the main program's file, if it has one."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return CODE if file is None else os.path.realpath(file)


async def _declared_by(ledger: Ledger, name: str) -> Sequence[str]:
    found = [each for each in await ledger.balances() if each.budget.name == name]
    return found[0].declared_by if found else ()


def _target(attempt: AttemptRecord) -> Target:
    return Target(attempt.provider, attempt.model)


def _moment(attempt: AttemptRecord) -> datetime:
    return datetime.fromtimestamp(attempt.started, UTC)


def _tags(request: AnyRequest, caller: Caller) -> Mapping[str, str]:
    """What the caller's metadata says in words, and over it what the caller's key says."""
    said = request.metadata if isinstance(request, SamplingRequest) else {}
    if not said:
        return caller.tags
    tags = [
        (name, value)
        for name, value in said.items()
        if isinstance(value, str) and len(name) <= _LONGEST_TAG and len(value) <= _LONGEST_TAG
    ]
    return {**dict(tags[:_MOST_TAGS]), **caller.tags}
