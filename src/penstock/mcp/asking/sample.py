"""`sample`: the one call that asks a model from inside an MCP server, in both eras.

```python
@server.tool()
async def summarise(text: str, ctx: Context) -> str:
    answer = await sample(ctx, f"Summarise: {text}", max_tokens=300, engine=engine)
    return answer.text
```
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict, TypeVar, Unpack, cast, overload

import mcp_types
import msgspec
import pydantic
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError

from penstock.contract.exchange import Result
from penstock.contract.messages import Content, JSONObject, ToolResult, ToolUse
from penstock.contract.options import (
    IncludeContext,
    ModelPreferences,
    OutputSchema,
    ReasoningLevel,
    ToolChoice,
    ToolDefinition,
)
from penstock.contract.requests import Messages, RequestOptions, build_request
from penstock.contract.tools import Report, RunnableTool, tool_from_dict
from penstock.generators.answer_type import AnswerMismatch
from penstock.generators.functions import runnable
from penstock.generators.threads import in_own_thread
from penstock.generators.tool_loop import LoopLimits, ToolLoop
from penstock.generators.tool_results import UnusableResult, failure_of
from penstock.generators.tool_results import result_of as told
from penstock.mcp.asking.calls import Call, call_of
from penstock.mcp.asking.host import Answering, engine_of, host, lacking
from penstock.mcp.asking.state import digest

T = TypeVar("T")
_RESULT_BYTES = 200_000
"""What a tool may give: in the modern era it travels through the client in each later round."""
_BEFORE_THE_LOOP_S = 1.0
"""How much earlier a tool's clock ends here, so that what is told of it is remembered."""


class SampleOptions(TypedDict, total=False):
    """The keyword arguments of `sample`; only `max_tokens` is required."""

    max_tokens: Required[int]
    model: str | None
    system_prompt: str | None
    temperature: float | None
    stop_sequences: Sequence[str]
    model_preferences: ModelPreferences | None
    include_context: IncludeContext
    tool_choice: ToolChoice | Literal["auto", "required", "none"] | None
    parallel_tools: bool | None
    output_schema: OutputSchema | JSONObject | None
    reasoning_level: ReasoningLevel | None
    metadata: JSONObject
    timeout: float | None
    ignore_invalid_options: bool
    meta: JSONObject | None


async def sample(
    ctx: Context[Any, Any],
    messages: Messages,
    *,
    engine: Answering | None = None,
    tools: Sequence[RunnableTool | ToolDefinition | Callable[..., Any] | JSONObject] = (),
    max_tool_rounds: int = 5,
    tool_timeout: float = 60.0,
    **options: Unpack[SampleOptions],
) -> Result:
    """The answer of the client's model where the client offers sampling, else of our `engine`.

    Functions and other tools that can be run are called until the model answers; the last of
    `max_tool_rounds` forbids tools. A call of a `ToolDefinition`, or of a dict without a `handler`,
    is left to you: see `result.tool_uses`. A client that offers sampling without tools is not asked
    when there are tools.

    With a client of the modern era the function that awaits this runs anew after each answer, and
    finds everything that was answered before: what comes before it must do no harm when it is
    repeated, and ask the same. `once` is for what must happen once.

    Raises SamplingRejected when the user refuses, MCPError -32021 when the client has no sampling
    and there is no engine, and what `engine.create_message` raises.
    """
    call = call_of(ctx)
    request = build_request(messages, cast(RequestOptions, options))
    theirs, ours = _divided(tools)
    spoken = any(_of_tools(part) for turn in request.messages for part in turn.content)
    missing = lacking(ctx, call, tools=bool(tools) or spoken)
    if missing is None:
        ask = host(ctx, call)
    elif engine is not None:
        ask = engine_of(engine, call)
    else:
        raise _incapable(missing)
    rounds = max_tool_rounds
    if missing is None and call.rounds_left is not None:
        # Each round of tools is a round trip of the client, and so is the answer after them.
        rounds = max(1, min(rounds, call.rounds_left - 1))
    tool_loop = ToolLoop(
        ask,
        request,
        [_Remembering(each, call, tool_timeout) for each in ours],
        LoopLimits(max_rounds=rounds, timeout_s=tool_timeout),
        theirs=theirs,
    )
    async for _ in tool_loop.run():
        pass
    return tool_loop.result


@overload
async def once(ctx: Context[Any, Any], name: str, make: Callable[[], Awaitable[T]]) -> T: ...
@overload
async def once(ctx: Context[Any, Any], name: str, make: Callable[[], T]) -> T: ...
async def once(ctx: Context[Any, Any], name: str, make: Callable[[], Any]) -> Any:
    """Return what `make` gives; it runs once in a call of the tool, however often the tool runs.

    For effects that must not be repeated and values that change: a payment, the time, a random
    number. `make` is async or a plain function, which runs in a thread. A name stands for one
    value: the same name again, also from a retry loop in the tool, gives that value. A `make` that
    raises gives no value and runs again the next time.

    The value must have a JSON form. In the modern era it travels encrypted through the client.

    Raises TypeError when the value has no JSON form.
    """
    is_async = inspect.iscoroutinefunction(make)

    async def made() -> Any:
        value = make() if is_async else await in_own_thread(make)
        # A lambda may return the coroutine of an async function.
        return _json_of(name, await value if inspect.isawaitable(value) else value)

    # A thread cannot be stopped: a later call with the name waits for it.
    return await call_of(ctx).once(name, made, stops=is_async)


def _json_of(name: str, value: object) -> Any:
    try:
        return pydantic.TypeAdapter(Any).dump_python(value, mode="json")
    except (pydantic.PydanticUserError, ValueError, TypeError) as error:
        raise TypeError(
            f"once({name!r}) gave a {type(value).__name__} without a JSON form: return text, "
            "numbers, lists, dicts, dataclasses or models of them"
        ) from error


class _Remembering:
    """A tool whose calls are not made again when the function that samples runs again."""

    def __init__(self, inner: RunnableTool, call: Call, timeout: float) -> None:
        self._inner = inner
        self._call = call
        self._limit = inner.timeout or timeout
        self.definition = inner.definition
        self.server = inner.server
        self.timeout: float | None = self._limit + _BEFORE_THE_LOOP_S

    async def run(self, arguments: JSONObject, report: Report, /) -> ToolResult:
        async def ran() -> Any:
            return msgspec.to_builtins(await self._told(arguments, report))

        name = f"tool:{self.definition.name}:{digest(arguments)}"
        return msgspec.convert(await self._call.remembered(name, ran), ToolResult)

    async def _told(self, arguments: JSONObject, report: Report) -> ToolResult:
        """What the model is told; a failure too, for it would not be the same the next time."""
        clock = asyncio.timeout(self._limit)
        try:
            async with clock:
                return told("", await self._inner.run(arguments, report), _RESULT_BYTES)
        except AnswerMismatch as mismatch:
            return failure_of("", f"the arguments do not fit: {mismatch}")
        except UnusableResult as unusable:
            return failure_of("", f"the tool gave {unusable}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is told
            if isinstance(error, TimeoutError) and clock.expired():
                return failure_of("", f"the tool took longer than {self._limit:g} s")
            return failure_of("", f"{type(error).__name__}: {error}")


def _divided(tools: Sequence[Any]) -> tuple[list[ToolDefinition], list[RunnableTool]]:
    """The tools that the caller runs, and those that are run here."""
    theirs: list[ToolDefinition] = []
    ours: list[RunnableTool] = []
    for at, each in enumerate(tools):
        if isinstance(each, ToolDefinition):
            theirs.append(each)
        elif isinstance(each, Mapping) and "handler" not in each:
            theirs.append(tool_from_dict(f"tools[{at}]", cast(JSONObject, each)))
        else:
            ours.append(runnable(each, f"tools[{at}]"))
    return theirs, ours


def _of_tools(part: Content) -> bool:
    """Whether only a host that knows tools can be told this."""
    return isinstance(part, ToolUse | ToolResult)


def _incapable(missing: str) -> MCPError:
    sampling = mcp_types.SamplingCapability(
        tools=mcp_types.SamplingToolsCapability() if missing == "sampling.tools" else None
    )
    data = mcp_types.MissingRequiredClientCapabilityErrorData(
        required_capabilities=mcp_types.ClientCapabilities(sampling=sampling)
    )
    return MCPError(
        code=mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=f"the client does not offer {missing}, and the server has no model of its own",
        data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
    )
