"""Budgets, and which of them a request touches.

A budget may narrow to a provider, a model, a key, tags, or any of them together; what it does not
name it does not ask for. Budgets that name the same things are found by one look-up of their
values, so a request costs as much with a thousand budgets as with ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from penstock.budget.calendar import PERIODS, Calendar, Period, Span, time_zone
from penstock.budget.pricing.amounts import MOST, dollars
from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import Target


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be spent in a period by what it covers; raises ConfigurationError for nonsense."""

    name: str
    limit_nanos: int
    """Nano-dollars a period."""
    period: Period = "month"
    timezone: str = "UTC"
    provider: str | None = None
    model: str | None = None
    """The upstream model's name, or `provider/model`."""
    key: str | None = None
    tags: dict[str, str] = {}
    """Every one of them must be among the request's."""
    hard: bool = True
    """Hard: what does not fit is refused. Soft: it is let through, and warned about."""
    warn_at: tuple[float, ...] = (0.8,)
    """Shares of the limit; when so much is spent there is a warning, once a period each.

    A soft budget warns at 1 as well.
    """

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ConfigurationError(f"budget {self.name!r}: " + "; ".join(problems))

    def is_for(self, key: str | None) -> bool:
        """Whether it is for the key of this id, by its id or its name, and for no other name."""
        return self.key is not None and key is not None and self.key in (key, key_name(key))

    @property
    def thresholds(self) -> tuple[int, ...]:
        """What must have been spent for a warning, in nano-dollars, ascending."""
        shares = {*self.warn_at, *(() if self.hard else (1.0,))}
        # In millionths: the product of two large integers is exact, that with a float is not.
        return tuple(sorted(self.limit_nanos * round(share * 1e6) // 10**6 for share in shares))

    def covers_the_same(self, other: Budget) -> bool:
        """Whether both count the same things in the same periods, whatever their limits."""
        return _coverage(self) == _coverage(other)


def _coverage(budget: Budget) -> tuple[object, ...]:
    one = budget
    return (one.period, one.timezone, one.provider, one.model, one.key, one.tags)


def _problems(budget: Budget) -> Iterable[str]:
    if not budget.name:
        yield "give it a name"
    if type(budget.limit_nanos) is not int:
        yield f"limit_nanos={budget.limit_nanos!r}: give whole nano-dollars"
    elif not 0 <= budget.limit_nanos <= MOST:
        given = f"limit_nanos={budget.limit_nanos} ({dollars(budget.limit_nanos)})"
        yield f"{given}: give 0 to {MOST} ({dollars(MOST)})"
    if budget.period not in PERIODS:
        yield f"period {budget.period!r} is not known: give {', '.join(PERIODS)}"
    try:
        time_zone(budget.timezone)
    except ConfigurationError as error:
        yield str(error)
    for field in ("provider", "model", "key"):
        if getattr(budget, field) == "":
            yield f"{field} is empty: give a name, or leave it out to cover all"
    for share in budget.warn_at:
        if not 0 < share <= 100:
            yield f"warn_at has {share}: give shares of the limit above 0, such as 0.8"


class Rule:
    """A budget at work: with its number in the store and its calendar."""

    __slots__ = ("budget", "id", "quiet_below", "span", "thresholds")

    def __init__(self, id: int, budget: Budget) -> None:
        """`id` stays the same when the budget is set again under its name."""
        self.id = id
        self.budget = budget
        self.thresholds = budget.thresholds
        self.quiet_below = min((budget.limit_nanos, *self.thresholds))
        """With less than this spent, there is nothing to say about it."""
        self.span: Callable[[float], Span] = Calendar(budget.period, budget.timezone).span
        """Its period at a moment."""


_MOST_KEPT = 10_000
"""Callers may name models as they like; the budgets of more than this many are not remembered."""
_Shape = tuple[bool, bool, bool, tuple[str, ...]]
"""Whether it names a provider, a model, a key; and the names of its tags."""


KEY_PREFIX = "key:"
"""What the names of keys' own budgets begin with in the ledger."""


def covered_key(name: str, key: str | None) -> str | None:
    """The key that a budget of this name covers: that of `key:ci` is `ci`.

    Raises ConfigurationError when it is said to be another one.
    """
    if not name.startswith(KEY_PREFIX):
        return key
    own = name.removeprefix(KEY_PREFIX)
    if key not in (None, own):
        raise ConfigurationError(
            f"{key!r} is not the key of the budget {name!r}; give {own!r}, or leave it out"
        )
    return own


def key_name(key: str) -> str:
    """The name of the key of this id: the second key named `ci` has the id `ci~2`."""
    return key.partition("~")[0]


class Rules:
    """All budgets, indexed by what they name."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Later changes make a new one."""
        self.by_id = {rule.id: rule for rule in rules}
        self.by_name = {rule.budget.name: rule for rule in self.by_id.values()}
        self._shapes: dict[_Shape, dict[tuple[str, ...], list[Rule]]] = {}
        for rule in self.by_id.values():
            budget = rule.budget
            tags = tuple(sorted(budget.tags))
            shape = (bool(budget.provider), bool(budget.model), bool(budget.key), tags)
            # Some providers take names of models in any case.
            model = budget.model and budget.model.lower()
            named = (budget.provider, model, budget.key, *(budget.tags[tag] for tag in tags))
            values = tuple(value for value in named if value is not None)
            self._shapes.setdefault(shape, {}).setdefault(values, []).append(rule)
        self._by_tags = any(shape[-1] for shape in self._shapes)
        self._found: dict[tuple[Target | None, str | None], Sequence[Rule]] = {}

    def matching(
        self, target: Target | None, key: str | None, tags: Mapping[str, str]
    ) -> Sequence[Rule]:
        """The budgets that a call of this target counts against; None: of no target."""
        if tags and self._by_tags:
            return self._look_up(target, key, tags)
        found = self._found.get((target, key))
        if found is None:
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            found = self._found[target, key] = self._look_up(target, key, tags)
        return found

    def _look_up(
        self, target: Target | None, key: str | None, tags: Mapping[str, str]
    ) -> Sequence[Rule]:
        found: list[Rule] = []
        # A budget for a name covers every key that has it; one for an id only that key.
        keys = [] if key is None else list(dict.fromkeys((key, key_name(key))))
        for (provider, model, keyed, names), rules in self._shapes.items():
            if (keyed and key is None) or ((provider or model) and target is None):
                continue
            known = [tags[name] for name in names if name in tags]
            if len(known) != len(names):
                continue
            values: tuple[str, ...] = ()
            if provider and target is not None:
                values = (target.provider,)
            models: list[tuple[str, ...]] = [()]
            if model and target is not None:
                models = [(target.model.lower(),), (str(target).lower(),)]
            for called in models:
                for own in [(each,) for each in keys] if keyed else [()]:
                    found += rules.get((*values, *called, *own, *known), ())
        return found
