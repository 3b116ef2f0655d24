"""Requests that wait for somebody to decide, wherever that somebody is: an admin API, a window.

```python
queue = ApprovalQueue()
callback = sampling_callback(engine, approval=queue)
...
for waiting in queue.waiting():
    queue.decide(waiting.id, Decision(approved=True))
```
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from penstock.contract.approval import Decision, Review


class Waiting(msgspec.Struct, frozen=True):
    """A request or an answer that is to be decided upon."""

    id: str
    review: Review
    asked: float
    """When it came, in Unix seconds."""
    expires: float
    """When it is denied for want of a decision."""


def _hear_nothing(*_: object) -> None:
    pass


class ApprovalQueue:
    """An approver that waits for `decide`; what is not decided in time is denied."""

    def __init__(self, *, timeout_s: float = 300.0, most: int = 100) -> None:
        """At most so many wait; those that come when it is full are denied at once.

        Both may be changed at any time.
        """
        self.timeout_s = timeout_s
        self.most = most
        self.on_asked: Callable[[Waiting], object] = _hear_nothing
        """Called when something begins to wait."""
        self.on_ended: Callable[[Waiting, Decision | None], object] = _hear_nothing
        """Called when it ceases to; without a decision, whoever has asked has gone."""
        self._waiting: dict[str, tuple[Waiting, asyncio.Future[Decision]]] = {}

    async def __call__(self, review: Review) -> Decision:
        """Wait for a decision; an asker who goes away takes the question along."""
        if len(self._waiting) >= self.most:
            return Decision.deny(f"{len(self._waiting)} others wait for approval")
        now = time.time()
        waiting = Waiting(secrets.token_hex(8), review, now, now + self.timeout_s)
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting[waiting.id] = waiting, future
        self.on_asked(waiting)
        ended: Decision | None = None
        try:
            ended = decision = await self._decided(future)
            return decision
        finally:
            del self._waiting[waiting.id]
            self.on_ended(waiting, ended)

    async def _decided(self, future: asyncio.Future[Decision]) -> Decision:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await future
        except TimeoutError:
            return Decision.deny(f"no decision within {self.timeout_s:g} s")

    def waiting(self) -> Sequence[Waiting]:
        """What is to be decided, the oldest first."""
        return [waiting for waiting, future in self._waiting.values() if not future.done()]

    def get(self, identifier: str) -> Waiting | None:
        """One of them; None when it is decided, denied or gone."""
        waiting, future = self._waiting.get(identifier, (None, None))
        return None if future is None or future.done() else waiting

    def decide(self, identifier: str, decision: Decision) -> bool:
        """Whether it was still waiting: the first decision counts."""
        _, future = self._waiting.get(identifier, (None, None))
        if future is None or future.done():
            return False
        future.set_result(decision)
        return True
