"""The last requests, for later questions: who was tried, how long it took, what it cost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from penstock.telemetry.records import Outcome, Record, RequestRecord

KEPT = 1000


class RecentRequests:
    """A subscriber that keeps the records of the last requests by their ids."""

    def __init__(self, kept: int = KEPT) -> None:
        """Not more than `kept`, the oldest go first."""
        if kept < 1:
            raise ValueError(f"kept={kept}: give 1 or more")
        self._kept = kept
        self._records: OrderedDict[str, RequestRecord] = OrderedDict()

    def __call__(self, record: Record) -> None:
        """Keep it, if it is the end of a request."""
        if not isinstance(record, RequestRecord):
            return
        records = self._records
        records[record.request_id] = record
        records.move_to_end(record.request_id)
        if len(records) > self._kept:
            records.popitem(last=False)

    def get(self, request_id: str) -> RequestRecord | None:
        """What became of this request, if it is among the last."""
        return self._records.get(request_id)

    def newest(self, outcome: Outcome | None = None) -> Iterator[RequestRecord]:
        """From the newest to the oldest, or of them those that ended so."""
        for record in reversed(list(self._records.values())):
            if outcome is None or record.outcome == outcome:
                yield record
