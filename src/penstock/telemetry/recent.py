"""The requests that run and the last that have ended, for later questions.

Only records that are made anyway are kept, in a ring: a request pays for a place in it, and for
nothing that somebody may ask about later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, cast

from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    Record,
    RequestRecord,
    RequestStarted,
)

KEPT = 1000


class RunningRequest(NamedTuple):
    """A request that has not ended yet."""

    begun: RequestStarted
    attempts: tuple[AttemptRecord, ...]
    """Those that have ended."""
    trying: tuple[AttemptStarted, ...]
    """Those that are under way."""


class RecentRequests:
    """A subscriber that keeps the records of requests that run, and of the last that have ended."""

    def __init__(self, kept: int = KEPT) -> None:
        """Not more than `kept` that have ended, the oldest go first."""
        if kept < 1:
            raise ValueError(f"kept={kept}: give 1 or more")
        self._ended: deque[RequestRecord] = deque(maxlen=kept)
        self._running: dict[str, list[RequestStarted | AttemptStarted | AttemptRecord]] = {}

    def __call__(self, record: Record) -> None:
        """Keep it, if it belongs to a request."""
        # By its very type: this is called four times a request, and none of them has subclasses.
        kind = type(record)
        if kind is RequestRecord:
            ended = cast(RequestRecord, record)
            self._running.pop(ended.request_id, None)
            self._ended.append(ended)
        elif kind is RequestStarted:
            begun = cast(RequestStarted, record)
            self._running[begun.request_id] = [begun]
        elif kind is AttemptStarted or kind is AttemptRecord:
            attempt = cast("AttemptStarted | AttemptRecord", record)
            # Of a request that began before the subscription nothing is shown while it runs.
            known = self._running.get(attempt.request_id)
            if known is not None:
                known.append(attempt)

    def running(self) -> Iterator[RunningRequest]:
        """Those that run, the newest first."""
        for records in reversed(list(self._running.values())):
            yield _running(records)

    def newest(self) -> Iterator[RequestRecord]:
        """Those that have ended, from the newest to the oldest."""
        return iter(list(reversed(self._ended)))

    def get(self, request_id: str) -> RunningRequest | RequestRecord | None:
        """What this request does, or what became of it, if it is among the last."""
        records = self._running.get(request_id)
        if records is not None:
            return _running(records)
        return next((each for each in self.newest() if each.request_id == request_id), None)


def _running(records: list[RequestStarted | AttemptStarted | AttemptRecord]) -> RunningRequest:
    ended = tuple(each for each in records if isinstance(each, AttemptRecord))
    over = {each.number for each in ended}
    return RunningRequest(
        next(each for each in records if isinstance(each, RequestStarted)),
        ended,
        tuple(
            each for each in records if isinstance(each, AttemptStarted) and each.number not in over
        ),
    )
