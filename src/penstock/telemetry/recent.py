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
    RequestIdentity,
    RequestRecord,
    RequestStarted,
    identity_of,
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
        self._running: dict[
            RequestIdentity, list[RequestStarted | AttemptStarted | AttemptRecord]
        ] = {}

    def __call__(self, record: Record) -> None:
        """Keep it, if it belongs to a request."""
        # By its very type: this is called four times a request, and none of them has subclasses.
        kind = type(record)
        if kind is RequestRecord:
            ended = cast(RequestRecord, record)
            self._running.pop(identity_of(ended), None)
            self._ended.append(ended)
        elif kind is RequestStarted:
            begun = cast(RequestStarted, record)
            self._running[identity_of(begun)] = [begun]
        elif kind is AttemptStarted or kind is AttemptRecord:
            attempt = cast("AttemptStarted | AttemptRecord", record)
            # Of a request that began before the subscription nothing is shown while it runs.
            known = self._running.get(identity_of(attempt))
            if known is not None:
                known.append(attempt)

    def running(self) -> Iterator[RunningRequest]:
        """Those that run, the newest first."""
        for records in reversed(list(self._running.values())):
            yield _running(records)

    def newest(self) -> Iterator[RequestRecord]:
        """Those that have ended, from the newest to the oldest."""
        return iter(list(reversed(self._ended)))

    def get(self, request_id: str, key: str | None = None) -> RunningRequest | RequestRecord | None:
        """The newest request of this id, of this key or of any; one that runs goes first."""
        for running in self.running():
            if _is(running.begun, request_id, key):
                return running
        return next((each for each in self.newest() if _is(each, request_id, key)), None)


def _is(record: RequestStarted | RequestRecord, request_id: str, key: str | None) -> bool:
    return record.request_id == request_id and (key is None or record.key == key)


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
