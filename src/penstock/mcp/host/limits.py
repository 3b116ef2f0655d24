"""The limits of one server's requests: a minute, at once, and of tokens."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence

from penstock.contract.errors import RateLimited
from penstock.contract.exchange import AnyRequest, SamplingRequest
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.mcp.host.fair_queue import FairQueue
from penstock.mcp.host.policy import ServerRule
from penstock.tokens import thinking_apart, upper_tokens

_MINUTE_S = 60.0


class Taken:
    """What was taken at one moment, and can be corrected."""

    __slots__ = ("amount", "at")

    def __init__(self, at: float, amount: int) -> None:
        """Made by `Minute.take`."""
        self.at = at
        self.amount = amount


class Minute:
    """A limit for any 60 seconds."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is taken yet."""
        self.limit = limit
        self._clock = clock
        self._taken: deque[Taken] = deque()

    @property
    def used(self) -> int:
        """What was taken in the last minute."""
        while self._taken and self._taken[0].at <= self._clock() - _MINUTE_S:
            self._taken.popleft()
        return sum(each.amount for each in self._taken)

    def take(self, amount: int) -> Taken | None:
        """Take so much, or nothing when there is no room."""
        if self.used + amount > self.limit:
            return None
        taken = Taken(self._clock(), amount)
        self._taken.append(taken)
        return taken

    def wait_s(self, amount: int) -> float:
        """Seconds until so much can be taken, if nobody takes any; 0: now."""
        missing = self.used + amount - self.limit
        for each in self._taken:
            if missing <= 0:
                break
            missing -= each.amount
            if missing <= 0:
                return max(0.0, each.at + _MINUTE_S - self._clock())
        return _MINUTE_S if missing > 0 else 0.0


class TokenAdmission:
    """A request that a server has tokens left for."""

    def __init__(self, targets: Sequence[Target], taken: Taken | None) -> None:
        """Made by `ServerLimits.admit`."""
        self.targets = targets
        self._taken = taken

    def settle(self, usage: Usage | None) -> None:
        """Put what was used in the place of what was expected."""
        if self._taken is not None:
            self._taken.amount = 0 if usage is None else (usage.total_tokens or 0)


class ServerLimits:
    """One server at work; the terms of its requests."""

    def __init__(
        self, server: str, rule: ServerRule, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """What this rule allows."""
        self._server = server
        self._rule = rule
        self._requests = Minute(rule.requests_per_minute, clock)
        tokens = rule.tokens_per_minute
        self._tokens = None if tokens is None else Minute(tokens, clock)
        self._queue = FairQueue(
            rule.at_once,
            most=rule.max_queued,
            most_bytes=rule.max_prompt_bytes,
            timeout_s=rule.queue_timeout_s,
        )

    @property
    def running(self) -> int:
        """How many requests are under way."""
        return self._queue.running

    @property
    def waiting(self) -> int:
        """How many requests wait for one of those to end."""
        return self._queue.waiting

    def count_request(self) -> Taken:
        """Count a request of this minute; raises RateLimited."""
        taken = self._requests.take(1)
        if taken is None:
            wait = self._requests.wait_s(1)
            raise RateLimited(
                f"this server may ask {self._requests.limit} times a minute: try again in "
                f"{wait:.0f} s",
                retry_after=wait,
            )
        return taken

    @contextlib.asynccontextmanager
    async def turn(self, session: Hashable, size: int, taken: Taken) -> AsyncGenerator[None]:
        """The block in which a counted request is under way; raises RateLimited.

        A request above `at_once` waits for its turn and keeps `size` bytes meanwhile. One that gets
        no turn does not count.
        """
        try:
            await self._queue.enter(session, size)
        except RateLimited:
            taken.amount = 0
            raise
        try:
            yield
        finally:
            self._queue.leave()

    def allowed(self, request: AnyRequest, ranked: Sequence[Target]) -> Sequence[Target]:
        """Return all targets: the rule has chosen the model of the request already."""
        return ranked

    def count(self, request: AnyRequest, ranked: Sequence[Target]) -> int | None:
        """Return the tokens that the request may take; None where no tokens are counted."""
        if self._tokens is None or not isinstance(request, SamplingRequest):
            return None
        model = ranked[0].model
        return upper_tokens(request, model) + request.max_tokens + thinking_apart(model)

    def admit(
        self, request: AnyRequest, ranked: Sequence[Target], tokens: int | None = None
    ) -> TokenAdmission:
        """Let a request through that there are tokens for; raises RateLimited."""
        window = self._tokens
        wanted = self.count(request, ranked) if tokens is None else tokens
        if window is None or wanted is None:
            return TokenAdmission(ranked, None)
        taken = window.take(wanted)
        if taken is not None:
            return TokenAdmission(ranked, taken)
        limit = f"this server may use {window.limit} tokens a minute"
        if wanted > window.limit:
            raise RateLimited(
                f"{limit}, and this request may take {wanted}: send less, or lower maxTokens",
                retryable=False,
            )
        wait = window.wait_s(wanted)
        raise RateLimited(f"{limit}: try again in {wait:.0f} s", retry_after=wait)
