"""The thread that writes: shared by event loops, closed in order, and never in anybody's way."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from penstock.budget.entries import Hold
from penstock.budget.ledger import Ledger
from penstock.budget.ports import Reservation
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite import SqliteStore
from penstock.budget.stores.sqlite.transaction import Books
from penstock.budget.stores.sqlite.writer import GATHER_FROM
from penstock.contract.errors import BudgetExceeded, PenstockError
from tests.budget.support import NOON, A, asleep, books, charge
from tests.support.background import Timers, until


def counted_commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many holds are open at each commit from now on."""
    commits: list[int] = []
    commit = Books.commit

    def counting(self: Books) -> None:
        commits.append(self.open_holds)
        commit(self)

    monkeypatch.setattr(Books, "commit", counting)
    return commits


async def test_what_gathers_while_it_writes_goes_into_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = counted_commits(monkeypatch)
    async with books(tmp_path / "x.db") as at:
        await asyncio.gather(*(at.spend(1, request_id=f"r{each}") for each in range(200)))
    # Each of the 200 has two; how many share one depends on the machine.
    assert len(commits) < 200


async def test_while_many_holds_are_open_what_is_begun_together_is_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with books(tmp_path / "x.db") as at:
        held = [await at.hold(1, request_id=f"r{each}") for each in range(GATHER_FROM)]
        commits = counted_commits(monkeypatch)
        await asyncio.gather(*(at.ledger.settle(hold, [charge(1)]) for hold in held))
        assert commits == [0]


async def test_what_waits_for_company_is_written_before_the_end(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "x.db")
    ledger = Ledger(store, clock=lambda: NOON)
    held = [await ledger.reserve(f"r{each}", [(A, 1)]) for each in range(GATHER_FROM)]
    settling = [asyncio.ensure_future(ledger.settle(hold, [charge(1)])) for hold in held]
    await asyncio.sleep(0)
    await store.aclose()
    assert [(await each).recorded for each in settling] == [True] * GATHER_FROM


async def test_what_nobody_waits_for_is_written_with_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.budget.stores.sqlite.writer._LINGER_S", 600.0)
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=10))
        held = await at.hold(10)
        commits = counted_commits(monkeypatch)
        at.ledger.settle_soon(held, [charge(1)])
        # It is written before the one behind it is judged, which has room only because of that.
        again = await at.hold(9)
        assert len(commits) == 1
        at.ledger.settle_soon(again, [charge(2)])
        assert (await at.balance()).used_nanos == 3


async def repeated(ask: Callable[[], Awaitable[Balance]]) -> AsyncGenerator[Balance]:
    async with asyncio.timeout(30):
        while True:
            yield await ask()


async def test_what_nobody_waits_for_is_written_soon(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at, books(tmp_path / "x.db") as elsewhere:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=10))
        at.ledger.settle_soon(await at.hold(10), [charge(1)])
        other = await anext(
            balance async for balance in repeated(elsewhere.balance) if balance.used_nanos
        )
        assert (other.used_nanos, other.held_nanos) == (1, 0)


async def test_what_nobody_waits_for_is_written_before_the_end(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=10))
        at.ledger.settle_soon(await at.hold(10), [charge(1)])
    async with books(tmp_path / "x.db") as later:
        assert (await later.balance()).used_nanos == 1


async def test_what_a_loop_has_begun_that_ended_is_written_with_the_next(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "x.db")
    ledger = Ledger(store, clock=lambda: NOON)
    held = [await ledger.reserve(f"r{each}", [(A, 1)]) for each in range(GATHER_FROM)]

    def begin_and_leave() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave())
        loop.close()

    async def leave() -> None:
        Ledger(store, clock=lambda: NOON).settle_soon(held[0], [charge(1)])

    await asyncio.to_thread(begin_and_leave)
    assert (await ledger.settle(held[1], [charge(1)])).recorded
    assert not (await ledger.settle(held[0], [charge(1)])).recorded
    await store.aclose()


async def test_one_store_serves_the_loops_of_several_threads(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "x.db")
    await store.set_budget(Budget(name="total", limit_nanos=100), NOON)

    async def requests() -> int:
        ledger = Ledger(store, clock=lambda: NOON)
        answers = await asyncio.gather(
            *(ledger.reserve(f"r{each}", [(A, 1)]) for each in range(60)), return_exceptions=True
        )
        return sum(isinstance(answer, Hold) for answer in answers)

    counts = await asyncio.gather(
        *(asyncio.to_thread(lambda: asyncio.run(requests())) for _ in range(3))
    )
    assert sum(counts) == 100
    await store.aclose()


async def test_a_loop_that_has_ended_holds_up_nobody(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "x.db")

    def ignore(verdict: Hold | BudgetExceeded | Exception, unclaimed: bool) -> None:
        pass

    async def leave() -> None:
        store.reserve(Reservation("gone", [(A, 1)], None, {}, NOON, 60), ignore)

    await asyncio.to_thread(lambda: asyncio.run(leave()))
    ledger = Ledger(store, clock=lambda: NOON + 61)
    swept = await ledger.sweep()
    assert [one.request_id for one in swept.expired] == ["gone"]
    await store.aclose()


async def test_what_follows_a_request_and_fails_is_logged_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(verdict: Hold | BudgetExceeded | Exception, unclaimed: bool) -> None:
        raise ZeroDivisionError(unclaimed)

    store = await SqliteStore.open(tmp_path / "x.db")
    asked = Reservation("r", [(A, 1)], None, {}, NOON, 60)
    assert isinstance(await store.reserve(asked, fail), Hold)
    assert "what follows Reserve failed" in caplog.text
    await store.aclose()


def writers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "penstock-ledger"]


async def test_a_ledger_that_is_dropped_unclosed_leaves_no_thread(tmp_path: Path) -> None:
    before = set(writers())
    ledger = await Ledger.open(tmp_path / "x.db")
    await ledger.reserve("r", [(A, 1)])
    assert set(writers()) - before
    del ledger
    gc.collect()
    await until(lambda: not set(writers()) - before)


async def test_opening_that_is_given_up_leaves_no_thread(tmp_path: Path) -> None:
    before = set(writers())
    task = asyncio.create_task(SqliteStore.open(tmp_path / "x.db"))
    await until(lambda: bool(set(writers()) - before))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not set(writers()) - before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_ledger_from_before_a_fork_says_so(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "x.db")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.sweep(NOON)
            os.write(writing, b"no error")
        except PenstockError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    await asyncio.to_thread(os.waitpid, child, 0)
    with os.fdopen(reading, "rb") as pipe:
        assert b"was opened before this process was forked" in pipe.read()
    await store.aclose()


async def test_the_keeper_goes_on_when_the_store_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timers = Timers()
    store = await SqliteStore.open(tmp_path / "x.db")
    async with Ledger(store, clock=timers.clock, sleep=timers.sleep):
        await store.aclose()
        await asleep(timers, 1)
        timers.wake()
        await asleep(timers, 2)
        timers.wake()
        await asleep(timers, 3)
    assert caplog.text.count("the ledger could not be tended") == 2


async def test_many_charges_and_candidates_stay_one_request(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=10**6))
        hold = await at.ledger.reserve("r", [(A, nanos) for nanos in range(100)])
        assert hold.amount_nanos == 99
        settlement = await at.ledger.settle(hold, [charge(1) for _ in range(99)])
        assert settlement.amount_nanos == 99
        assert (await at.balance()).used_nanos == 99
        (usage,) = await at.ledger.usage()
        assert usage.requests == 1
