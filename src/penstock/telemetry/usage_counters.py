"""What an engine has done since it was opened, counted in memory by provider, model and key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.contract.errors import PenstockError
from penstock.contract.metadata import Metadata, Usage
from penstock.contract.ports import Target
from penstock.telemetry.latency import Latencies, Latency
from penstock.telemetry.records import AttemptRecord

MAX_ROWS = 1000
"""Callers choose the names of models, and so may not have a row for each that they think of."""
OTHER_MODELS = "*"
"""The row of a provider's models that have no more row of their own."""
OTHER_KEYS = "*"
"""The row of the keys that have no more row of their own."""
CANCELLED = "RequestCancelled"


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one model of one provider has done, or one provider, or was done for one key.

    A request counts once, where it ended: at the target that answered, or at the one whose error
    the caller got. Without provider and model are those that ended at no single target.
    """

    provider: str | None
    model: str | None
    key: str | None = None
    """The name of the key that callers have shown; only in `UsageStats.keys`."""
    requests: int
    failures: dict[str, int]
    """How many failed, by the name of the error; RequestCancelled is among them."""
    usage: Usage
    """The tokens of all answers, and of those that broke off; None where no provider said."""
    cost_nanos: int | None
    """What all calls cost whose price is known, in nano-dollars; None when none is.

    Those that broke off or were outrun are among them, each where it was made: so it is what a
    ledger has for the same time."""
    unpriced: int
    """How many answers have no known price."""
    latency: Latency | None
    """Of the answers; None without any."""

    @property
    def failed(self) -> int:
        """All failures together."""
        return sum(self.failures.values())

    @property
    def cost_usd(self) -> float | None:
        """The cost for people."""
        return None if self.cost_nanos is None else self.cost_nanos / 1e9


class UsageStats(msgspec.Struct, frozen=True):
    """Everything since the engine was opened."""

    started_at: datetime
    total: ModelUsage
    models: tuple[ModelUsage, ...]
    """Most requests first."""
    providers: tuple[ModelUsage, ...] = ()
    """All models of a provider in one row, most requests first."""
    keys: tuple[ModelUsage, ...] = ()
    """What was done for callers with a key, most requests first."""
    remaining: dict[str, int] | None = None
    """What each budget has left, in nano-dollars; None without a ledger that can be read."""


class _Row:
    __slots__ = ("answers", "cost_nanos", "failures", "latencies", "priced", "usage")

    def __init__(self) -> None:
        self.answers = 0
        self.failures: dict[str, int] = {}
        self.usage = Usage()
        self.cost_nanos: int | None = None
        self.priced = 0
        self.latencies = Latencies()

    def merge(self, other: _Row) -> None:
        self.answers += other.answers
        for name, number in other.failures.items():
            self.failures[name] = self.failures.get(name, 0) + number
        self.usage += other.usage
        self.pay(other.cost_nanos)
        self.priced += other.priced
        self.latencies.merge(other.latencies)

    def pay(self, nanos: int | None) -> None:
        if nanos is not None:
            self.cost_nanos = (self.cost_nanos or 0) + nanos

    def shown(
        self, provider: str | None = None, model: str | None = None, key: str | None = None
    ) -> ModelUsage:
        return ModelUsage(
            provider=provider,
            model=model,
            key=key,
            requests=self.answers + sum(self.failures.values()),
            failures=dict(self.failures),
            usage=self.usage,
            cost_nanos=self.cost_nanos,
            unpriced=self.answers - self.priced,
            latency=self.latencies.summary(),
        )


class UsageCounters:
    """Counts requests as they end; belongs to the loop of its engine."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._started_at = datetime.now(UTC)
        self._rows: dict[tuple[str | None, str | None], _Row] = {}
        self._keys: dict[str, _Row] = {}

    def answered(self, target: Target, metadata: Metadata, key: str | None = None) -> None:
        """A request was answered by this target."""
        _answered(self._row(target.provider, target.model), metadata)
        if key is not None:
            _answered(self._key(key), metadata)

    def took(
        self,
        attempts: Iterable[AttemptRecord],
        cost: Callable[[Sequence[AttemptRecord]], int | None],
        key: str | None = None,
    ) -> None:
        """A request has ended: what each target was billed for it, also where it failed.

        `cost` gives the nano-dollars of attempts, or None when it does not know.
        """
        for each in attempts:
            if each.usage is not None:
                nanos = cost((each,))
                rows = [self._row(each.provider, each.model)]
                if key is not None:
                    rows.append(self._key(key))
                for row in rows:
                    row.usage += each.usage
                    row.pay(nanos)

    def failed(
        self, error: BaseException, target: Target | None = None, key: str | None = None
    ) -> None:
        """A request ended with this error, at this target if it was with one."""
        ours = isinstance(error, PenstockError)
        # Whatever else ends a request is its caller going away.
        name = type(error).__name__ if ours or isinstance(error, Exception) else CANCELLED
        if ours and error.provider is not None:
            row = self._row(error.provider, error.model)
        elif target is not None:
            row = self._row(target.provider, target.model)
        else:
            row = self._row(None, None)
        row.failures[name] = row.failures.get(name, 0) + 1
        if key is not None:
            failures = self._key(key).failures
            failures[name] = failures.get(name, 0) + 1

    def stats(self) -> UsageStats:
        """The counts up to now."""
        total = _Row()
        providers: dict[str, _Row] = {}
        for (provider, _), row in self._rows.items():
            total.merge(row)
            if provider is not None:
                providers.setdefault(provider, _Row()).merge(row)
        return UsageStats(
            self._started_at,
            total.shown(),
            _sorted(row.shown(*names) for names, row in self._rows.items()),
            _sorted(row.shown(name) for name, row in providers.items()),
            _sorted(row.shown(key=name) for name, row in self._keys.items()),
        )

    def _row(self, provider: str | None, model: str | None) -> _Row:
        row = self._rows.get((provider, model))
        if row is None:
            full = len(self._rows) >= MAX_ROWS and provider is not None
            key = (provider, OTHER_MODELS if full else model)
            row = self._rows.setdefault(key, _Row())
        return row

    def _key(self, key: str) -> _Row:
        row = self._keys.get(key)
        if row is None:
            name = OTHER_KEYS if len(self._keys) >= MAX_ROWS else key
            row = self._keys.setdefault(name, _Row())
        return row


def _answered(row: _Row, metadata: Metadata) -> None:
    row.answers += 1
    row.latencies.add(metadata.latency_ms)
    if metadata.cost_nanos is not None:
        row.priced += 1


def _sorted(rows: Iterable[ModelUsage]) -> tuple[ModelUsage, ...]:
    def order(row: ModelUsage) -> tuple[int, str, str, str]:
        return (-row.requests, row.provider or "", row.model or "", row.key or "")

    return tuple(sorted(rows, key=order))
