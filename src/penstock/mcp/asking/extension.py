"""The extension of `MCPServer` that lets tools, prompts and resources await `sample`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

import mcp_types
import msgspec
import pydantic
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_INFO_META_KEY

from penstock.contract.messages import JSONObject
from penstock.mcp.asking.calls import (
    Call,
    Suspended,
    asking,
    is_modern,
    note_call,
)
from penstock.mcp.asking.state import (
    Spent,
    SpentHere,
    begin,
    fingerprint,
    new_nonce,
    restore,
)

_CARRIERS = ("prompts/get", "resources/read")


class Sampling(Extension):
    """Lets the tools of a server use `await sample(ctx, ...)` with clients of both eras.

    ```python
    sampling = Sampling()
    server = MCPServer("name", extensions=[sampling])
    ```

    For prompts and resources that sample, give the same object as `middleware=[sampling]` too.
    """

    identifier = "dev.penstock/sampling"

    def __init__(
        self,
        *,
        ttl: float = 600.0,
        max_rounds: int = 10,
        max_state_bytes: int = 1_000_000,
        spent: Spent | None = None,
    ) -> None:
        """`ttl` is how long a client may take to answer, in seconds.

        `max_rounds` is how often one call may ask a client of the modern era; official clients stop
        at 10. `max_state_bytes` limits what a call remembers between its rounds. A server of
        several processes gives a `spent` that they share, such as `SpentInFile`, and a
        `request_state_security` with the same keys.
        """
        if not ttl > 0 or max_rounds < 1 or max_state_bytes < 1:
            raise ValueError("ttl, max_rounds and max_state_bytes must be more than 0")
        self._ttl = ttl
        self._max_rounds = max_rounds
        self._max_state_bytes = max_state_bytes
        self._spent = spent or SpentHere()

    async def intercept_tool_call(
        self,
        params: mcp_types.CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        """Run the tool; where it waits for the client, the result is what the client is asked."""
        return await self._serve(ctx, params, call_next)

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """The same for prompts and resources, as a middleware."""
        if ctx.method not in _CARRIERS or ctx.params is None:
            return await call_next(ctx)
        try:
            params = mcp_types.InputResponseRequestParams.model_validate(
                {key: value for key, value in ctx.params.items() if key in _OURS}
            )
        except pydantic.ValidationError:
            return await call_next(ctx)  # where it is refused
        result = await self._serve(ctx, params, call_next)
        if isinstance(result, mcp_types.InputRequiredResult):
            return result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return result

    async def _serve(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: mcp_types.InputResponseRequestParams,
        call_next: CallNext,
    ) -> HandlerResult:
        # A task has a way of its own to ask, and waits for the answer.
        modern = is_modern(ctx.protocol_version) and not ctx.session.can_send_request
        caller = fingerprint(_headers(ctx), _client(ctx)) if modern else ""
        state = restore(params.request_state, caller, self._spent, ctx.method) if modern else None
        answers = _json(params.input_responses or {}) if state is not None else {}
        call = Call(
            state or begin(caller, self._ttl), answers, modern=modern, max_rounds=self._max_rounds
        )
        note_call(ctx.session, call)
        try:
            result = await _until_suspended(ctx, call_next)
            await call.finish(wait=bool(call.pending))
        finally:
            await call.finish(wait=False)
        if call.pending:
            # Also when the tool went on: `gather(return_exceptions=True)` takes everything.
            return self._input_required(call)
        if state is not None and isinstance(result, mcp_types.InputRequiredResult):
            raise RuntimeError(
                "a call has one requestState, so a tool that awaits sample(...) can neither return "
                "an InputRequiredResult nor have parameters with Resolve(...)"
            )
        return result

    def _input_required(self, call: Call) -> mcp_types.InputRequiredResult:
        state = msgspec.structs.replace(
            call.state,
            nonce=new_nonce(),
            expires=time.time() + self._ttl,
            rounds=call.state.rounds + 1,
            asked=tuple(call.pending),
            memory=call.memory,
        )
        encoded = state.encode()
        if len(encoded) > self._max_state_bytes:
            raise MCPError(
                code=mcp_types.INTERNAL_ERROR,
                message=f"what this call must remember takes {len(encoded):,} bytes, and "
                f"{self._max_state_bytes:,} are the limit; ask for shorter answers, let tools give "
                "less, or set Sampling(max_state_bytes=)",
            )
        return mcp_types.InputRequiredResult(input_requests=asking(call), request_state=encoded)


async def _until_suspended(
    ctx: ServerRequestContext[Any, Any], call_next: CallNext
) -> HandlerResult:
    """What the tool returns; None where it left to ask the client."""
    task = asyncio.current_task()
    cancelled = task.cancelling() if task is not None else 0
    try:
        return await call_next(ctx)
    except Suspended:
        return None
    except BaseExceptionGroup as group:
        # A task group raises it so: several of its members may have asked.
        if group.split(Suspended)[1] is not None:
            raise
        while task is not None and task.cancelling() > cancelled:
            # A task group of Python before 3.13 leaves the task that waits for it cancelled.
            task.uncancel()
        return None


_OURS = ("inputResponses", "requestState", "_meta")


def _json(answers: Mapping[str, pydantic.BaseModel]) -> dict[str, JSONObject]:
    return {
        key: answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, answer in answers.items()
    }


def _headers(ctx: ServerRequestContext[Any, Any]) -> Mapping[str, str] | None:
    return cast("Mapping[str, str] | None", getattr(ctx.request, "headers", None))


def _client(ctx: ServerRequestContext[Any, Any]) -> object:
    """What the program calls itself, which finds mistakes only: anybody may say anything."""
    meta = cast("Mapping[str, Any]", ctx.meta or {})
    info: Any = meta.get(CLIENT_INFO_META_KEY)
    return info.get("name") if isinstance(info, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
