"""What the admin API gives. Times are Unix seconds, money is in nano-dollars.

Every field is there in every answer; what is not known is null. The few types of other layers that
are given as they are leave out what has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.budget.calendar import Period
from penstock.budget.entries import Entry
from penstock.budget.reports import UsageRow
from penstock.contract.estimates import BudgetVerdict
from penstock.contract.metadata import Usage
from penstock.keys.admin import KeyInfo
from penstock.pool.targets.states import Evidence, HealthStatus
from penstock.runtime.background import ChildStatus
from penstock.telemetry.records import Operation, Outcome, TargetCondition


class Answer(msgspec.Struct):
    """What callers get."""


class ErrorDetail(Answer):
    """What went wrong, and what to do about it."""

    message: str
    type: str
    param: str | None
    """The field at fault."""
    code: str | None


class Error(Answer):
    """A failure, in OpenAI's shape."""

    error: ErrorDetail


class UsageAnswer(Answer):
    """What was used and what it cost, from the ledger: of all processes, and for good."""

    by: str | None
    since: float | None
    until: float | None
    total: UsageRow
    rows: list[UsageRow]


class LedgerPage(Answer):
    """Some lines, and the cursor of those that follow; null at the end."""

    entries: list[Entry]
    next: int | None


class AttemptInfo(Answer):
    """One try at one target."""

    number: int
    provider: str
    model: str
    started: float
    outcome: Literal["ok", "failed", "cancelled", "running"]
    duration_s: float | None
    first_token_s: float | None
    error: str | None
    """The name of the error's type."""
    error_text: str | None
    """What the provider said about the failure; null when that is not kept."""
    status: int | None
    """The provider's HTTP status, where the failure has one."""
    retryable: bool
    usage: Usage | None
    dropped_options: list[str]
    adapted: list[str]
    """The options that the target did not get as they were: `option=what took its place`."""


class BudgetVerdictInfo(Answer):
    """What one budget would decide about a call."""

    budget: str
    fits: bool
    hard: bool
    limit_nanos: int | None
    """Null: it is not the caller's own budget."""
    remaining_nanos: int | None
    asked_nanos: int | None
    """The most that the call may cost; null: no price is known."""
    resets_at: float | None
    reason: str
    """Why it does not fit, and what to do; empty when it does."""

    @staticmethod
    def of(verdict: BudgetVerdict) -> BudgetVerdictInfo:
        """With every field, whatever its value."""
        return BudgetVerdictInfo(**msgspec.structs.asdict(verdict))

    def without_amounts(self) -> BudgetVerdictInfo:
        """The verdict of a budget whose limit and use are not for the caller."""
        reason = self.reason
        if reason and self.asked_nanos is not None:
            reason = f"budget {self.budget!r} has no room for this call"
        return msgspec.structs.replace(self, limit_nanos=None, remaining_nanos=None, reason=reason)


class TargetEstimateInfo(Answer):
    """What one call of a target would take."""

    target: str
    available: bool
    fits: bool
    """Whether all budgets have room for it."""
    input_tokens: int
    output_tokens: int
    """Both as they are expected."""
    max_input_tokens: int
    max_output_tokens: int
    """Upper bounds of both."""
    expected_nanos: int | None
    """Null: no price is known."""
    worst_nanos: int | None
    """What would be reserved."""
    price_source: str | None
    budgets: list[BudgetVerdictInfo]


class EstimateAnswer(Answer):
    """What a request would cost at each target, in the order in which they would be tried."""

    model: str | None
    fits: bool
    """Whether budgets have room for a call of at least one target."""
    targets: list[TargetEstimateInfo]


class RecordedAnswer(Answer):
    """A call that was made elsewhere, as the ledger has it."""

    request_id: str
    provider: str
    model: str
    cost_nanos: int | None
    """Null: no price is known, and the ledger counts it with 0."""
    price_source: str | None
    overdrawn: list[str]
    """The budgets that it brought above their limits."""


class RankedInfo(Answer):
    """A target in its place, and why it is there; what is null is not known."""

    target: str
    available: bool
    reasons: list[str]
    score: float
    """Its utility; more is better."""
    quality: float | None
    """Expected, from 0 to 1."""
    uncertainty: float | None
    """The standard deviation of the quality."""
    neighbours: float | None
    """How many answers to similar prompts the quality rests on."""
    cost_usd: float | None
    latency_ms: float | None
    hint: str | None
    """The hint that it matches."""
    propensity: float | None
    """How likely it was to be put first, where there were dice."""
    budgets: list[BudgetVerdictInfo]
    """What each budget that covers it would decide; empty in the route of a request that was made,
    whose budgets have decided."""


class RouteAnswer(Answer):
    """Who would be tried in which order; `left_out` were looked at and will not be."""

    model: str | None
    ranked: list[RankedInfo]
    left_out: list[RankedInfo]
    strategy: str
    explored: bool
    """Whether the first one is tried to learn about it."""
    reason: str
    """Why the first one is first, in one sentence."""


class RouteInfo(Answer):
    """Which targets a request had, as `provider/model`."""

    ranked: list[str]
    """In the order in which they were to be tried."""
    left_out: list[str]
    """Those of them that its key or its budgets did not allow."""
    decision: RouteAnswer | None
    """How that order came about; null where it is the configured one."""


class RequestInfo(Answer):
    """One request: nothing that was said in it is kept, except for the texts of errors."""

    request_id: str
    state: Literal["running", "ended"]
    outcome: Outcome | None
    operation: Operation
    stream: bool
    started: float
    duration_s: float
    """Up to now, while it runs."""
    first_token_s: float | None
    requested_model: str | None
    provider: str | None
    model: str | None
    key: str | None
    tags: Mapping[str, str]
    route: RouteInfo | None
    """Null while it runs, and when it failed before it had one."""
    attempts: list[AttemptInfo]
    usage: Usage | None
    cost_nanos: int | None
    continued_by: str | None
    """The target that finished the answer after the stream of another one broke."""
    stop_reason: str | None
    response_id: str | None
    error: str | None
    """The name of the error's type."""
    error_text: str | None
    """What was said about the failure; null when that is not kept."""


class RequestList(Answer):
    """Those that run and the last that have ended in this process, newest first."""

    requests: list[RequestInfo]


class HealthInfo(Answer):
    """The health of a provider."""

    status: HealthStatus
    latency_ms: int
    """How long it took to list its models; 0 when it was not asked."""
    models: list[str]
    error: str | None
    """Why it is not up."""
    checked_at: float | None
    """When the evidence is from."""
    evidence: Evidence | None
    """A health check, the requests of its targets, or a mark."""


class ProviderInfo(Answer):
    """A configured provider."""

    name: str
    kind: str
    url: str | None
    """Its own address, without credentials; null: that of its kind."""
    health: HealthInfo | None
    """Null when nothing is known of it."""


class ProviderList(Answer):
    """All configured providers."""

    providers: list[ProviderInfo]


class TargetInfo(Answer):
    """A target that was asked so far: whether it is asked now, and how busy it is."""

    target: str
    state: TargetCondition
    reason: str
    retry_in_s: float | None
    """0 when it may be asked; null when it is left alone until it is marked up."""
    in_flight: int
    waiting: int
    limit: int | None
    status: HealthStatus
    checked_at: float | None
    """When the evidence is from."""
    evidence: Evidence | None
    """By what the status is known: its requests, a health check, or a mark."""


class TargetList(Answer):
    """The targets of this process, and its own work in the background."""

    targets: list[TargetInfo]
    background: list[ChildStatus]


class MarkedTargets(TargetList):
    """The targets after some were marked down or up."""

    matched: list[str]
    """The targets that were covered; `provider/*` where none of a provider is known yet."""


class ModelInfo(Answer):
    """A model of the configuration."""

    name: str
    default: bool
    routing: str
    targets: list[str]


class ModelList(Answer):
    """What callers may ask for by name."""

    models: list[ModelInfo]


class BudgetInfo(Answer):
    """A budget in its present period."""

    name: str
    limit_nanos: int
    limit_usd: float
    period: Period
    timezone: str
    provider: str | None
    model: str | None
    key: str | None
    tags: dict[str, str]
    hard: bool
    warn_at: list[float]
    declared: bool
    """Whether it is as the configuration says, and not set by hand."""
    declared_by: list[str]
    """The configurations that declare it; none when it was set by hand."""
    overrides: list[str]
    """The configurations that declare another one of this name, when it was set by hand."""
    used_nanos: int
    held_nanos: int
    remaining_nanos: int
    overdrawn: bool
    period_start: float
    resets_at: float | None


class BudgetList(Answer):
    """Every budget, by name."""

    budgets: list[BudgetInfo]


class KeyList(Answer):
    """All keys, those of the configuration first."""

    keys: list[KeyInfo]


class IssuedKey(Answer):
    """A new text of a key. It cannot be shown again."""

    key: str
    info: KeyInfo


class ConfigAnswer(Answer):
    """What is in force; secrets and what comes from the environment are masked."""

    config: dict[str, dict[str, Any]]


class AuditInfo(Answer):
    """One change that an administrator made; secrets are masked."""

    id: int
    at: float
    actor: str
    """`admin key`, the user of the command line, or `configuration`."""
    origin: str
    """The address of the caller, `command line`, or `reload`."""
    action: str
    """The operation, such as `set_budget`."""
    subject: str
    """The name of what was changed."""
    details: Any
    """What was asked for."""
    before: Any
    """The state before; null when there was nothing."""
    after: Any
    """The state after; null when there is nothing."""


class AuditList(Answer):
    """Some changes, newest first, and the cursor of those that follow; null at the end."""

    entries: list[AuditInfo]
    next: int | None


class AttemptEvent(Answer):
    """An attempt that begins, or has ended."""

    request_id: str
    attempt: AttemptInfo


class DroppedEvent(Answer):
    """How many events were left out, because the reader was too slow."""

    dropped: int
