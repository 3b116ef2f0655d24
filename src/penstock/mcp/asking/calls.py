"""One call of a client while it is served, and what is remembered of it from round to round.

In the modern era a server cannot wait for an answer: it returns the question, and the client calls
again with the answer. So `sample` leaves the tool by raising `Suspended`, and when the tool runs
again, everything that was answered before is given to it from memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types
from mcp.server.mcpserver import Context
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from penstock.contract.errors import ConfigurationError, ToolFailed
from penstock.contract.messages import JSONObject
from penstock.mcp.asking.state import Entry, State, digest

_KEPT_AS = "penstock_call"
"""On the SDK's session, of which each request has its own; who wraps one takes it along."""


class Suspended(BaseException):
    """Leaves the tool so that the client can be asked; no error, so nobody catches it as one."""


@dataclass
class _Making:
    """A value that is being made, and how many calls wait for it."""

    task: asyncio.Task[None]
    waiters: int = 0


class Call:
    """What `sample` and `once` know of the request that they are called in."""

    def __init__(
        self, state: State, answers: Mapping[str, JSONObject], *, modern: bool, max_rounds: int
    ) -> None:
        """`answers` are the client's, to what the state says it was asked."""
        came = {key: answers[key] for key in state.asked if key in answers}
        new = {key: Entry(state.rounds, value) for key, value in came.items()}
        self.state = state
        self.modern = modern
        self.memory = state.memory | new
        self.pending: dict[str, JSONObject] = {}
        self._max_rounds = max_rounds
        self._came = came.keys()
        self._used: set[str] = set()
        self._times: Counter[str] = Counter()
        self._making: dict[str, _Making] = {}
        self._reached = 0

    @property
    def rounds_left(self) -> int | None:
        """How often the client can be asked from here on; None where that has no end.

        It counts from where the code is, not from where the call is, so that code which looks at it
        does the same thing each time that it runs.
        """
        return self._max_rounds - self._reached if self.modern else None

    async def remembered(self, name: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """The JSON value that `make` gives, or gave when this was done in an earlier round.

        A second call with the same name is something else to do; see `once`.
        """
        return await self._made(self._key(name), make)

    async def once(self, name: str, make: Callable[[], Awaitable[Any]], *, stops: bool) -> Any:
        """The same, but a name stands for one value: `make` is not called again for it.

        `stops`: cancelling `make` stops its effect, so that it may run again.
        """
        return await self._made(f"once:{name}", make, stops=stops)

    async def _made(
        self, key: str, make: Callable[[], Awaitable[Any]], *, stops: bool = True
    ) -> Any:
        if key not in self.memory:
            making = self._making.get(key)
            if making is None:
                making = self._making[key] = _Making(asyncio.create_task(self._make(key, make)))
            making.waiters += 1
            try:
                await asyncio.shield(making.task)
            except asyncio.CancelledError:
                # A pending question ends the round, and a task group then cancels its members. An
                # effect that is under way finishes, because the next round would repeat it.
                if stops and making.waiters == 1 and not self.pending:
                    making.task.cancel()
                    await asyncio.wait({making.task})
                raise
            finally:
                making.waiters -= 1
        return self._take(key)

    async def _make(self, key: str, make: Callable[[], Awaitable[Any]]) -> None:
        reached = self._reached
        try:
            self.memory[key] = Entry(reached, await make())
        finally:
            del self._making[key]

    async def finish(self, *, wait: bool) -> None:
        """Wait for all values that are still being made, or cancel them."""
        running = [each.task for each in self._making.values()]
        try:
            if wait and running:
                await asyncio.wait(running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def answer(self, params: JSONObject) -> JSONObject:
        """What the client answers to this question; raises Suspended where it must be asked."""
        key = self._key(digest(params))
        if key in self.memory:
            return self._take(key)
        if self._came and not self._came & self._used:
            raise RuntimeError(
                "the tool asks something else than in the round before, so the answer that came is "
                "of no use; make its questions the same in each run, with `once` for whatever "
                "changes, such as the time or a random number"
            )
        if self.state.rounds >= self._max_rounds:
            raise ToolFailed(
                f"the client was asked {self.state.rounds} times, and {self._max_rounds} times are "
                "the limit; ask for more at once, or give Sampling(max_rounds=) and the client "
                "more rounds"
            )
        self.pending[key] = params
        raise Suspended

    def _take(self, key: str) -> Any:
        self._used.add(key)
        entry = self.memory[key]
        self._reached = max(self._reached, entry.round)
        return entry.value

    def _key(self, name: str) -> str:
        """The same question may be asked twice, and be answered otherwise."""
        self._times[name] += 1
        return f"{name}.{self._times[name]}"


def is_modern(version: str | None) -> bool:
    """Whether this revision knows no requests from a server."""
    return version in MODERN_PROTOCOL_VERSIONS


def note_call(session: ServerSession, call: Call) -> None:
    """Let `sample` find the call by the context that the tool has."""
    setattr(session, _KEPT_AS, call)


def call_of(ctx: Context[Any, Any]) -> Call:
    """The call that this context belongs to; raises ConfigurationError when nobody keeps it."""
    call: Call | None = getattr(ctx.session, _KEPT_AS, None)
    if call is None:
        raise ConfigurationError(
            "sample and once need the extension Sampling; make the server as "
            "MCPServer(name, extensions=[Sampling()]), and for prompts and resources give the same "
            "object as middleware=[...] too"
        )
    return call


def asking(call: Call) -> dict[str, mcp_types.InputRequest]:
    """The questions as the client is sent them."""
    return {
        key: mcp_types.CreateMessageRequest(
            params=mcp_types.CreateMessageRequestParams.model_validate(params)
        )
        for key, params in call.pending.items()
    }
