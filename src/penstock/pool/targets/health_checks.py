"""Asks providers now and then whether they are there, with a call that costs no tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.contract.errors import (
    AuthenticationFailed,
    ConfigurationError,
    PenstockError,
    ProviderUnavailable,
)
from penstock.contract.ports import Provider
from penstock.pool.targets.states import TargetStates

_LONGEST_S = 10.0


class HealthChecks:
    """Checks the providers of all targets that were asked for, and tells the targets' states.

    A provider that lists its models is there: of what was left alone, one request may be tried
    before the cooldown is over. One that cannot be reached, or refuses the key, has its targets
    asked last, unless their requests succeed. Any other error says nothing, for many servers have
    no list of models.
    """

    def __init__(
        self, states: TargetStates, provider: Callable[[str], Provider], interval_s: float
    ) -> None:
        """Nothing is asked before `run`."""
        self._states = states
        self._provider = provider
        self._interval_s = interval_s

    async def run(self) -> None:
        """Check for ever."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.check()

    async def check(self) -> None:
        """Ask each provider once, all at the same time."""
        names = {state.target.provider for state in self._states}
        await asyncio.gather(*(self._check(name) for name in names))

    async def _check(self, name: str) -> None:
        problem: str | None = ""
        try:
            async with asyncio.timeout(min(_LONGEST_S, self._interval_s)):
                await self._provider(name).models()
        except TimeoutError:
            problem = "its health check has not been answered"
        except PenstockError as error:
            problem = problem_of(error)
        self._states.checked(name, problem)


def problem_of(error: PenstockError) -> str | None:
    """What the error of a health check shows; None: nothing, as many servers have no such list."""
    if isinstance(error, ProviderUnavailable | AuthenticationFailed | ConfigurationError):
        return f"its health check failed: {type(error).__name__}: {error.message}"[:300]
    return None
