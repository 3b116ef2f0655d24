"""One request on its way down the ranked list: whom to ask next, how often, and after how long."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from penstock.contract.errors import AllTargetsFailed, BudgetExceeded, PenstockError
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    TranscriptionRequest,
)
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities
from penstock.contract.ports import Attempt, Provider, Target, Trail
from penstock.pool.backoff import JITTER, RetryBudget, pause_s
from penstock.pool.error_policy import is_empty, may_fail_over
from penstock.pool.fit import Fitted
from penstock.pool.targets.breaker import Permit
from penstock.pool.targets.latency import Waits
from penstock.pool.targets.states import TargetState, TargetStates
from penstock.tokens import thinking_apart

R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)
Fit = Callable[[R, Capabilities, Target], Fitted[R]]

_SLACK_S = 0.05
"""A timer may end a little before the pause for which it was set."""
UNLIMITED_CHARACTERS = 1024 * 1024
"""Of a streamed answer, in any case: some models think, and some servers answer, beyond limits."""
SLOWEST_AUDIO_BYTES_PER_S = 100_000
"""Of a recording: six times as fast as an MP3 of 128 kbit/s is played."""
CHARACTERS_PER_TOKEN = 128
"""No tokenizer in use has a token of more characters."""


class RetrySettings(msgspec.Struct, frozen=True):
    """How patient the pool is with a target."""

    retries: int = 2
    longest_wait_s: float = 10.0
    """A target that asks for a longer pause is passed over."""
    hedge_quantile: float | None = None
    """A target that takes longer than this share of its last calls gets company; None: never."""
    retry_empty: bool = True
    """Whether another target is asked after an empty answer."""
    first_token_timeout_s: float = 30.0
    """The longest silence before another target is asked, of a model that need not think."""
    slowest_tokens_per_s: float = 20.0


class Ticket(msgspec.Struct, Generic[R]):
    """Leave to ask one target once."""

    attempt: Attempt
    provider: Provider
    able: Capabilities
    request: R
    """As this target can take it."""
    state: TargetState
    permit: Permit
    pauses: int = 0
    """How many pauses the target had asked for by then."""
    stops: tuple[str, ...] = ()
    """The stop sequences that are enforced here, because the target cannot."""
    is_cut: bool = False
    """Whether its answer is whole because a stop sequence was found in it here."""
    billed: Usage | None = None
    """What an answer that was cut is billed for, once it has ended."""
    text: list[str] = msgspec.field(default_factory=list[str])
    """The pieces of text that it has delivered: for bills of unfinished answers, and to go on."""
    hidden: list[str] = msgspec.field(default_factory=list[str])
    """The same for thinking and the arguments of tool calls, which are only billed."""
    characters: int = 0
    """The length of both together."""
    too_long: bool = False
    """Whether it was cut because its answer was longer than the token limit can explain."""

    @property
    def delivered(self) -> Sequence[str]:
        """All pieces that it has delivered."""
        return [*self.text, *self.hidden] if self.hidden else self.text

    @property
    def patience(self) -> float:
        """How many times the usual silence is allowed, as the model may think first."""
        if not isinstance(self.request, SamplingRequest):
            return 1.0
        return self.able.patience(self.request.reasoning_level)

    @property
    def first_tokens(self) -> Waits:
        """The times to the first token of requests like this one."""
        state = self.state
        return state.first_after_thinking if self.patience > 1 else state.first_tokens

    @property
    def most_characters(self) -> int:
        """The length beyond which its answer is cut."""
        model = self.attempt.target.model
        limit = self.request.max_tokens if isinstance(self.request, SamplingRequest) else 0
        return UNLIMITED_CHARACTERS + CHARACTERS_PER_TOKEN * (limit + thinking_apart(model))


def _named(target: Target, message: str) -> str:
    """The message with its target, which many messages name themselves."""
    return message if str(target) in message else f"{target}: {message}"


class Run(Generic[R]):
    """Hands out tickets until one brings an answer, or there are none left."""

    def __init__(
        self,
        ranked: Sequence[Target],
        request: R,
        fit: Fit[R],
        *,
        provider: Callable[[str], Provider],
        states: TargetStates,
        budget: RetryBudget,
        settings: RetrySettings,
        trail: Trail,
    ) -> None:
        """Nothing is asked before a ticket is used."""
        self._trail = trail
        self._waiting = list(ranked)
        self._refused: list[Target] = []
        self._request = request
        self._fit = fit
        self._provider = provider
        self._states = states
        self._budget = budget
        self._settings = settings
        self._number = 0
        self._retries = 0
        self._again_in: float | None = None
        self._otherwise = False
        self._present: Target | None = None
        limit = request.timeout
        self._deadline = math.inf if limit is None else time.monotonic() + limit
        self.failures: list[tuple[Target, PenstockError]] = []
        budget.request()

    @property
    def caller(self) -> str:
        """Who waits in line for a place; callers take turns."""
        if isinstance(self._request, SamplingRequest):
            return str(self._request.metadata.get("user", ""))
        return ""

    async def next(self) -> Ticket[R] | None:
        """One ticket after the other, None when none is left; call `failed` before the next one.

        No generator, because that would cost every request more than the tickets do.
        """
        while (target := await self._next_target()) is not None:
            self._again_in = None
            self._otherwise = False
            if pause_s := self._states.paused_s(target):
                await self._wait_for_end(target, pause_s)
            if self._number and not await self._affordable(target):
                self._present = None
                continue
            ticket = self._issue(target)
            if ticket is not None:
                return ticket
            self._present = None
        return None if self._number else await self._last_resort()

    async def _next_target(self) -> Target | None:
        """The one that was asked last, if it is to be asked again; else the next in line."""
        if self._present is not None:
            if self._otherwise:
                return self._present
            if self._again_in is not None and self._may_retry():
                await asyncio.sleep(self._again_in)
                if not self._is_paused_longer(self._present):
                    return self._present
                # Others were refused meanwhile, for longer.
                self._waiting.append(self._present)
        # By what is known now; targets that are not well are asked last, if at all.
        self._waiting.sort(key=self._states.rank)
        self._present = self._waiting.pop(0) if self._waiting else None
        self._retries = 0
        return self._present

    def _is_paused_longer(self, target: Target) -> bool:
        """Whether the target is in a pause while another could answer."""
        return self._states.paused_s(target) > _SLACK_S and self.has_another

    async def _wait_for_end(self, target: Target, pause_s: float) -> None:
        """Wait for the end of a pause, as no other target is left, if that is worth the wait."""
        if self._states[target].breaker.state == "open":
            return
        pause_s *= 1 + JITTER * random.random()  # noqa: S311 - no secret depends on it
        longest_s = min(self._settings.longest_wait_s, self._deadline - time.monotonic())
        if pause_s < longest_s:
            await asyncio.sleep(pause_s)

    @property
    def has_another(self) -> bool:
        """Whether a healthy target is left that has not been asked."""
        return any(self._states.available(target)[0] for target in self._waiting)

    def second(self) -> Ticket[R] | None:
        """Leave to ask another target at the same time as the one that is late.

        A healthy one, and within what there is for retries: in a general slowness nobody is helped
        by twice the load.
        """
        for target in self._waiting:
            if self._states.available(target)[0] and self._budget.spend():
                self._waiting.remove(target)
                return self._issue(target)
        return None

    def may_replace(self, answer: object) -> bool:
        """Whether this answer is empty, and another healthy target may be asked in its place."""
        return (
            self._settings.retry_empty
            and isinstance(answer, Reply)
            and isinstance(self._request, SamplingRequest)
            and is_empty(answer, self._request)
            and any(self._states.available(target)[0] for target in self._waiting)
            and self._budget.spend()
        )

    def outran(self, ticket: Ticket[R]) -> None:
        """Another target was faster; should that one break off, this one has not failed yet."""
        self._waiting.append(ticket.attempt.target)

    def failed(
        self,
        ticket: Ticket[R],
        error: PenstockError,
        *,
        in_mid_answer: bool = False,
        retry: bool = True,
    ) -> None:
        """Learn from it and decide how to go on; raises the error when nobody could do better."""
        self.noted(ticket, error)
        if not may_fail_over(error):
            raise error
        # In mid-answer time is short: any other target is better than a pause.
        if retry and not (in_mid_answer and self._waiting):
            pause = pause_s(
                error,
                self._retries + 1,
                longest_s=self._settings.longest_wait_s,
                random=random.random,  # nobody's secret depends on it
            )
            # A pause beyond the request's own limit would be all that is left of it.
            if pause is not None and time.monotonic() + pause < self._deadline:
                self._again_in = pause

    def noted(self, ticket: Ticket[R], error: PenstockError) -> None:
        """Learn from it, and leave it to others how to go on."""
        target = ticket.attempt.target
        error.located(provider=target.provider, model=target.model)
        ticket.state.failed(ticket.permit, error)
        self.failures.append((target, error))

    def once_more(self) -> None:
        """Ask the same target again at once, in another way, which is no retry."""
        self._otherwise = True

    def silence_s(self, ticket: Ticket[R]) -> float | None:
        """The longest silence of this target before the next one is asked; None: there is none."""
        if not self.has_another:
            return None
        bound_s = self._settings.first_token_timeout_s * ticket.patience
        return ticket.first_tokens.silence_s(bound_s)

    def transcript_s(self, ticket: Ticket[R]) -> float | None:
        """The longest wait for a transcript before the next target is asked; None: no limit.

        Nothing comes before the whole recording is transcribed, so a long one gets more time.
        """
        request = ticket.request
        if not isinstance(request, TranscriptionRequest) or not self.has_another:
            return None
        # Of base64, four characters are three bytes.
        longest_s = len(request.audio.data) * 3 / 4 / SLOWEST_AUDIO_BYTES_PER_S
        return self._settings.first_token_timeout_s + longest_s

    def is_short(self, ticket: Ticket[SamplingRequest], limit_s: float) -> bool:
        """Whether its whole answer is surely there within the limit."""
        longest_s = ticket.request.max_tokens / self._settings.slowest_tokens_per_s
        return ticket.patience == 1 and longest_s <= limit_s / 2

    def late_after(self, waits: Waits) -> float | None:
        """Seconds after which a target of this history is late; None when that cannot be said."""
        share = self._settings.hedge_quantile
        return None if share is None or not self._waiting else waits.quantile(share)

    def _may_retry(self) -> bool:
        self._retries += 1
        return self._retries <= self._settings.retries and self._budget.spend()

    def exhausted(self) -> PenstockError:
        """The error when every target has been tried: that of the only one, or all together."""
        errors = [error for _, error in self.failures]
        last = dict(self.failures)
        if len(last) == 1:
            return errors[-1]
        said = "; ".join(_named(target, error.message) for target, error in last.items())
        failed = AllTargetsFailed(f"all {len(last)} targets failed: {said}", attempts=errors)
        failed.__cause__ = errors[-1] if errors else None
        return failed

    async def _affordable(self, target: Target) -> bool:
        """What was held is for one bill: after a broken answer the next one needs its own."""
        try:
            await self._trail.afford(target)
        except BudgetExceeded as error:
            error.located(provider=target.provider, model=target.model)
            self.failures.append((target, error))
            return False
        return True

    async def _last_resort(self) -> Ticket[R] | None:
        """Nobody was asked, for all are left alone: one call now and then beats none at all."""
        for target in self._refused:
            permit = await self._states[target].breaker.probe(self._settings.longest_wait_s)
            # One that cannot take the request is no reason to spare the next.
            if permit is not None and (ticket := self._ticket(target, permit)) is not None:
                return ticket
        return None

    def _issue(self, target: Target) -> Ticket[R] | None:
        state = self._states[target]
        permit = state.breaker.allow()
        if permit is not None:
            return self._ticket(target, permit)
        self._refused.append(target)
        # What this request itself heard from the target says more than that it is left alone.
        if all(target != failed for failed, _ in self.failures):
            self.failures.append((target, state.refusal()))
        return None

    def _ticket(self, target: Target, permit: Permit) -> Ticket[R] | None:
        try:
            provider = self._provider(target.provider)
            able = provider.capabilities(target.model)
            fitted = self._fit(self._request, able, target)
        except PenstockError as error:
            permit.ignore()
            self.failures.append(
                (target, error.located(provider=target.provider, model=target.model))
            )
            if not may_fail_over(error):
                raise
            return None
        except BaseException:
            permit.ignore()
            raise
        self._number += 1
        attempt = Attempt(target, self._number, fitted.adapted)
        state = self._states[target]
        request, stops = fitted.request, fitted.stops
        return Ticket(attempt, provider, able, request, state, permit, state.pauses, stops)
