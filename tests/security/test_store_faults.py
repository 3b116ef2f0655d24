"""What may happen to the store of a running gateway: it never opens, and never overspends.

`make fuzz` runs more schedules; FAULT_SCHEDULES says how many.
"""

import os
import random
from collections.abc import Callable, Generator, Sequence
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
OLDER: tuple[Fault, ...] = (stores.replaced_by_older, stores.overwritten)
UNWRITABLE: tuple[Fault, ...] = (stores.disk_full,)
UNNOTICED: tuple[Fault, ...] = (stores.without_temporary_folder,)
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


def refuses_during(fault: Fault, world: World, dice: random.Random) -> None:
    """Nothing is served while the fault lasts, whatever is killed meanwhile."""
    if fault in OLDER:
        stores.until_recorded(world)
    with world.in_flight() as ended, fault(world):
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
    assert set(ended) <= {200, 429, 503, None}


def serves_during(fault: Fault, world: World, dice: random.Random) -> None:
    """The fault changes nothing that a caller sees, also when workers are killed."""
    with fault(world):
        world.serves()
        if world.workers > 1:
            with world.in_flight() as ended:
                world.kill_worker(dice.randrange(world.workers))
            assert set(ended) <= {200, 429, 503, None}
        world.serves()


def suffer(fault: Fault, world: World, dice: random.Random) -> None:
    if fault is stores.locked:
        world.waits(to_the_end=SCHEDULES > 1)
    elif fault in UNNOTICED:
        serves_during(fault, world, dice)
    else:
        refuses_during(fault, world, dice)


def share(faults: Sequence[Fault], workers: int) -> Sequence[Fault]:
    """Those of a schedule: all, or where only one is tried, half with each number of workers."""
    return faults if SCHEDULES > 1 else faults[workers - 1 :: 2]


@pytest.mark.schedules
@pytest.mark.parametrize("seed", range(SCHEDULES))
@pytest.mark.parametrize("world", [1, 2], indirect=True)
def test_faults_in_any_order(world: World, seed: int) -> None:
    dice = random.Random(seed)
    begin(world)
    faults = [*MOVED, *IN_PLACE, *UNWRITABLE, stores.locked, *UNNOTICED]
    dice.shuffle(faults)
    for fault in share(faults, world.workers):
        try:
            suffer(fault, world, dice)
        except BaseException as error:
            error.add_note(f"during {getattr(fault, '__name__', fault)}\n{world.log.read_text()}")
            raise
        if world.process is None:
            world.start()
        world.serves()
        if dice.random() < 0.5:
            with world.in_flight() as ended:
                world.kill()
            # A worker may still refuse after the fault before.
            assert set(ended) <= {429, 503, None}
            world.start()
            world.serves()
    # The whole budget was there once.
    while (answer := world.ask(world.key)).status_code == 200:
        pass
    assert answer.status_code == 429
    assert world.upstream.asked <= ADMITTED
