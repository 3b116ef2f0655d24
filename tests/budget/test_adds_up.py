"""Whatever happens in whatever order, balances follow from entries, and the money is right."""

import asyncio
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given, settings

from penstock.budget.entries import Hold
from penstock.budget.rules import Budget
from penstock.contract.errors import BudgetExceeded
from tests.budget.support import A, B, Books, books, charge

LEASE_S = 100.0
AMOUNTS = st.integers(0, 50)
BUDGETS = st.builds(
    Budget,
    name=st.sampled_from(["one", "two"]),
    limit_nanos=st.integers(0, 500),
    period=st.sampled_from(["hour", "day", "forever"]),
    timezone=st.sampled_from(["UTC", "Asia/Kathmandu"]),
    provider=st.sampled_from([None, "a", "b"]),
    hard=st.booleans(),
)
TARGETS = st.sampled_from([A, B])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), TARGETS, AMOUNTS),
        st.tuples(st.just("settle"), TARGETS, AMOUNTS),
        st.tuples(st.just("release"), st.integers(0, 9)),
        st.tuples(st.just("budget"), BUDGETS),
        st.tuples(st.just("remove"), st.sampled_from(["one", "two"])),
        st.tuples(st.just("reset"), st.sampled_from(["one", "two"])),
        st.tuples(st.just("adjust"), TARGETS, st.integers(-20, 20)),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("wait"), st.sampled_from([-4000, -50, 30, 101, 4000, 90000])),
    ),
    max_size=40,
)


class Story:
    """Takes steps, and knows what must have been spent in the end."""

    def __init__(self, at: Books) -> None:
        self.at = at
        self.open: list[Hold] = []
        self.spent: dict[int, int] = {}
        self.adjusted = 0

    async def reserve(self, target: object, nanos: int) -> None:
        try:
            hold = await self.at.hold(nanos, B if target == B else A)
        except BudgetExceeded:
            return
        self.open.append(hold)

    async def settle(self, target: object, nanos: int) -> None:
        if self.open:
            hold = self.open.pop(nanos % len(self.open))
            found = await self.at.ledger.settle(hold, [charge(nanos, B if target == B else A)])
            assert found.recorded
            assert found.late == (hold.id in self.spent)
            self.spent[hold.id] = nanos

    async def release(self, place: int) -> None:
        if self.open:
            hold = self.open.pop(place % len(self.open))
            assert (await self.at.ledger.settle(hold)).recorded
            assert not (await self.at.ledger.settle(hold, [charge(7)])).recorded
            self.spent[hold.id] = 0

    async def budget(self, budget: Budget) -> None:
        await self.at.ledger.set_budget(budget)

    async def remove(self, name: str) -> None:
        await self.at.ledger.remove_budget(name)

    async def reset(self, name: str) -> None:
        if name in [each.budget.name for each in await self.at.ledger.balances()]:
            await self.at.ledger.reset(name)

    async def adjust(self, target: object, nanos: int) -> None:
        await self.at.ledger.adjust(nanos, "", target=B if target == B else A)
        self.adjusted += nanos

    async def sweep(self) -> None:
        for one in (await self.at.ledger.sweep()).expired:
            self.spent[one.hold] = one.amount_nanos

    async def wait(self, seconds: float) -> None:
        self.at.clock.now += seconds

    async def check(self) -> None:
        assert await self.at.ledger.verify() == []
        amounts = [row.amount_nanos for row in await self.at.ledger.usage()]
        assert sum(amounts) == sum(self.spent.values()) + self.adjusted
        for balance in await self.at.ledger.balances():
            assert balance.held_nanos >= 0


@settings(max_examples=60)
@given(steps=STEPS)
def test_balances_and_usage_are_right_after_any_story(
    steps: list[tuple[str, *tuple[object, ...]]],
) -> None:
    async def tell(folder: str) -> None:
        async with books(Path(folder) / "x.db", lease_s=LEASE_S) as at:
            story = Story(at)
            for name, *arguments in steps:
                await getattr(story, name)(*arguments)
            await story.check()
            at.clock.now += 10 * LEASE_S
            await story.sweep()
            # The clock may have been set back since a hold was made: its lease then begins anew.
            at.clock.now += LEASE_S
            await story.sweep()
            await story.check()
            assert all(balance.held_nanos == 0 for balance in await at.ledger.balances())

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(tell(folder))
