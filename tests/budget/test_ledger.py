"""What a ledger does for one request after the other."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.budget.entries import Charge
from penstock.budget.ledger import Ledger
from penstock.budget.pricing.amounts import MOST
from penstock.budget.reports import BudgetWarning, HistoryFilter
from penstock.budget.rules import Budget
from penstock.contract.errors import BudgetExceeded, ConfigurationError
from penstock.contract.metadata import Usage
from tests.budget.support import NOON, A, B, books, charge

TOTAL = Budget(name="total", limit_nanos=1000, period="day")


async def test_a_request_is_held_and_settled_to_what_it_cost(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.ledger.reserve("r1", [(A, 300), (B, 500)], key="ci", tags={"team": "blue"})
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos) == (0, 500)
        assert balance.remaining_nanos == 500
        at.clock.now += 5
        settlement = await at.ledger.settle(hold, [charge(120, B)])
        assert (settlement.recorded, settlement.amount_nanos) == (True, 120)
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos, balance.overdrawn) == (120, 0, False)
        held, settled = await at.entries()
    assert (held.kind, held.at, held.amount_nanos, held.estimated) == ("hold", NOON, 500, True)
    assert (settled.kind, settled.at, settled.held_at) == ("settle", NOON + 5, NOON)
    assert settled.hold == held.id
    for entry in (held, settled):
        assert (entry.request_id, entry.key, entry.tags) == ("r1", "ci", {"team": "blue"})
        assert (entry.provider, entry.model) == ("b", "m")
    assert (settled.input_tokens, settled.output_tokens, settled.cached_tokens) == (100, 20, 30)
    assert (settled.cache_write_tokens, settled.reasoning_tokens) == (4, 5)
    assert (settled.price, settled.price_source) == ("input 1, output 2", "test")
    assert (settled.amount_nanos, settled.estimated) == (120, False)


async def test_without_a_charge_a_hold_is_released(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.ledger.settle(await at.hold(1000))
        assert (await at.balance()).remaining_nanos == 1000
        assert [entry.kind for entry in await at.entries()] == ["hold", "release"]


async def test_the_first_settlement_counts_and_a_second_writes_nothing(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(500)
        assert (await at.ledger.settle(hold, [charge(100)])).recorded
        assert not (await at.ledger.settle(hold, [charge(400)])).recorded
        assert not (await at.ledger.settle(hold)).recorded
        assert (await at.balance()).used_nanos == 100
        assert len(await at.entries()) == 2


async def test_each_call_of_a_request_is_an_entry_at_its_own_target(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.ledger.set_budget(Budget(name="of b", limit_nanos=900, provider="b"))
        hold = await at.ledger.reserve("r", [(A, 400), (B, 600)])
        await at.ledger.settle(hold, [charge(50, A, estimated=True), charge(200, B)])
        assert (await at.balance()).used_nanos == 250
        assert (await at.balance("of b")).used_nanos == 200
        rows = await at.ledger.usage("provider")
        assert [(row.name, row.requests, row.amount_nanos) for row in rows] == [
            ("b", 1, 200),
            ("a", 1, 50),
        ]
        (total,) = await at.ledger.usage()
        assert (total.requests, total.amount_nanos, total.estimated_nanos) == (1, 250, 50)
        assert (total.input_tokens, total.output_tokens, total.cached_tokens) == (200, 40, 60)


async def test_usage_adds_up_by_the_values_of_a_tag(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        tags = [{"team": "a"}, {"team": "b", 'odd."$[0]': "x"}, {}, {"team": "a"}]
        for number, each in enumerate(tags, 1):
            hold = await at.ledger.reserve(f"r{number}", [(A, 100)], tags=each)
            await at.ledger.settle(hold, [charge(10 * number)])

        async def rows(tag: str) -> list[tuple[str | None, int, int]]:
            found = await at.ledger.usage(tag=tag)
            return [(row.name, row.requests, row.amount_nanos) for row in found]

        assert await rows("team") == [("a", 2, 50), (None, 1, 30), ("b", 1, 20)]
        assert await rows('odd."$[0]') == [(None, 3, 80), ("x", 1, 20)]
        assert await rows("nothing") == [(None, 4, 100)]
        with pytest.raises(ValueError, match="by='key' and tag='team': give one of them"):
            await at.ledger.usage("key", tag="team")


async def test_what_costs_more_than_was_held_is_recorded_and_overdraws(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        settlement = await at.ledger.settle(await at.hold(1000, request_id="dear"), [charge(1500)])
        assert settlement.overdrawn == ("total",)
        balance = await at.balance()
        assert balance.overdrawn
        assert (balance.used_nanos, balance.remaining_nanos) == (1500, -500)
        with pytest.raises(BudgetExceeded) as caught:
            await at.hold(1)
        assert caught.value.remaining_nanos == -500
    assert "request dear has cost $0.0000015, and $0.000001 were held for it" in caplog.text
    assert "request dear has overdrawn: total" in caplog.text


async def test_a_refusal_carries_the_request_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.ledger.set_budget(Budget(name="narrow", limit_nanos=10, provider="a"))
        with pytest.raises(BudgetExceeded) as caught:
            await at.hold(11, request_id="r7")
        assert (caught.value.budget, caught.value.request_id) == ("narrow", "r7")
        assert (await at.balance()).held_nanos == 0
        assert await at.entries() == []


async def test_a_spent_provider_is_left_out_while_another_serves(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(Budget(name="of a", limit_nanos=10, provider="a"))
        hold = await at.ledger.reserve("r", [(A, 11), (B, 900)])
        assert hold.targets == (B,)
        assert [(each.target, each.budget) for each in hold.left_out] == [(A, "of a")]


async def test_a_request_without_any_budget_is_recorded_too(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.spend(70, request_id="free")
        assert [entry.kind for entry in await at.entries()] == ["hold", "settle"]
        assert [row.amount_nanos for row in await at.ledger.usage("model")] == [70]


async def test_a_period_rolls_over_by_itself(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.spend(1000)
        with pytest.raises(BudgetExceeded) as caught:
            await at.hold(1)
        assert caught.value.retry_after == 12 * 3600
        at.clock.now += caught.value.retry_after
        await at.spend(1000)
        assert (await at.balance()).used_nanos == 1000


async def test_a_request_belongs_to_the_period_in_which_it_was_admitted(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(800)
        at.clock.now += 12 * 3600
        await at.spend(900)
        await at.ledger.settle(hold, [charge(700)])
        assert (await at.balance()).used_nanos == 900
        at.clock.now = NOON
        assert (await at.balance()).used_nanos == 700


async def test_a_clock_that_steps_back_goes_on_with_the_earlier_period(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.spend(600)
        at.clock.now += 12 * 3600
        await at.spend(800)
        at.clock.now -= 12 * 3600
        with pytest.raises(BudgetExceeded):
            await at.hold(401)
        await at.spend(400)
        at.clock.now += 12 * 3600
        with pytest.raises(BudgetExceeded):
            await at.hold(201)


async def test_a_threshold_warns_once_a_period_and_again_in_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    budget = Budget(name="soft", limit_nanos=100, period="day", hard=False, warn_at=(0.5,))
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(budget)
        await at.spend(49)
        assert at.warnings == []
        await at.spend(1)
        await at.spend(1)
        assert [warning.threshold_nanos for warning in at.warnings] == [50]
        await at.spend(500)
        assert [warning.threshold_nanos for warning in at.warnings] == [50, 100]
        await at.spend(500)
        at.clock.now += 86400
        await at.spend(60)
        assert [warning.threshold_nanos for warning in at.warnings] == [50, 100, 50]
    (last,) = at.warnings[2:]
    assert (last.budget, last.used_nanos, last.limit_nanos) == ("soft", 60, 100)
    assert last.resets_at is not None
    assert last.resets_at > at.clock.now
    assert caplog.text.count("budget 'soft'") == 3


async def test_a_watcher_that_fails_does_not_fail_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(warning: BudgetWarning) -> None:
        raise ZeroDivisionError(warning.budget)

    async with await Ledger.open(tmp_path / "x.db", on_warning=fail) as ledger:
        await ledger.set_budget(Budget(name="b", limit_nanos=10))
        settlement = await ledger.settle(await ledger.reserve("r", [(A, 9)]), [charge(9)])
    assert settlement.recorded
    assert "ZeroDivisionError: b" in caplog.text


async def test_a_new_budget_counts_what_its_period_has_used_before(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        at.clock.now -= 86400
        await at.spend(1)
        at.clock.now += 86400
        await at.spend(20)
        await at.spend(300, B)
        hold = await at.ledger.reserve("r", [(B, 5000)], key="ci", tags={"team": "blue"})
        await at.ledger.settle(hold, [charge(4000, B)])
        await at.ledger.set_budget(TOTAL)
        await at.ledger.set_budget(Budget(name="of b", limit_nanos=1, provider="b"))
        await at.ledger.set_budget(Budget(name="b/m", limit_nanos=1, model="b/m", key="ci"))
        await at.ledger.set_budget(Budget(name="blue", limit_nanos=1, tags={"team": "blue"}))
        await at.ledger.set_budget(Budget(name="red", limit_nanos=1, tags={"team": "red"}))
        await at.ledger.set_budget(Budget(name="ever", limit_nanos=1, period="forever"))
        used = {each.budget.name: each.used_nanos for each in await at.ledger.balances()}
        assert used == {
            "total": 4320, "of b": 4300, "b/m": 4000, "blue": 4000, "red": 0, "ever": 4321
        }  # fmt: skip
        (usage,) = await at.ledger.usage()
        assert usage.amount_nanos == 4321


async def test_a_request_under_way_is_charged_to_a_budget_that_came_meanwhile(
    tmp_path: Path,
) -> None:
    async with books(tmp_path / "x.db") as at:
        hold = await at.hold(500)
        await at.ledger.set_budget(TOTAL)
        await at.ledger.settle(hold, [charge(300)])
        assert (await at.balance()).used_nanos == 300


async def test_a_limit_is_changed_without_losing_the_balance(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.spend(900)
        hold = await at.hold(100)
        await at.ledger.set_budget(Budget(name="total", limit_nanos=2000, period="day"))
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos, balance.limit_nanos) == (900, 100, 2000)
        await at.ledger.settle(hold, [charge(90)])
        # Another calendar counts the same money in its own period.
        await at.ledger.set_budget(Budget(name="total", limit_nanos=2000, period="week"))
        assert (await at.balance()).used_nanos == 990


async def test_declared_budgets_come_and_go_and_those_set_by_hand_stay(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:

        async def limits() -> dict[str, int]:
            return {each.budget.name: each.limit_nanos for each in await at.ledger.balances()}

        one, two = Budget(name="one", limit_nanos=1), Budget(name="two", limit_nanos=2)
        await at.ledger.declare_budgets([one, two])
        await at.ledger.set_budget(Budget(name="two", limit_nanos=22))
        await at.ledger.declare_budgets([two, Budget(name="three", limit_nanos=3)])
        assert await limits() == {"two": 22, "three": 3}
        assert await at.ledger.remove_budget("two")
        assert await limits() == {"two": 2, "three": 3}
        assert await at.ledger.remove_budget("two")
        assert not await at.ledger.remove_budget("two")
        await at.ledger.declare_budgets([two])
        assert await limits() == {"two": 2}


async def test_a_budget_removed_while_requests_run_does_no_harm(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(500)
        await at.ledger.remove_budget("total")
        assert (await at.ledger.settle(hold, [charge(400)])).recorded
        assert await at.ledger.balances() == []


async def test_a_reset_begins_anew_and_keeps_what_is_held(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.spend(900)
        await at.hold(50)
        await at.ledger.reset("total")
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos) == (0, 50)
        await at.spend(850)
        assert [warning.used_nanos for warning in at.warnings] == [900, 850]
        (entry,) = [each for each in await at.entries() if each.kind == "reset"]
        assert (entry.budget, entry.amount_nanos) == ("total", -900)
        with pytest.raises(ConfigurationError, match="no budget 'totl'; there are: total"):
            await at.ledger.reset("totl")


async def test_adjustments_correct_one_budget_or_all_that_cover_it(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.ledger.set_budget(Budget(name="of b", limit_nanos=100, provider="b"))
        await at.ledger.adjust(70, "the invoice says more", target=B)
        await at.ledger.adjust(-20, "a gift", budget="total")
        assert (await at.balance()).used_nanos == 50
        assert (await at.balance("of b")).used_nanos == 70
        # What is done to a single budget is no money that was spent.
        (usage,) = await at.ledger.usage("provider")
        assert (usage.name, usage.amount_nanos, usage.requests) == ("b", 70, 0)
        with pytest.raises(ConfigurationError, match="no budget 'x'"):
            await at.ledger.adjust(1, "", budget="x")


async def test_history_is_paged_without_gap_while_entries_are_added(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        for number in range(5):
            await at.spend(number, request_id=f"r{number}")
            at.clock.now += 10
        seen: list[int] = []
        cursor = None
        while True:
            page = await at.ledger.history(cursor=cursor, limit=3)
            seen += [entry.id for entry in page.entries]
            await at.spend(1, request_id="later")
            cursor = page.next
            if cursor is None:
                break
        assert seen == list(range(10, 0, -1))
        page = await at.ledger.history(HistoryFilter(request_id="r2"), oldest_first=True)
        assert [entry.kind for entry in page.entries] == ["hold", "settle"]
        page = await at.ledger.history(HistoryFilter(since=NOON + 10, until=NOON + 30, kind="hold"))
        assert [entry.request_id for entry in page.entries] == ["r2", "r1"]
        assert page.next is None
        (usage,) = await at.ledger.usage("key", since=NOON + 10, until=NOON + 30)
        assert (usage.name, usage.requests, usage.amount_nanos) == (None, 2, 3)


async def test_a_ledger_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.spend(400)
        hold = await at.hold(500)
    async with books(tmp_path / "x.db") as at:
        assert (await at.balance()).remaining_nanos == 100
        await at.ledger.settle(hold, [charge(1)])
        assert (await at.balance()).remaining_nanos == 599


async def test_a_balance_that_was_tampered_with_is_found(tmp_path: Path) -> None:
    def tamper(*statements: str) -> None:
        with closing(sqlite3.connect(tmp_path / "x.db")) as other, other:
            for statement in statements:
                other.execute(statement)

    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        await at.spend(400)
        hold = await at.hold(10)
        tamper("UPDATE ledger_balances SET used = 399", "DELETE FROM ledger_holds")
        balance, missing = await at.ledger.verify()
        assert "total" in balance.subject
        assert (balance.recorded, balance.computed) == ("used 399, held 10", "used 400, held 10")
        assert missing.subject == f"hold {hold.id}"
        tamper(
            "UPDATE ledger_balances SET used = 400",
            f"INSERT INTO ledger_holds VALUES ({hold.id}, 0, 0, NULL)",
            "INSERT INTO ledger_holds VALUES (99, 0, 0, NULL)",
        )
        (unknown,) = await at.ledger.verify()
        assert (unknown.subject, unknown.recorded) == ("hold 99", "open")
        tamper("DELETE FROM ledger_holds WHERE id = 99")


@pytest.mark.parametrize("nanos", [-1, MOST + 1, 1.0, True])
async def test_amounts_that_cannot_be_are_refused(tmp_path: Path, nanos: int) -> None:
    async with books(tmp_path / "x.db") as at:
        with pytest.raises(ValueError, match=r"the cost of a/m=.*whole nano-dollars"):
            await at.hold(nanos)
        with pytest.raises(ValueError, match="cost_nanos="):
            Charge(A, Usage(), nanos, "test")
        with pytest.raises(ValueError, match="candidates is empty"):
            await at.ledger.reserve("r", [])
        assert await at.entries() == []


async def test_wrong_questions_are_answered_with_what_would_be_right(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        with pytest.raises(ValueError, match="by='colour': give 'provider'"):
            await at.ledger.usage("colour")  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="limit=0: give 1 to 10000"):
            await at.ledger.history(limit=0)
        with pytest.raises(ValueError, match=r"lease_s=1: give 120\.0 or more"):
            await at.ledger.reserve("r", [(A, 1)], lease_s=1)
        with pytest.raises(ValueError, match=r"amount_nanos=1\.5"):
            await at.ledger.adjust(1.5, "")  # pyright: ignore[reportArgumentType]


async def test_one_request_that_cannot_be_written_does_not_take_others_with_it(
    tmp_path: Path,
) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        answers = await asyncio.gather(
            *(
                at.ledger.reserve("\ud800" if each == 3 else f"r{each}", [(A, 100)])
                for each in range(8)
            ),
            return_exceptions=True,
        )
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [type(error) for error in failed] == [UnicodeEncodeError]
        assert (await at.balance()).held_nanos == 700
