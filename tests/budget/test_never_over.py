"""No budget is ever spent beyond its limit, and nothing is refused that fits."""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.budget.entries import Charge, Hold
from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.contract.errors import BudgetExceeded
from penstock.contract.ports import Target
from tests.budget.support import A, B, admitted, books, charge

ROOT = Path(__file__).parents[2]
Refusals = list[list[tuple[int, int]]]


def together(job: str, *arguments: list[str]) -> list[object]:
    """Run this job in as many processes as there are arguments, all at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.budget.worker", job, *each],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for each in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(answer) for answer in answers]


async def test_of_a_thousand_at_once_exactly_those_that_fit_are_admitted(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=137 * 1000 + 999))
        holds = await admitted(at.ledger, 1000, 1000)
        assert len(holds) == 137
        balance = await at.balance()
        assert (balance.held_nanos, balance.used_nanos) == (137_000, 0)
        await asyncio.gather(*(at.ledger.settle(hold, [charge(1000)]) for hold in holds))
        assert len(await admitted(at.ledger, 100, 1000)) == 0
        assert (await at.balance()).used_nanos == 137_000


async def test_of_a_thousand_in_four_processes_exactly_those_that_fit_are_admitted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    async with books(path) as at:
        await at.ledger.set_budget(
            Budget(name="total", limit_nanos=137 * 1000 + 999, period="forever")
        )
    counts = together("reserve_at_once", *[[str(path), "250", "1000"]] * 4)
    assert sum(int(str(count)) for count in counts) == 137
    async with books(path) as at:
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos) == (137_000, 0)


async def test_random_costs_in_four_processes_never_pass_the_limit(tmp_path: Path) -> None:
    path, limit = tmp_path / "x.db", 9000
    async with books(path) as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=limit, period="forever"))
    answers = together("spend_at_random", *[[str(path), str(seed)] for seed in range(4)])
    async with books(path) as at:
        taken = 0
        for entry in await at.entries():
            taken += sum(posting.used + posting.held for posting in entry.postings)
            assert taken <= limit
        assert (await at.balance()).held_nanos == 0
    refusals = [each for some in msgspec.convert(answers, Refusals) for each in some]
    assert refusals
    assert all(asked > remaining for asked, remaining in refusals)


class Model:
    """What a ledger must do, in the plainest form: one operation after the other."""

    def __init__(self, limits: dict[str | None, int]) -> None:
        self.limits = limits
        self.taken = dict.fromkeys(limits, 0)

    def covering(self, target: Target) -> list[str | None]:
        return [scope for scope in self.limits if scope in (None, target.provider)]

    def fitting(self, candidates: list[tuple[Target, int]]) -> list[Target]:
        return [
            target
            for target, cost in candidates
            if not cost
            or all(
                self.taken[scope] + cost <= self.limits[scope] for scope in self.covering(target)
            )
        ]

    def held(self, candidates: list[tuple[Target, int]]) -> dict[str | None, int]:
        fitting = self.fitting(candidates)
        amounts: dict[str | None, int] = {}
        for target, cost in candidates:
            for scope in self.covering(target) if target in fitting else ():
                amounts[scope] = max(cost, amounts.get(scope, 0))
        return amounts


COSTS = st.integers(0, 60)
CANDIDATES = st.lists(
    st.sampled_from([A, B]).flatmap(lambda target: st.tuples(st.just(target), COSTS)),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each[0],
)
WAVES = st.lists(
    st.lists(
        st.tuples(CANDIDATES, st.floats(0, 1), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)
@given(
    waves=WAVES,
    limits=st.fixed_dictionaries({None: st.integers(0, 300)}, optional={"a": st.integers(0, 150)}),
)
def test_concurrent_requests_get_what_they_would_get_one_after_the_other(
    waves: list[list[tuple[list[tuple[Target, int]], float, bool]]],
    limits: dict[str | None, int],
) -> None:
    async def run(ledger: Ledger) -> None:
        for scope, limit in limits.items():
            await ledger.set_budget(
                Budget(name=scope or "all", limit_nanos=limit, provider=scope, period="forever")
            )
        model = Model(limits)
        number = 0
        for wave in waves:
            # The order of a wave is that in which its tasks begin, whatever is committed at once.
            answers = await asyncio.gather(
                *(
                    ledger.reserve(f"r{number + each}", candidates)
                    for each, (candidates, _, _) in enumerate(wave)
                ),
                return_exceptions=True,
            )
            number += len(wave)
            settling: list[tuple[Hold, Charge]] = []
            changes: list[tuple[str | None, int]] = []
            for answer, (candidates, share, first) in zip(answers, wave, strict=True):
                fitting = model.fitting(candidates)
                if isinstance(answer, BudgetExceeded):
                    assert not fitting
                    continue
                assert isinstance(answer, Hold)
                assert list(answer.targets) == fitting
                held = model.held(candidates)
                for scope, amount in held.items():
                    model.taken[scope] += amount
                target = fitting[0 if first else -1]
                cost = int(dict(candidates)[target] * share)
                settling.append((answer, charge(cost, target)))
                for scope, amount in held.items():
                    charged = cost if scope in model.covering(target) else 0
                    changes.append((scope, charged - amount))
            await asyncio.gather(*(ledger.settle(hold, [each]) for hold, each in settling))
            for scope, change in changes:
                model.taken[scope] += change
            for balance in await ledger.balances():
                assert balance.used_nanos == model.taken[balance.budget.provider]
                assert balance.held_nanos == 0
                assert balance.used_nanos <= balance.limit_nanos
        assert await ledger.verify() == []

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            ledger = await Ledger.open(Path(folder) / "x.db")
            try:
                await run(ledger)
            finally:
                await ledger.aclose()

    asyncio.run(main())


MIXED = st.lists(
    st.lists(
        st.one_of(
            st.tuples(st.just("reserve"), COSTS),
            st.tuples(st.just("settle"), st.floats(0, 1)),
            st.tuples(st.just("release"), st.floats(0, 1)),
        ),
        min_size=1,
        max_size=15,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(waves=MIXED, limit=st.integers(0, 200))
def test_nothing_is_refused_that_fits_beside_the_holds_of_that_moment(
    waves: list[list[tuple[str, float]]], limit: int
) -> None:
    """Requests begin while others end; all of a wave are in one group commit or in several."""

    async def run(ledger: Ledger) -> None:
        await ledger.set_budget(Budget(name="total", limit_nanos=limit, period="forever"))
        taken = 0
        held: list[Hold] = []
        for wave in waves:
            running: list[asyncio.Task[Hold]] = []
            fits: list[tuple[int, bool, int]] = []
            ending: list[asyncio.Task[object]] = []
            for kind, value in wave:
                if kind == "reserve":
                    nanos = int(value)
                    # Begun in this order, which is the order in which the ledger hears of them.
                    asked = ledger.reserve(f"r{len(running)}", [(A, nanos)])
                    running.append(asyncio.ensure_future(asked))
                    fits.append((nanos, not nanos or taken + nanos <= limit, limit - taken))
                    taken += nanos if fits[-1][1] else 0
                elif held:
                    hold = held.pop(int(value * (len(held) - 1)))
                    cost = int(hold.amount_nanos * value) if kind == "settle" else 0
                    charges = [charge(cost)] if kind == "settle" else []
                    ending.append(asyncio.ensure_future(ledger.settle(hold, charges)))
                    taken += cost - hold.amount_nanos
            answers = await asyncio.gather(*running, return_exceptions=True)
            await asyncio.gather(*ending)
            for answer, (nanos, fit, left) in zip(answers, fits, strict=True):
                assert isinstance(answer, Hold if fit else BudgetExceeded), (answer, nanos, left)
                if isinstance(answer, Hold):
                    held.append(answer)
                else:
                    assert isinstance(answer, BudgetExceeded)
                    assert (answer.asked_nanos, answer.remaining_nanos) == (nanos, left)
            (balance,) = await ledger.balances()
            assert balance.used_nanos + balance.held_nanos == taken <= limit

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            ledger = await Ledger.open(Path(folder) / "x.db")
            try:
                await run(ledger)
                assert await ledger.verify() == []
            finally:
                await ledger.aclose()

    asyncio.run(main())


async def test_a_budget_set_through_one_connection_binds_the_other_at_once(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as one, books(tmp_path / "x.db") as other:
        await other.spend(5)
        await one.ledger.set_budget(Budget(name="total", limit_nanos=10))
        with pytest.raises(BudgetExceeded):
            await other.hold(6)
        await other.spend(5)
        with pytest.raises(BudgetExceeded):
            await one.hold(1)
        await one.ledger.reset("total")
        await other.hold(10)
