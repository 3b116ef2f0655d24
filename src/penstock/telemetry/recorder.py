"""A subscriber for tests, which keeps what it is told."""

from __future__ import annotations

from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    Record,
    RequestContent,
    RequestRecord,
    RequestStarted,
)


class Recorder:
    """Keeps every record, in the order of their telling and by their kinds."""

    def __init__(self) -> None:
        """Nothing has been told yet."""
        self.records: list[Record] = []

    def __call__(self, record: Record) -> None:
        """Keep it."""
        self.records.append(record)

    @property
    def started(self) -> list[RequestStarted]:
        """The requests that have come in."""
        return [record for record in self.records if isinstance(record, RequestStarted)]

    @property
    def attempted(self) -> list[AttemptStarted]:
        """The attempts that have begun."""
        return [record for record in self.records if isinstance(record, AttemptStarted)]

    @property
    def attempts(self) -> list[AttemptRecord]:
        """The attempts that have ended."""
        return [record for record in self.records if isinstance(record, AttemptRecord)]

    @property
    def requests(self) -> list[RequestRecord]:
        """The requests that have ended."""
        return [record for record in self.records if isinstance(record, RequestRecord)]

    @property
    def contents(self) -> list[RequestContent]:
        """What was said, if it was subscribed to with `content=True`."""
        return [record for record in self.records if isinstance(record, RequestContent)]

    def clear(self) -> None:
        """Forget all of it."""
        self.records.clear()
