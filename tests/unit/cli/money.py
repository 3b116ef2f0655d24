"""A ledger with a past, and a configuration whose calls cost something."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from penstock.budget.entries import Charge
from penstock.budget.ledger import Ledger
from penstock.config.settings import home
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target

PAID = """\
[providers.fake]
[models.default]
targets = ["fake/words-60"]
prices."fake/words-60" = { input = 3, output = 15 }
[models.free]
targets = ["fake/echo"]
"""
ONE_ANSWER = 903_000
"""What `penstock ask Count.` costs there: one token in, sixty out."""


def database() -> Path:
    """Where the ledger is when nobody says where."""
    return home() / "penstock.db"


def spend(
    *charges: tuple[float, str, int], key: str | None = None, estimated: bool = False
) -> None:
    """Write a past: at which moment, which `provider/model`, how many nano-dollars."""
    home().mkdir(exist_ok=True)
    asyncio.run(_spend(charges, key, estimated))


async def _spend(
    charges: Sequence[tuple[float, str, int]], key: str | None, estimated: bool
) -> None:
    for at, name, nanos in charges:
        ledger = await Ledger.open(database(), clock=lambda at=at: at)
        provider, _, model = name.partition("/")
        target = Target(provider, model)
        hold = await ledger.reserve("r", [(target, nanos)], key=key)
        charge = Charge(target, Usage(100, 20, 30), nanos, "test", estimated)
        await ledger.settle(hold, [charge])
        await ledger.aclose()
