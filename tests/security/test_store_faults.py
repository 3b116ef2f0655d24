"""What may happen to the store of a running gateway: it never opens, and never overspends.

`make fuzz` runs more schedules; FAULT_SCHEDULES says how many.
"""

import os
import random
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.security import stores
from tests.security.stores import ADMITTED, Refused, World

Fault = Callable[[World], AbstractContextManager[None]]
MOVED: tuple[Fault, ...] = (
    stores.missing,
    stores.all_missing,
    stores.replaced_by_empty,
    stores.replaced_by_another,
    stores.replaced_by_older,
)
IN_PLACE: tuple[Fault, ...] = (stores.truncated, stores.overwritten, stores.emptied)
"""What a process that has the file open refuses until it ends."""
UNWRITABLE: tuple[Fault, ...] = (stores.disk_full,)
SHORT = 3
"""So many faults of a schedule, where only one is tried."""
SCHEDULES = int(os.environ.get("FAULT_SCHEDULES", "1"))


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[World]:
    made = World(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


def begin(world: World) -> None:
    world.make_key()
    world.start()
    stores.backup(world)
    assert world.ask(world.key).status_code == 200
    world.holds()


def refuses_to_start(world: World) -> None:
    with pytest.raises(Refused) as caught:
        world.start()
    assert caught.value.code == 2
    assert "penstock storage accept" in caught.value.log


@pytest.mark.schedules
@pytest.mark.parametrize("seed", range(SCHEDULES))
@pytest.mark.parametrize("world", [1, 2], indirect=True)
def test_faults_in_any_order(world: World, seed: int) -> None:
    dice = random.Random(seed)
    begin(world)
    faults = [*MOVED, *IN_PLACE, *UNWRITABLE]
    dice.shuffle(faults)
    for fault in faults if SCHEDULES > 1 else faults[:SHORT]:
        with fault(world):
            # What is not noticed by a look at the file is noticed by the next transaction.
            world.until_all_say(503)
            world.refuses()
            again = fault not in UNWRITABLE
            what = dice.choice(["nothing", "worker", "restart"] if again else ["nothing"])
            if what == "worker" and world.workers > 1:
                world.kill_worker(dice.randrange(world.workers))
                world.refuses()
            elif what == "restart":
                world.kill()
                refuses_to_start(world)
        if world.process is None:
            world.start()
        world.serves()
        if dice.random() < 0.5:
            world.kill()
            world.start()
            world.serves()
    # The whole budget was there once.
    while (answer := world.ask(world.key)).status_code == 200:
        pass
    assert answer.status_code == 429
    assert world.upstream.asked <= ADMITTED
