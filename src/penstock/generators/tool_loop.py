"""The tool loop: ask, call what the model wants called, ask again, until it answers.

There is this one loop for all providers, for whole answers and for streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.errors import (
    PenstockError,
    ProviderTimeout,
    RequestCancelled,
    ToolFailed,
)
from penstock.contract.events import (
    Cancelled,
    Complete,
    Error,
    GeneratorDelta,
    StreamEvent,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from penstock.contract.exchange import Metadata, Result, SamplingRequest
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Message,
    ToolResult,
    ToolUse,
)
from penstock.contract.metadata import ErrorMetadata
from penstock.contract.options import ToolChoice, ToolDefinition
from penstock.contract.tools import Report, RunnableTool
from penstock.generators.answer_type import AnswerMismatch
from penstock.generators.naming import offered, offered_name
from penstock.generators.tool_results import UnusableResult, failure_of, readable, result_of

Ask: TypeAlias = Callable[[SamplingRequest], AsyncGenerator[StreamEvent, None]]
"""Sends one request; gives deltas, if it streams, and one terminal event."""


_MOST_NAMED = 50
"""A model that calls a tool that is not there is told the names of so many others."""
_ANSWER_NOW = "There are no more tools: answer now, with what you know."


class LoopLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a model and its tools may go."""

    max_rounds: int = 16
    """How often tools may be called; after that the model must answer without."""
    timeout_s: float = 60.0
    concurrency: int = 8
    result_bytes: int = 1_000_000
    errors: Literal["return", "raise"] = "return"
    """Whether a failed tool is told to the model, or raised as ToolFailed."""


class ToolLoop:
    """One run of a generator: all its rounds, and the sum of what they take."""

    def __init__(
        self,
        ask: Ask,
        request: SamplingRequest,
        tools: Sequence[RunnableTool] = (),
        limits: LoopLimits | None = None,
        *,
        missing: Sequence[str] = (),
        takes: Callable[[Image | Audio], bool] = lambda part: True,
        started: float | None = None,
        theirs: Sequence[ToolDefinition] = (),
        tells_calls: bool = True,
    ) -> None:
        """Nothing is asked before `run`; `missing` is told as dropped in the metadata.

        `theirs` are tools that the caller runs: a round that calls one of them is the last. Unless
        the caller is told of our calls (`tells_calls`), those of that round are not made: nobody
        would learn what they gave, and the model makes them again.
        Of a picture or sound of a tool that the model does not take, it is told in words. `started`
        is when the caller began to wait, by `time.perf_counter`; now, if it is not given.
        """
        self._missing = tuple(missing)
        self._takes = takes
        self._ask = ask
        self._theirs = frozenset(tool.name for tool in theirs)
        self._tells_calls = tells_calls
        self._tools: Mapping[str, RunnableTool] = offered(tools, self._theirs)
        self._limits = limits or LoopLimits()
        self._request = msgspec.structs.replace(
            request,
            tools=(
                *theirs,
                *(
                    msgspec.structs.replace(tool.definition, name=name)
                    for name, tool in self._tools.items()
                ),
            ),
            tool_choice=self._choice(request.tool_choice),
        )
        self._given = len(request.messages)
        self._started = time.perf_counter() if started is None else started
        self._spent: Metadata | None = None
        self._rounds = 0
        self._result: Result | None = None
        self._said: list[Content] = []

    @property
    def result(self) -> Result:
        """The last answer, with the metadata of all rounds together."""
        if self._result is None or self._spent is None:
            raise RuntimeError("nothing has been answered yet")
        elapsed = round((time.perf_counter() - self._started) * 1000)
        metadata = msgspec.structs.replace(
            self._spent,
            latency_ms=elapsed,
            tool_rounds=self._rounds,
            dropped_options=(*self._missing, *self._spent.dropped_options),
        )
        return msgspec.structs.replace(self._result, metadata=metadata)

    @property
    def said(self) -> tuple[Content, ...]:
        """What the model has said in all rounds; each call that was made here is an MCPCall."""
        return tuple(self._said)

    @property
    def turns(self) -> tuple[Message, ...]:
        """The turns that follow those of the request: calls of tools, their results, the answer."""
        return (*self._request.messages[self._given :], self.result.message)

    def say(self, *messages: Message) -> None:
        """Go on with these turns when `run` is called again; tools are not offered any more."""
        self._request = msgspec.structs.replace(
            self._request,
            messages=(*self._request.messages, *messages),
            tool_choice=ToolChoice("none") if self._tools else None,
        )

    def _choice(self, choice: ToolChoice | None) -> ToolChoice | None:
        """In the names that the model knows, where the caller knows those of the servers."""
        if choice is None or choice.name is None or choice.name in self._theirs:
            return choice
        return msgspec.structs.replace(choice, name=offered_name(choice.name, self._tools))

    async def run(self) -> AsyncGenerator[GeneratorDelta, None]:
        """Until the model answers without a tool; then `result` has the answer."""
        try:
            async with contextlib.aclosing(self._run()) as deltas:
                async for event in deltas:
                    yield event
        except PenstockError as error:
            self.describe(error)
            raise

    def describe(self, error: PenstockError) -> None:
        """Set the metadata of an error of this run: what all rounds took."""
        latency_ms = round((time.perf_counter() - self._started) * 1000)
        if self._spent is not None:
            error.metadata = _failed_after(
                self._spent, error.metadata, latency_ms=latency_ms, tool_rounds=self._rounds
            )

    async def _run(self) -> AsyncGenerator[GeneratorDelta, None]:
        while True:
            async with contextlib.aclosing(self._round()) as deltas:
                async for event in deltas:
                    yield event
            asked = self.result.tool_uses
            uses = tuple(filter(self._is_ours, asked))
            if not uses:
                self._said += self.result.content
                return
            if self._request.tool_choice == ToolChoice("none"):
                names = ", ".join(dict.fromkeys(use.name for use in uses))
                raise self._located(
                    ToolFailed(
                        f"the model calls {names} where no tool may be called, after "
                        f"{self._rounds} rounds of tools"
                    )
                )
            if len(uses) < len(asked) and not self._tells_calls:
                self._said += (part for part in self.result.content if not self._is_ours(part))
                return
            self._rounds += 1
            results: dict[int, ToolResult] = {}
            async with contextlib.aclosing(self._call(uses, results)) as happenings:
                async for event in happenings:
                    yield event
            answers = [results[at] for at in range(len(uses))]
            self._note(answers)
            if len(uses) < len(asked):
                return
            self._go_on(answers)

    def _is_ours(self, part: Content) -> bool:
        """Whether it is a call that is made here."""
        return isinstance(part, ToolUse) and part.name not in self._theirs

    def _note(self, answers: Sequence[ToolResult]) -> None:
        """Keep what was said and called in this round."""
        left = iter(answers)
        for part in self.result.content:
            if not isinstance(part, ToolUse) or part.name in self._theirs:
                self._said.append(part)
                continue
            answer = next(left)
            tool = self._tools.get(part.name)
            name, server = (tool.definition.name, tool.server) if tool else (part.name, "")
            self._said.append(
                MCPCall(part.id, server, name, part.input, answer.content, answer.is_error)
            )

    def _go_on(self, results: Sequence[ToolResult]) -> None:
        answered = Message("user", tuple(readable(each, self._takes) for each in results))
        choice = self._request.tool_choice
        system = self._request.system_prompt
        if self._rounds >= self._limits.max_rounds:
            # In words too, because not every API can forbid tools that its history holds.
            choice = ToolChoice("none")
            system = f"{system}\n\n{_ANSWER_NOW}" if system else _ANSWER_NOW
        elif choice is not None and choice.mode in ("required", "tool"):
            # It has been obeyed. Obeyed again in each round, it would never let an answer come.
            choice = None
        self._request = msgspec.structs.replace(
            self._request,
            messages=(*self._request.messages, self.result.message, answered),
            tool_choice=choice,
            system_prompt=system,
        )

    async def _round(self) -> AsyncGenerator[GeneratorDelta, None]:
        request = msgspec.structs.replace(self._request, timeout=self._time_left())
        async with contextlib.aclosing(self._ask(request)) as events:
            async for event in events:
                if isinstance(event, Complete):
                    self._result = event.result
                    self._spent = _added(self._spent, event.result.metadata)
                elif isinstance(event, Error):
                    raise event.error
                elif isinstance(event, Cancelled):
                    raise RequestCancelled("the request was cancelled")
                else:
                    yield event

    def _time_left(self) -> float | None:
        limit = self._request.timeout
        if limit is None:
            return None
        left = limit - (time.perf_counter() - self._started)
        if left <= 0:
            raise self._out_of_time(limit)
        return left

    def _out_of_time(self, limit: float) -> PenstockError:
        return self._located(out_of_time(limit))

    def _located(self, error: PenstockError) -> PenstockError:
        if self._spent is None:
            return error
        return error.located(
            provider=self._spent.provider,
            model=self._spent.model,
            request_id=self._spent.request_id,
        )

    async def _call(
        self, uses: Sequence[ToolUse], results: dict[int, ToolResult]
    ) -> AsyncGenerator[GeneratorDelta, None]:
        """Run all calls; `results` gets what each gave, by its place: ids need not differ."""
        happened: asyncio.Queue[GeneratorDelta | BaseException] = asyncio.Queue()
        gate = asyncio.Semaphore(self._limits.concurrency)

        async def call(at: int, use: ToolUse) -> None:
            tool = self._tools.get(use.name)
            name, server = (tool.definition.name, tool.server) if tool else (use.name, "")

            def report(progress: float, total: float | None, message: str | None) -> None:
                happened.put_nowait(ToolProgress(use.id, name, progress, total, message))

            async with gate:
                happened.put_nowait(ToolStarted(use.id, name, use.input, server))
                try:
                    result = await self._result_of(use, tool, report)
                except BaseException as error:  # noqa: BLE001 - it is raised over there
                    # Whoever waits for the tools learns of it; a lost error would be waited for.
                    happened.put_nowait(error)
                    return
            results[at] = result
            happened.put_nowait(ToolEnded(use.id, name, result.is_error, result.content))

        tasks = [asyncio.create_task(call(at, use)) for at, use in enumerate(uses)]
        try:
            while len(results) < len(uses) or not happened.empty():
                event = await happened.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _result_of(
        self, use: ToolUse, tool: RunnableTool | None, report: Report
    ) -> ToolResult:
        if tool is None:
            known = ", ".join(islice(self._tools, _MOST_NAMED)) or "none"
            if len(self._tools) > _MOST_NAMED:
                known += f" and {len(self._tools) - _MOST_NAMED} more"
            return self._failed(use, f"there is no tool {use.name!r}; there are: {known}")
        limit = tool.timeout or self._limits.timeout_s
        left = self._time_left()
        clock = asyncio.timeout(limit if left is None else min(limit, left))
        try:
            async with clock:
                value = await tool.run(use.input, report)
            result = result_of(use.id, value, self._limits.result_bytes)
        except AnswerMismatch as mismatch:
            return self._failed(use, f"the arguments do not fit: {mismatch}", mismatch)
        except UnusableResult as unusable:
            return self._failed(use, f"the tool gave {unusable}", unusable)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return self._failed(use, "the tool was cancelled", error)
        except Exception as error:
            if not (isinstance(error, TimeoutError) and clock.expired()):
                return self._failed(use, f"{type(error).__name__}: {error}", error)
            if self._request.timeout is not None and left is not None and left <= limit:
                raise self._out_of_time(self._request.timeout) from error
            return self._failed(use, f"the tool took longer than {limit:g} s", error)
        if result.is_error and self._limits.errors == "raise":
            # A tool of a server says so in its answer, where a function raises.
            return self._failed(use, result.text)
        return result

    def _failed(self, use: ToolUse, reason: str, cause: BaseException | None = None) -> ToolResult:
        if self._limits.errors == "raise":
            error = self._located(ToolFailed(f"the tool {use.name!r} failed: {reason}"))
            raise error from cause
        return failure_of(use.id, reason)


def out_of_time(limit: float) -> ProviderTimeout:
    """The error when the time that the caller gives the whole run is over."""
    return ProviderTimeout(f"no whole answer within the request's own limit of {limit:g} s")


def _is_cancelled() -> bool:
    """Whether somebody cancels the running task, as opposed to what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed_after(
    earlier: Metadata, failed: ErrorMetadata | None, *, latency_ms: int, tool_rounds: int
) -> ErrorMetadata:
    """What a run took whose earlier requests were answered; `failed` is the one that was not."""
    last = failed or ErrorMetadata(request_id=earlier.request_id, latency_ms=0, cost_nanos=0)
    costs = (earlier.cost_nanos, last.cost_nanos)
    return ErrorMetadata(
        request_id=last.request_id,
        latency_ms=latency_ms,
        provider=last.provider or earlier.provider,
        model=last.model or earlier.model,
        first_token_ms=earlier.first_token_ms,
        attempts=earlier.attempts + last.attempts,
        api_calls=earlier.api_calls + last.api_calls,
        tool_rounds=tool_rounds,
        usage=earlier.usage + last.usage,
        cost_nanos=None if None in costs else sum(cost or 0 for cost in costs),
    )


def _added(earlier: Metadata | None, later: Metadata) -> Metadata:
    """What both rounds took; the rest is that of the later one."""
    if earlier is None:
        return later
    costs = (earlier.cost_nanos, later.cost_nanos)
    return msgspec.structs.replace(
        later,
        first_token_ms=earlier.first_token_ms,
        usage=earlier.usage + later.usage,
        api_calls=earlier.api_calls + later.api_calls,
        attempts=earlier.attempts + later.attempts,
        cost_nanos=None if None in costs else sum(cost or 0 for cost in costs),
        dropped_options=tuple(dict.fromkeys((*earlier.dropped_options, *later.dropped_options))),
        adapted=tuple(dict.fromkeys((*earlier.adapted, *later.adapted))),
    )
