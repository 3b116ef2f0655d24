"""A process with a ledger, as the tests start several of them on one file.

    python -m tests.budget.worker JOB PATH [ARGUMENT ...]

It prints one JSON document. Those that are started together wait for a line on standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

from penstock.budget.entries import Hold
from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite import schema
from penstock.contract.errors import BudgetExceeded, PenstockError
from penstock.storage.sqlite import connect as connecting
from penstock.storage.sqlite.connect import connect
from tests.budget.support import A, admitted, charge


async def reserve_at_once(path: Path, number: str, nanos: str) -> object:
    """Concurrent requests of equal cost, all settled in full: how many got through."""
    async with await Ledger.open(path) as ledger:
        _wait_for_the_others()
        holds = await admitted(ledger, int(number), int(nanos))
        await asyncio.gather(*(ledger.settle(hold, [charge(int(nanos))]) for hold in holds))
        return len(holds)


async def spend_at_random(path: Path, seed: str) -> object:
    """Concurrent requests of random costs, settled below their holds: what was refused, and why."""
    luck = random.Random(seed)

    async def request(ledger: Ledger, number: int, asked: int, cost: int) -> BudgetExceeded | None:
        try:
            hold = await ledger.reserve(f"{seed}-{number}", [(A, asked)])
        except BudgetExceeded as refusal:
            return refusal
        await ledger.settle(hold, [charge(cost)] if cost else [])
        return None

    async with await Ledger.open(path) as ledger:
        _wait_for_the_others()
        asks = [luck.randrange(1, 100) for _ in range(200)]
        answers = await asyncio.gather(
            *(
                request(ledger, number, asked, luck.randrange(asked + 1))
                for number, asked in enumerate(asks)
            )
        )
        return [
            (answer.asked_nanos, answer.remaining_nanos) for answer in answers if answer is not None
        ]


async def fill_the_disk(path: Path, how: str) -> object:
    """Spend until the disk is full, then make room: what was said, and what is in the ledger."""
    async with await Ledger.open(path, lease_s=3600) as ledger:
        await ledger.set_budget(Budget(name="total", limit_nanos=10**9))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
        open_hold: Hold | None = None
        errors: list[tuple[str, bool, str]] = []
        answered = 0
        while len(errors) < 2:
            try:
                hold = open_hold or await ledger.reserve(f"r{answered}", [(A, 10)])
                open_hold = None
                answered += 1
                await ledger.settle(hold, [charge(7)])
                # The next one is held already, so that it is the settlement that meets no room.
                open_hold = await ledger.reserve(f"r{answered}", [(A, 10)])
            except PenstockError as error:
                errors.append((type(error).__name__, error.retryable, str(error)))
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        else:
            subprocess.run(["mount", "-o", "remount,size=20m", str(path.parent)], check=True)
        if open_hold is not None:
            answered += 1
            await ledger.settle(open_hold, [charge(7)])
        await ledger.tend()
        (balance,) = await ledger.balances()
        return {
            "errors": errors,
            "answered": answered,
            "used": balance.used_nanos,
            "held": balance.held_nanos,
            "differences": [str(each) for each in await ledger.verify()],
        }


async def try_to_open(path: Path) -> object:
    """What an attempt to use the file says."""
    try:
        async with await Ledger.open(path) as ledger:
            await ledger.reserve("r", [(A, 1)])
    except PenstockError as error:
        return [type(error).__name__, str(error)]
    return None


async def migrate_and_die(path: Path, when: str) -> object:
    """Begin to bring the file up, and get killed at this point of it."""
    connection = connect(path, "normal")

    def die(*_: object) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def backing_up(status: int, remaining: int, total: int) -> None:
        die()

    class Slow(sqlite3.Connection):
        """Copies a page at a time, and not beyond the first."""

        def backup(self, target: sqlite3.Connection, **_: object) -> None:
            super().backup(target, pages=1, progress=backing_up)

    if when == "copying":
        connecting.connect_to_read = lambda path: sqlite3.connect(path, factory=Slow)
    migrations = [list(each) for each in schema.MIGRATIONS]
    if when == "changing":
        connection.create_function("die", 0, die)
        migrations[-1].append("SELECT die()")
    connecting.prepare(connection, path, migrations, schema.LEDGER_META)
    die()


async def call_for_ever(path: Path, port: str, name: str) -> object:
    """Requests to a provider without end; somebody kills this process."""
    async with await Ledger.open(path) as ledger:

        async def caller(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            for turn in range(10**9):
                request_id = f"{name}-{number}-{turn}"
                try:
                    hold = await ledger.reserve(request_id, [(A, 1000)])
                except BudgetExceeded:
                    continue
                writer.write(f"{request_id}\n".encode())
                cost = int(await reader.readline())
                await ledger.settle(hold, [charge(cost)])

        await asyncio.gather(*map(caller, range(16)))


def _wait_for_the_others() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


JOBS: dict[str, Callable[..., Coroutine[None, None, object]]] = {
    job.__name__: job
    for job in (
        reserve_at_once,
        spend_at_random,
        fill_the_disk,
        try_to_open,
        migrate_and_die,
        call_for_ever,
    )
}

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        work = JOBS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
        sys.stdout.write(json.dumps(asyncio.run(work)))
