"""How many calls a target gets at once, who waits, and how a target that says 429 is spared.

The limit is the configured one until a 429 comes. Then it is half of what is in flight, and creeps
up again with each call that ends well: one more place for about as many calls as there are places.

That limit is a guess of ours, so no line may stand still for it: whoever has the last place may be
waiting for the very call that waits for one, as when a call is made while a stream is read.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine

_CUT_INTERVAL_S = 1.0
"""The calls that one burst sent too many come back together: they are one reason to slow down."""
_LONGEST_CALM_S = 60.0
"""Beyond this, calls that succeed are better evidence than the pause that was asked for."""

_STANDSTILL_S = 10.0
"""When nobody has left for so long after a 429, one more is let in."""

_Place = asyncio.Future[None]


class Slots:
    """The places of one target, for the tasks of one event loop.

    Callers who wait take turns, one place each, and within a caller the first comes first. So
    with `k` callers waiting each gets every `k`-th place, however many places one of them wants.
    """

    def __init__(
        self,
        limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        standstill_s: float = _STANDSTILL_S,
    ) -> None:
        """Begin empty; without `limit` there is none until a 429 comes."""
        self._clock = clock
        self._configured = _places(limit)
        self._limit = self._configured
        self._ceiling = self._configured
        self._in_flight = 0
        self._refused = 0
        self._standstill_s = standstill_s
        self._moves: int = 0
        self._watcher: asyncio.TimerHandle | None = None
        self._last_cut = self._calm_until = -math.inf
        self._turns: OrderedDict[str, OrderedDict[_Place, None]] = OrderedDict()

    def configure(self, limit: int | None) -> None:
        """Have so many places from now on; nobody who is inside is sent away."""
        configured = _places(limit)
        if configured == self._configured:
            return
        throttled = self.is_throttled
        self._configured = self._ceiling = configured
        self._limit = min(self._limit, configured) if throttled else configured
        self._fill()

    @property
    def limit(self) -> int | None:
        """Places there are now; None: as many as are wanted."""
        return None if self._limit == math.inf else int(self._limit)

    @property
    def in_flight(self) -> int:
        """Places that are taken; above the limit for a while after a 429."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Those who wait for a place."""
        return sum(map(len, self._turns.values()))

    @property
    def is_throttled(self) -> bool:
        """Whether a 429 has left fewer places than there may be."""
        return self._limit < self._configured

    def slot(self, caller: str = "") -> Slot:
        """`async with slots.slot("key"):` waits for a place, and frees it at the end."""
        return Slot(self, caller)

    def throttled(self, retry_after: float | None = None) -> None:
        """A call was answered with 429: call it before that call gives its place back.

        The limit falls, at most once a second, and stays down for the pause that is asked for.
        """
        now = self._clock()
        self._refused = min(self._refused + 1, self._in_flight)
        calm = min(retry_after or 0.0, _LONGEST_CALM_S)
        self._calm_until = max(self._calm_until, now + calm)
        if now - self._last_cut < _CUT_INTERVAL_S:
            return
        self._last_cut = now
        # Never a rise: nobody enters above the limit, so half of those inside are not more.
        self._limit = float(max(1, self._in_flight // 2))
        if self._configured == math.inf:
            self._ceiling = 2.0 * self._in_flight

    async def acquire(self, caller: str = "") -> None:
        """Wait for a place; for those who cannot use `slot`, and `release` it whatever happens."""
        # Nobody is passed by: where somebody waits, there is no free place.
        if self._in_flight + 1 <= self._limit:
            self._in_flight += 1
        else:
            await self._wait(caller)

    def release(self, *, well: bool = True) -> None:
        """Give a place back; `well`: the call was answered, so the target may take more."""
        if self._refused:
            # Whose it was does not matter, only how many.
            self._refused -= 1
        elif well and self._limit < self._configured and self._clock() >= self._calm_until:
            self._limit += 1 / self._limit
            if self._limit > self._ceiling:
                self._limit = self._configured
        self._free()

    async def _wait(self, caller: str) -> None:
        place: _Place = asyncio.get_running_loop().create_future()
        self._turns.setdefault(caller, OrderedDict())[place] = None
        self._watch()
        try:
            await place
        except BaseException:
            if place.cancelled() or not place.done():
                self._forget(caller, place)
            else:
                # The place had been given already: somebody else gets it.
                self._free()
            raise

    def _forget(self, caller: str, place: _Place) -> None:
        queue = self._turns.get(caller)
        if queue is None or place not in queue:
            return
        del queue[place]
        if not queue:
            del self._turns[caller]

    def _free(self) -> None:
        self._in_flight -= 1
        self._moves += 1
        self._fill()

    def _fill(self) -> None:
        while self._turns and self._in_flight + 1 <= self._limit:
            self._let_in()

    def _let_in(self) -> None:
        """The next in turn; one who was cancelled and has not run since is only forgotten."""
        caller, queue = next(iter(self._turns.items()))
        place, _ = queue.popitem(last=False)
        # It does not cost its caller the turn.
        given = not place.done()
        if not queue:
            del self._turns[caller]
        elif given:
            self._turns.move_to_end(caller)
        if given:
            self._in_flight += 1
            place.set_result(None)

    def _watch(self) -> None:
        if self._watcher is None:
            loop = asyncio.get_running_loop()
            self._watcher = loop.call_later(self._standstill_s, self._look, self._moves)

    def _look(self, moves: int) -> None:
        self._watcher = None
        if self._turns and self.is_throttled and self._moves == moves:
            self._moves += 1
            self._let_in()
        if self._turns:
            self._watch()


def _places(limit: int | None) -> float:
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: give 1 or more, or None for no limit")
    return math.inf if limit is None else float(limit)


class Slot:
    """One place, from the entry of an `async with` to its end; made by `Slots.slot`."""

    __slots__ = ("_caller", "_slots")

    def __init__(self, slots: Slots, caller: str) -> None:
        """It is for one use."""
        self._slots = slots
        self._caller = caller

    def __aenter__(self) -> Coroutine[None, None, None]:
        return self._slots.acquire(self._caller)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, at: object) -> None:
        self._slots.release(well=kind is None)
