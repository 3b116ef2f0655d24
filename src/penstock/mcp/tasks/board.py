"""Where changes of tasks are made and told: one for each server process.

Those who wait here are woken by changes of this process, and look again from time to time for those
of others on the same store.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from penstock.mcp.tasks.ports import Change, TaskStore
from penstock.mcp.tasks.records import JSON, TaskRecord, answered

LOOK_AGAIN_S = 1.0
Watcher: TypeAlias = Callable[[TaskRecord], None]
Ear: TypeAlias = Callable[[JSON], None]
"""Both are told at once, and must neither wait nor raise."""


class Board:
    """The tasks of a store, with what is only known while they run."""

    def __init__(self, store: TaskStore) -> None:
        """Nothing is read yet."""
        self.store = store
        self._watchers: dict[str, set[Watcher]] = {}
        self._ears: dict[str, set[Ear]] = {}
        self._live: dict[str, tuple[str, int]] = {}
        self._unkept: dict[str, TaskRecord] = {}

    async def get(self, id: str) -> TaskRecord | None:
        """The task as it is now."""
        if (unkept := self._unkept.get(id)) is not None:
            if unkept.expires > _now():
                return unkept
            del self._unkept[id]
        task = await self.store.get(id)
        return None if task is None else self._with_live(task)

    async def change(self, id: str, change: Change) -> TaskRecord | None:
        """Change it and tell those who watch; None without such a task."""
        before: list[TaskRecord] = []

        def observed(task: TaskRecord, now: int) -> TaskRecord | None:
            before[:] = [task]
            return change(task, now)

        task = await self.store.change(id, observed)
        if task is None or not task.is_open:
            self._live.pop(id, None)
        if task is not None and before != [task]:
            self._tell(self._with_live(task))
        return task

    async def answer(self, id: str, answers: Mapping[str, JSON]) -> TaskRecord | None:
        """File what a client has answered; whatever nobody asked for is passed over."""
        return await self.change(id, lambda task, now: answered(task, now, answers))

    def say(self, task: TaskRecord, message: str) -> None:
        """What a running task is at; it is worth nothing afterwards, so nothing is written."""
        self._live[task.id] = (message, _now())
        self._tell(self._with_live(task))

    def hear(self, id: str, progress: JSON) -> None:
        """Tell those who listen how far a task is."""
        for ear in tuple(self._ears.get(id, ())):
            ear(progress)

    def remember(self, task: TaskRecord, change: Change) -> None:
        """Keep in memory what the store could not take."""
        changed = change(task, _now()) or task
        self._live.pop(task.id, None)
        self._unkept[task.id] = changed
        self._tell(changed)

    def watching(self, id: str, watcher: Watcher) -> contextlib.AbstractContextManager[None]:
        """Have the watcher told of each change that this process makes."""
        return _among(self._watchers, id, watcher)

    def listening(self, id: str, ear: Ear) -> contextlib.AbstractContextManager[None]:
        """Have the ear told of the progress of a task of this process."""
        return _among(self._ears, id, ear)

    async def until(self, id: str, ready: Callable[[TaskRecord], bool]) -> TaskRecord | None:
        """The task once it is as wanted; None when it is gone."""
        changed = asyncio.Event()
        with self.watching(id, lambda _: changed.set()):
            while True:
                changed.clear()
                task = await self.get(id)
                if task is None or ready(task):
                    return task
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_AGAIN_S)

    def _with_live(self, task: TaskRecord) -> TaskRecord:
        message, at = self._live.get(task.id, ("", 0))
        if not message or not task.is_open:
            return task
        return msgspec.structs.replace(task, message=message, updated=max(at, task.updated))

    def _tell(self, task: TaskRecord) -> None:
        for watcher in tuple(self._watchers.get(task.id, ())):
            watcher(task)


T = TypeVar("T")


@contextlib.contextmanager
def _among(groups: dict[str, set[T]], id: str, member: T) -> Generator[None]:
    group = groups.setdefault(id, set())
    group.add(member)
    try:
        yield
    finally:
        group.discard(member)
        if not group:
            groups.pop(id, None)


def _now() -> int:
    return int(time.time() * 1000)
