"""What a request would cost, and whether budgets have room for it, before it is made."""

from __future__ import annotations

import msgspec

from penstock.contract.messages import JSONObject
from penstock.contract.metadata import nanos_to_text
from penstock.contract.serializing import Serializable, known


class BudgetVerdict(Serializable, frozen=True):
    """Whether one budget has room for a call; amounts are in nano-dollars."""

    budget: str
    fits: bool
    """Whether this budget would let the call through; a soft budget always does."""
    hard: bool
    limit_nanos: int
    remaining_nanos: int
    """What is left before the call; below 0 when the budget is overdrawn."""
    asked_nanos: int | None
    """The most that the call may cost, which is what would be reserved; None: no price is known."""
    resets_at: float | None
    """Unix time; None: never."""
    reason: str = ""
    """Why it does not fit, and what to do."""

    def to_dict(self) -> JSONObject:
        """All that is known."""
        return known({**msgspec.structs.asdict(self), "reason": self.reason or None})


class TargetEstimate(Serializable, frozen=True, kw_only=True):
    """What one call of a target would take."""

    provider: str
    model: str
    available: bool
    """Whether its circuit breaker lets requests through now."""
    input_tokens: int
    """Expected, as the target counts."""
    output_tokens: int
    """Expected by its last answers, or by those of others; at most the request's `max_tokens`."""
    max_input_tokens: int
    """An upper bound."""
    max_output_tokens: int
    """The request's limit or the model's own, with thinking that the limit does not cover."""
    expected_nanos: int | None
    """None: no price is known."""
    worst_nanos: int | None
    """What would be reserved."""
    price_source: str | None
    budgets: tuple[BudgetVerdict, ...] = ()
    """Every budget that covers the call."""

    @property
    def fits(self) -> bool:
        """Whether all budgets have room for it."""
        return all(each.fits for each in self.budgets)

    def to_dict(self) -> JSONObject:
        """All that is known, with the costs in US dollars as well."""
        facts = msgspec.structs.asdict(self)
        for name in ("expected", "worst"):
            nanos: int | None = facts[f"{name}_nanos"]
            facts[f"{name}_usd"] = None if nanos is None else float(nanos_to_text(nanos))
        facts |= {"fits": self.fits, "budgets": [each.to_dict() for each in self.budgets]}
        return known(facts)


class RequestEstimate(Serializable, frozen=True):
    """What a request would cost at each target that may be tried, in the order of the route."""

    model: str | None
    """What was asked for; None: the default."""
    targets: tuple[TargetEstimate, ...]

    @property
    def fits(self) -> bool:
        """Whether budgets have room for a call of at least one target."""
        return any(each.fits for each in self.targets)

    def to_dict(self) -> JSONObject:
        """All that is known."""
        targets = [each.to_dict() for each in self.targets]
        return known({"model": self.model, "fits": self.fits, "targets": targets})


class RecordedUsage(Serializable, frozen=True):
    """A call that was made elsewhere, as the ledger has it."""

    request_id: str
    provider: str
    model: str
    cost_nanos: int | None
    """None: no price is known, and the ledger counts it with 0."""
    price_source: str | None
    overdrawn: tuple[str, ...] = ()
    """The budgets that it brought above their limits."""

    def to_dict(self) -> JSONObject:
        """All that is known, with the cost in US dollars as well."""
        cost = self.cost_nanos
        return known(
            {
                **msgspec.structs.asdict(self),
                "cost_usd": None if cost is None else float(nanos_to_text(cost)),
                "overdrawn": list(self.overdrawn),
            }
        )
