"""What the last answers of each target took, as the records of requests tell."""

from __future__ import annotations

from collections import OrderedDict

from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.routing.cost_model import Expected, Traffic
from penstock.telemetry.records import AttemptRecord, Record, RequestRecord

MOST_TARGETS = 1024
"""Callers make the names of models up; the target that is unused for longest is forgotten."""
_NOTHING = Traffic().expected(0)


class Experience:
    """A subscriber that keeps, for each target, what its answers took."""

    def __init__(self, most: int = MOST_TARGETS) -> None:
        """Nothing is known."""
        self._most = most
        self._traffic: OrderedDict[Target, Traffic] = OrderedDict()

    def __call__(self, record: Record) -> None:
        """Learn from every attempt that has answered; what failed says nothing of what it takes."""
        if isinstance(record, RequestRecord) and record.operation == "chat":
            for attempt in record.attempts:
                if attempt.outcome == "ok":
                    self._add(attempt)

    def expected(self, target: Target, prompt_tokens: int) -> Expected:
        """What an answer of this target to a prompt of so many tokens takes."""
        traffic = self._traffic.get(target)
        return _NOTHING if traffic is None else traffic.expected(prompt_tokens)

    def __len__(self) -> int:
        """How many targets there is experience with."""
        return len(self._traffic)

    def _add(self, attempt: AttemptRecord) -> None:
        target = Target(attempt.provider, attempt.model)
        self.add(target, attempt.usage, 1000 * attempt.duration_s)

    def add(self, target: Target, usage: Usage | None, latency_ms: float) -> None:
        """Learn from one answer."""
        traffic = self._traffic.get(target)
        if traffic is None:
            traffic = self._traffic[target] = Traffic()
            if len(self._traffic) > self._most:
                self._traffic.popitem(last=False)
        self._traffic.move_to_end(target)
        traffic.add(
            0 if usage is None else usage.input_tokens or 0,
            output_tokens=None if usage is None else usage.output_tokens,
            latency_ms=latency_ms,
        )
