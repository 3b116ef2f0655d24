"""What keeps tasks: one small seam, so that a store that servers share can take its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from penstock.mcp.tasks.records import TaskLimits, TaskRecord

Change: TypeAlias = Callable[[TaskRecord, int], TaskRecord | None]
"""What a task becomes at this moment; None leaves it as it is. It may be called more than once."""
Position: TypeAlias = tuple[int, str]
"""Where a page ends: the moment of creation, and the id."""


class TaskStore(Protocol):
    """Keeps tasks; each method raises PenstockError when it cannot.

    A task whose time is over is never given out, whether or not it was swept away yet. A task that
    has not ended and whose process is gone is given out as failed.
    """

    @property
    def runner(self) -> str:
        """What this process is called in the tasks that it works on."""
        ...

    async def create(self, task: TaskRecord, limits: TaskLimits) -> None:
        """Keep a new task: it is durable when this returns; raises TooManyTasks."""
        ...

    async def get(self, id: str) -> TaskRecord | None:
        """The task, unless there is none, or no more."""
        ...

    async def page(self, owner: str, after: Position | None, size: int) -> Sequence[TaskRecord]:
        """The tasks of this client from the oldest to the newest, behind a position."""
        ...

    async def change(self, id: str, change: Change) -> TaskRecord | None:
        """The task as it is now, after the change; None without such a task.

        Nobody else changes it meanwhile, and it is durable when this returns.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything; tasks of this process that have not ended count as failed."""
        ...
