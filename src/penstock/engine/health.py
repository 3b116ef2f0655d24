"""The health of an engine's providers and targets, and the marks that take them out of service."""

from __future__ import annotations

import asyncio
import difflib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from penstock.config.settings import Config
from penstock.contract.checks.spelling import methods_suggest_names
from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.ports import ModelInfo, Provider
from penstock.engine.build.routing import canonical
from penstock.pool.failover import FailoverPool
from penstock.pool.targets.health_checks import problem_of
from penstock.pool.targets.marks import LONGEST_PATTERN, Mark, covers, full_pattern, is_exact
from penstock.pool.targets.states import Evidence, HealthStatus, Pause, TargetHealth
from penstock.providers.registry import callable_names
from penstock.routing.router import parse_target

_MOST_LISTED = 8
_ALIKE = 0.7
"""How much of a name must be right for a suggestion, from 0 to 1."""


class ProviderHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """The health of one provider, and what it offers where it was asked."""

    provider: str
    status: HealthStatus
    latency_ms: int
    """How long it took to list its models; 0 when it was not asked."""
    models: tuple[ModelInfo, ...] = ()
    error: str | None = None
    """Why it is not up."""
    checked_at: float | None = None
    """Unix time of the evidence; None before there is any."""
    evidence: Evidence | None = None
    """By what the status is known: a health check, its targets' requests, or a mark."""


class HeldBack(msgspec.Struct, frozen=True):
    """The marks and pauses that hold targets back, for another process of the same gateway."""

    marks: list[Mark] = []
    pauses: list[Pause] = []


@methods_suggest_names
class Health(ABC):
    """The part of an engine that watches providers and targets."""

    config: Config
    _pool: FailoverPool

    @abstractmethod
    def provider(self, name: str) -> Provider:
        """The provider of this name."""

    def target_health(self) -> list[TargetHealth]:
        """Every target that was asked so far: whether it is asked now, and how busy it is."""
        return [state.health for state in self._pool.states]

    def mark_down(self, target: str, reason: str, *, seen: Iterable[str] = ()) -> list[str]:
        """Ask a target nothing until it is marked up; returns the targets that are covered.

        `target` is `provider/model`, a whole provider, or a pattern such as `openai/gpt-*`. A
        provider or a pattern also covers targets that are asked for later. `seen` are targets that
        are known elsewhere. Raises ConfigurationError when nothing is covered.
        """
        target = self._named(target)
        matched = self._matching(target, seen)
        self._pool.states.mark_down(target, reason)
        for name in matched:
            if is_exact(name):
                # It is shown from now on, also before it is asked for.
                _ = self._pool.states[parse_target(name)]
        return matched

    def mark_up(self, target: str, *, seen: Iterable[str] = ()) -> list[str]:
        """Ask targets again, whatever was held against them; returns those that are covered.

        Takes and raises what `mark_down` does.
        """
        target = self._named(target)
        matched = self._matching(target, seen)
        self._pool.states.mark_up(target)
        return matched

    def held_back(self) -> HeldBack:
        """The marks and pauses that are in force."""
        states = self._pool.states
        pauses = [pause for state in states if (pause := state.current_pause) is not None]
        return HeldBack(states.marks.rules, pauses)

    def hold_back(self, held: HeldBack) -> None:
        """Apply marks and pauses of another process of the same gateway."""
        states = self._pool.states
        states.marks.adopt(held.marks)
        states.apply_marks()
        for pause in held.pauses:
            target = parse_target(pause.target)
            states[target].pause(pause.seconds, pause.reason, shared=True)

    async def provider_health(self, names: Iterable[str] | None = None) -> list[ProviderHealth]:
        """Ask these providers, or all configured ones, for their models, all at once."""
        chosen = list(names) if names is not None else list(self.config.providers)
        return list(await asyncio.gather(*(self._health(name) for name in chosen)))

    def last_provider_health(self, names: Iterable[str] | None = None) -> list[ProviderHealth]:
        """The health of these providers, or all configured ones, by what is known already."""
        targets = self.target_health()
        chosen = list(names) if names is not None else list(self.config.providers)
        return [self._known_health(name, targets) for name in chosen]

    async def _health(self, name: str) -> ProviderHealth:
        started = time.perf_counter()
        models: tuple[ModelInfo, ...] = ()
        error: PenstockError | None = None
        try:
            models = tuple(await self.provider(name).models())
        except PenstockError as caught:
            error = caught
        latency_ms = round((time.perf_counter() - started) * 1000)
        self._pool.states.checked(name, "" if error is None else problem_of(error))
        known = self._known_health(name, self.target_health())
        if error is not None and known.evidence in (None, "check"):
            # Its targets say nothing, so it is judged by this answer alone.
            known = ProviderHealth(
                name, "down", 0, error=str(error), checked_at=time.time(), evidence="check"
            )
        return msgspec.structs.replace(known, latency_ms=latency_ms, models=models)

    def _known_health(self, name: str, targets: Sequence[TargetHealth]) -> ProviderHealth:
        states = self._pool.states
        mark = states.marks.of(full_pattern(name))
        if mark is not None:
            return ProviderHealth(
                name, "down", 0, (), f"marked down: {mark.reason}", mark.at, "mark"
            )
        own = [each for each in targets if each.target.partition("/")[0] == name and each.evidence]
        check = states.checks.get(name)
        if own:
            statuses = {each.status for each in own}
            status: HealthStatus = own[0].status if len(statuses) == 1 else "degraded"
            worst = [each for each in own if each.status != "up"] or own
            last = max(worst, key=lambda each: each.checked_at or 0.0)
            reason = None if status == "up" else f"{last.target}: {last.reason}"
            return ProviderHealth(name, status, 0, (), reason, last.checked_at, last.evidence)
        if check is None or check.problem is None:
            return ProviderHealth(name, "up", 0)
        return ProviderHealth(
            name,
            "down" if check.problem else "up",
            0,
            (),
            check.problem or None,
            check.at,
            "check",
        )

    def _named(self, target: str) -> str:
        """The name or pattern as targets are known by; raises ConfigurationError for neither."""
        provider, separator, model = target.partition("/")
        if not provider or (separator and not model) or len(target) > LONGEST_PATTERN:
            raise ConfigurationError(
                f"{target[:LONGEST_PATTERN]!r} is not a target; write provider/model, a provider, "
                "or a pattern such as provider/*"
            )
        if not is_exact(target):
            return target
        return str(canonical(self.config, parse_target(target)))

    def _matching(self, pattern: str, seen: Iterable[str]) -> list[str]:
        """What this name or pattern covers; raises ConfigurationError when that is nothing."""
        states = self._pool.states
        configured = [
            parse_target(each) for model in self.config.models.values() for each in model.targets
        ]
        known = {
            *(str(canonical(self.config, target)) for target in configured),
            *(str(state.target) for state in states),
            *seen,
        }
        full = full_pattern(pattern)
        if found := sorted(name for name in known if covers(full, name)):
            return found
        marked = [rule.pattern for rule in states.marks.rules]
        providers = callable_names(self.config.providers)
        provider, _, model = full.partition("/")
        if model == "*" and (whole := [name for name in providers if fnmatchcase(name, provider)]):
            return [full_pattern(name) for name in sorted(whole)]
        if full in marked:
            return [full]
        if "/" not in pattern:
            raise _no_match("provider", pattern, self.config.providers, providers)
        raise _no_match("target", pattern, known, known)


def _no_match(
    what: str, pattern: str, listed: Iterable[str], possible: Iterable[str]
) -> ConfigurationError:
    names = sorted(listed)
    # What is configured is nearer than what could be.
    near = difflib.get_close_matches(pattern, names, 1, _ALIKE) or difflib.get_close_matches(
        pattern, sorted(possible), 1, _ALIKE
    )
    more = ", ..." if len(names) > _MOST_LISTED else ""
    known = ", ".join(names[:_MOST_LISTED]) + more
    hints = [f"known: {known}"] if known else []
    if what == "target":
        hints.append("to mark targets that were not asked for yet, mark their provider")
    if near:
        hints.append(f"did you mean {near[0]!r}?")
    return ConfigurationError("; ".join([f"{pattern!r} matches no {what}", *hints]))
