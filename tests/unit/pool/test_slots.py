"""Places at a target by example, and under any order of coming, going, cancelling and 429s."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Generator

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.pool.concurrency import Slots
from tests.support.clock import ManualClock


class Guest:
    """A task that takes a place and keeps it until it is told to go."""

    def __init__(self, house: "House", caller: str) -> None:
        self.caller = caller
        self.end = house.loop.create_future()
        self.afterwards: Callable[[], object] = lambda: None
        self.task = house.loop.create_task(self._run(house))

    async def _run(self, house: "House") -> None:
        async with house.slots.slot(self.caller):
            house.inside.append(self)
            house.entered.append(self.caller)
            try:
                await self.end
            finally:
                house.inside.remove(self)
        self.afterwards()


class House:
    """Slots on a loop that moves one iteration at a time, and what its guests saw."""

    def __init__(self, limit: int | None = None, loop: asyncio.AbstractEventLoop | None = None):
        self.loop = loop or asyncio.new_event_loop()
        self.clock = ManualClock()
        self.slots = Slots(limit, self.clock)
        self.guests: list[Guest] = []
        self.inside: list[Guest] = []
        self.entered: list[str] = []

    def step(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def settle(self) -> None:
        # Nothing here waits for more than a few callbacks, and nothing for the outside.
        for _ in range(8):
            self.step()

    def come(self, caller: str = "", times: int = 1) -> list[Guest]:
        guests = [Guest(self, caller) for _ in range(times)]
        self.guests += guests
        self.settle()
        return guests

    def go(self, *guests: Guest) -> None:
        for guest in guests:
            guest.end.set_result(None)
        self.settle()

    def cancel(self, *guests: Guest) -> None:
        done = [guest for guest in guests if guest.task.done()]
        for guest in guests:
            guest.task.cancel()
        self.settle()
        assert all(guest.task.cancelled() for guest in guests if guest not in done)

    def fail(self, guest: Guest) -> None:
        guest.end.set_exception(ConnectionError("reset"))
        self.settle()
        assert isinstance(guest.task.exception(), ConnectionError)

    def empty(self) -> None:
        """Everybody leaves in turn: whoever waits gets in, and nothing is left."""
        while self.inside:
            self.go(self.inside[0])
        assert (self.slots.in_flight, self.slots.waiting) == (0, 0)
        assert not asyncio.all_tasks(self.loop)

    def __enter__(self) -> "House":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel(*self.guests)
        self.loop.close()


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uv"])
def build(request: pytest.FixtureRequest) -> Generator["Build"]:
    """Makes a house; at the end everybody leaves it, and nothing may be left."""
    with contextlib.ExitStack() as houses:

        def house(limit: int | None) -> House:
            made = houses.enter_context(House(limit, request.param()))
            houses.callback(made.empty)
            return made

        yield house


Build = Callable[[int | None], House]


async def test_a_place_is_free_again_after_its_block() -> None:
    slots = Slots(1)
    for _ in range(3):
        async with slots.slot():
            assert (slots.in_flight, slots.waiting, slots.limit) == (1, 0, 1)
    assert slots.in_flight == 0


async def test_without_a_limit_nobody_waits() -> None:
    slots = Slots()
    for _ in range(10_000):
        # Entered without the loop: a coroutine that ends at once never suspends.
        with pytest.raises(StopIteration):
            slots.acquire().send(None)
    assert (slots.in_flight, slots.waiting, slots.limit) == (10_000, 0, None)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_that_lets_nobody_in_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=rf"limit={limit}: give 1 or more"):
        Slots(limit)


def test_who_comes_when_all_is_taken_waits_and_the_first_comes_first(build: Build) -> None:
    house = build(2)
    guests = house.come(times=5)
    assert house.inside == guests[:2]
    assert (house.slots.in_flight, house.slots.waiting) == (2, 3)
    house.go(guests[1])
    assert house.inside == [guests[0], guests[2]]
    house.go(guests[0], guests[2])
    assert house.inside == guests[3:]


def test_callers_take_turns_however_many_places_one_wants(build: Build) -> None:
    house = build(1)
    house.come("busy", times=6)
    house.come("small", times=2)
    house.come("late")
    while house.inside:
        house.go(house.inside[0])
    assert house.entered == [
        *("busy", "busy", "small", "late", "busy", "small", "busy", "busy", "busy")
    ]


def test_one_who_is_cancelled_while_waiting_is_forgotten(build: Build) -> None:
    house = build(1)
    first, second, third = house.come(times=3)
    house.cancel(second)
    assert (second.task.cancelled(), house.slots.waiting) == (True, 1)
    house.go(first)
    assert house.inside == [third]


def test_one_who_is_cancelled_with_the_place_in_hand_passes_it_on(build: Build) -> None:
    house = build(1)
    first, second, third = house.come(times=3)

    def cancel() -> None:
        assert (house.inside, house.slots.in_flight, house.slots.waiting) == ([], 1, 1)
        second.task.cancel()

    first.afterwards = cancel
    house.go(first)
    assert first.task.exception() is None
    assert second.task.cancelled()
    assert house.inside == [third]


@pytest.mark.parametrize("place_first", [True, False])
def test_a_cancel_in_the_moment_in_which_a_place_frees_costs_nobody_a_turn(
    build: Build, place_first: bool
) -> None:
    house = build(1)
    first, second, third, _ = house.come("a", times=4)
    (other,) = house.come("b")
    if place_first:
        first.end.set_result(None)
    second.task.cancel()
    if not place_first:
        first.end.set_result(None)
    house.settle()
    assert second.task.cancelled()
    assert house.inside == [third], "the caller lost its turn with the one who was cancelled"
    house.go(third)
    assert house.inside == [other]


def test_one_whose_coroutine_is_closed_while_waiting_is_forgotten(build: Build) -> None:
    house = build(1)
    first, _ = house.come(times=2)

    async def wait() -> None:
        waiting = house.slots.acquire("closed")
        waiting.send(None)
        assert house.slots.waiting == 2
        waiting.close()

    house.loop.run_until_complete(wait())
    assert (house.slots.in_flight, house.slots.waiting, house.inside) == (1, 1, [first])


async def test_after_a_429_no_line_stands_still() -> None:
    """Whoever is inside may be waiting for those who are not."""
    slots = Slots(standstill_s=0.01)
    for _ in range(2):
        await slots.acquire()
    slots.throttled()
    slots.release(well=False)
    assert (slots.in_flight, slots.limit) == (1, 1)
    async with asyncio.timeout(30):
        # One after the other, and not all at once.
        await asyncio.gather(*(slots.acquire(each) for each in "ab"))
    assert (slots.in_flight, slots.waiting) == (3, 0)


async def test_a_limit_of_the_configuration_is_kept_however_long_it_takes() -> None:
    slots = Slots(1, standstill_s=0.001)
    await slots.acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await slots.acquire()
    assert (slots.in_flight, slots.waiting) == (1, 0)


def test_one_who_is_inside_and_fails_or_is_cancelled_frees_the_place(build: Build) -> None:
    house = build(1)
    first, second, third = house.come(times=3)
    house.fail(first)
    assert house.inside == [second]
    house.cancel(second)
    assert house.inside == [third]


def test_a_429_halves_what_is_in_flight_and_those_inside_stay(build: Build) -> None:
    house = build(None)
    guests = house.come(times=9)
    house.slots.throttled(None)
    assert (house.slots.limit, house.slots.in_flight) == (4, 9)
    (late,) = house.come()
    house.go(*guests[:5])
    assert late not in house.inside
    house.go(guests[5])
    assert late in house.inside


def test_the_429s_of_one_second_count_once(build: Build) -> None:
    house = build(16)
    house.come(times=16)
    for _ in range(5):
        house.slots.throttled(None)
    assert house.slots.limit == 8
    house.clock.now += 0.9
    house.slots.throttled(None)
    assert house.slots.limit == 8
    house.clock.now += 0.1
    house.slots.throttled(None)
    assert house.slots.limit == 8, "half of the sixteen that are still in flight"
    house.go(*house.inside[:10])
    house.clock.now += 1
    house.slots.throttled(None)
    assert house.slots.limit == 3


def test_a_second_429_never_raises_the_limit(build: Build) -> None:
    house = build(None)
    guests = house.come(times=8)
    house.slots.throttled(None)
    house.go(*guests[:6])
    house.clock.now += 1
    house.slots.throttled(None)
    assert house.slots.limit == 1
    house.clock.now += 1
    house.slots.throttled(None)
    assert house.slots.limit == 1


def test_a_429_leaves_one_place_at_least(build: Build) -> None:
    house = build(4)
    house.slots.throttled(None)
    assert house.slots.limit == 1
    assert len(house.come()) == len(house.inside)


def calls(house: House, number: int) -> None:
    for _ in range(number):
        house.go(*house.come())


def test_calls_that_end_well_raise_the_limit_up_to_the_configured_one(build: Build) -> None:
    house = build(4)
    guests = house.come(times=4)
    house.slots.throttled(None)
    house.go(guests[0])
    assert house.slots.limit == 2, "the one with the 429 raised it"
    house.go(*guests[1:])
    # 2, 2.5, 2.9, 3.24: three calls.
    assert house.slots.limit == 3
    calls(house, 30)
    assert house.slots.limit == 4


def test_without_a_configured_limit_it_goes_when_twice_the_traffic_of_the_429_fits(
    build: Build,
) -> None:
    house = build(None)
    guests = house.come(times=4)
    house.slots.throttled(None)
    house.go(*guests)
    seen: list[int | None] = [house.slots.limit]
    while house.slots.limit is not None:
        calls(house, 1)
        seen.append(house.slots.limit)
    assert list(dict.fromkeys(seen)) == [3, 4, 5, 6, 7, None]
    # From 2 to 8 a place more takes as many calls as there are places.
    assert len(seen) in range(20, 40)


def test_the_end_of_the_limit_lets_everybody_in(build: Build) -> None:
    house = build(None)
    (first,) = house.come()
    house.slots.throttled(None)
    house.come(times=9)
    assert (house.slots.limit, house.slots.waiting) == (1, 9)
    house.go(first)
    house.go(house.inside[0])
    assert (house.slots.limit, len(house.inside), house.slots.waiting) == (2, 2, 6)
    house.go(house.inside[0])
    assert (house.slots.limit, len(house.inside), house.slots.waiting) == (None, 7, 0)


def test_failed_and_cancelled_calls_do_not_raise_the_limit(build: Build) -> None:
    house = build(8)
    guests = house.come(times=8)
    house.slots.throttled(None)
    house.fail(guests[0])
    for guest in guests[1:4]:
        house.fail(guest)
    house.cancel(*guests[4:])
    assert house.slots.limit == 4
    calls(house, 5)
    assert house.slots.limit == 5


def test_the_limit_stays_down_for_the_pause_that_was_asked_for(build: Build) -> None:
    house = build(2)
    guests = house.come(times=2)
    house.slots.throttled(5.0)
    house.go(*guests)
    house.clock.now += 4.9
    calls(house, 5)
    assert house.slots.limit == 1
    house.clock.now += 0.1
    calls(house, 1)
    assert house.slots.limit == 2


def test_a_pause_of_hours_does_not_keep_the_limit_down_for_hours(build: Build) -> None:
    house = build(2)
    guests = house.come(times=2)
    house.slots.throttled(86_400.0)
    house.go(*guests)
    house.clock.now += 60
    calls(house, 1)
    assert house.slots.limit == 2


@given(
    wants=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    limit=st.integers(1, 4),
    data=st.data(),
)
@settings(max_examples=60)
def test_with_k_callers_waiting_each_gets_every_kth_place(
    wants: list[int], limit: int, data: st.DataObject
) -> None:
    names = [f"caller {number}" for number in range(len(wants))]
    arrivals = [name for name, want in zip(names, wants, strict=True) for _ in range(want)]
    with House(limit) as house:
        house.come("first", times=limit)
        for name in data.draw(st.permutations(arrivals)):
            house.come(name)
        while house.inside:
            house.go(house.inside[data.draw(st.integers(0, len(house.inside) - 1))])
        house.empty()
    order = house.entered[limit:]
    left = dict(zip(names, wants, strict=True))
    while order:
        # A round: everybody who waits gets one place.
        waiting = sorted(name for name, number in left.items() if number)
        this_round, order = order[: len(waiting)], order[len(waiting) :]
        assert sorted(this_round) == waiting
        for name in this_round:
            left[name] -= 1


class SlotsModel(RuleBasedStateMachine):
    """Who is inside, by a list of callers and a list of guests each; checked after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[Guest] = []
        self.queues: dict[str, list[Guest]] = {}
        self.refused = 0
        self.last_cut = self.calm_until = self.ceiling = -math.inf

    @initialize(limit=st.none() | st.integers(1, 4))
    def begin(self, limit: int | None) -> None:
        self.house = House(limit)
        self.configured = math.inf if limit is None else limit
        self.limit = self.configured

    @property
    def waiting(self) -> list[Guest]:
        return [guest for queue in self.queues.values() for guest in queue]

    def admit(self) -> list[Guest]:
        given: list[Guest] = []
        while self.queues and len(self.inside) < math.floor(min(self.limit, 1e9)):
            caller = next(iter(self.queues))
            queue = self.queues.pop(caller)
            given.append(queue.pop(0))
            self.inside.append(given[-1])
            if queue:
                self.queues[caller] = queue
        return given

    def left(self, guest: Guest, *, well: bool) -> list[Guest]:
        self.inside.remove(guest)
        if self.refused:
            self.refused -= 1
        elif well and self.limit < self.configured and self.house.clock.now >= self.calm_until:
            self.limit += 1 / self.limit
            if self.configured < math.inf:
                self.limit = min(self.limit, self.configured)
            elif self.limit > self.ceiling:
                self.limit = math.inf
        return self.admit()

    def gave_up(self, guest: Guest) -> None:
        self.queues[guest.caller].remove(guest)
        if not self.queues[guest.caller]:
            del self.queues[guest.caller]

    @rule(caller=st.sampled_from("abc"), times=st.integers(1, 3))
    def come(self, caller: str, times: int) -> None:
        for guest in self.house.come(caller, times):
            self.queues.setdefault(caller, []).append(guest)
            self.admit()

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        guest = data.draw(st.sampled_from(self.inside))
        self.house.go(guest)
        self.left(guest, well=True)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        guest = data.draw(st.sampled_from(self.inside))
        self.house.fail(guest)
        self.left(guest, well=False)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def cancel_inside(self, data: st.DataObject) -> None:
        guest = data.draw(st.sampled_from(self.inside))
        self.house.cancel(guest)
        self.left(guest, well=False)

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def cancel_waiting(self, data: st.DataObject) -> None:
        guest = data.draw(st.sampled_from(self.waiting))
        self.house.cancel(guest)
        self.gave_up(guest)

    @precondition(lambda self: self.inside and self.queues)
    @rule(data=st.data(), place_first=st.booleans())
    def cancel_as_a_place_frees(self, data: st.DataObject, place_first: bool) -> None:
        leaving = data.draw(st.sampled_from(self.inside))
        guest = data.draw(st.sampled_from(self.waiting))
        if place_first:
            leaving.end.set_result(None)
        guest.task.cancel()
        if not place_first:
            leaving.end.set_result(None)
        self.house.settle()
        assert guest.task.cancelled()
        self.gave_up(guest)
        self.left(leaving, well=True)

    @precondition(lambda self: self.inside and self.queues)
    @rule(data=st.data())
    def cancel_with_the_place_in_hand(self, data: st.DataObject) -> None:
        leaving = data.draw(st.sampled_from(self.inside))
        given = self.left(leaving, well=True)
        if given:
            guest = data.draw(st.sampled_from(given))
            leaving.afterwards = guest.task.cancel
            self.inside.remove(guest)
            self.admit()
        self.house.go(leaving)

    @rule(retry_after=st.sampled_from([None, 0.0, 3.0]))
    def throttled(self, retry_after: float | None) -> None:
        self.house.slots.throttled(retry_after)
        now = self.house.clock.now
        self.refused = min(self.refused + 1, len(self.inside))
        self.calm_until = max(self.calm_until, now + (retry_after or 0))
        if now - self.last_cut >= 1:
            self.last_cut = now
            self.limit = min(self.limit, max(1, len(self.inside) // 2))
            self.ceiling = 2 * len(self.inside)

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.house.clock.now += seconds

    @invariant()
    def agrees(self) -> None:
        slots = self.house.slots
        assert set(self.house.inside) == set(self.inside)
        assert (slots.in_flight, slots.waiting) == (len(self.inside), len(self.waiting))
        assert slots.limit == (None if self.limit == math.inf else int(self.limit))
        if slots.waiting:
            assert slots.limit is not None
            assert slots.in_flight >= slots.limit, "a place is free and somebody waits"

    def teardown(self) -> None:
        if hasattr(self, "house"):
            with self.house:
                self.house.empty()


TestSlotsModel = SlotsModel.TestCase
TestSlotsModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
