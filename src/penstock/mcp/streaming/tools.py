"""`@streamed`: makes a tool of a generator, whose pieces go out while it runs."""

from __future__ import annotations

import asyncio
import collections.abc
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, ParamSpec, TypeAlias, cast, get_args, get_origin, overload

import anyio.from_thread
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.context_injection import find_context_parameter
from mcp_types import CallToolResult, InputRequiredResult

from penstock.mcp.streaming.call import CallStream, current_call
from penstock.mcp.streaming.chunks import Chunks, Final, chunk_of
from penstock.mcp.streaming.streams import cancellable

P = ParamSpec("P")
Collect: TypeAlias = Callable[[list[Any]], object]
Tool: TypeAlias = Callable[P, Coroutine[Any, Any, Any]]
Take: TypeAlias = Callable[[object], Coroutine[Any, Any, None]]

MOST_BYTES = 64 * 1024 * 1024
_CONTEXT = "streamed_context"
_NOTHING = (None, type(None), Any)
_ITERATORS = frozenset(
    {
        collections.abc.AsyncGenerator,
        collections.abc.AsyncIterable,
        collections.abc.AsyncIterator,
        collections.abc.Generator,
        collections.abc.Iterable,
        collections.abc.Iterator,
    }
)


@overload
def streamed(function: Callable[P, object], /) -> Tool[P]: ...


@overload
def streamed(
    *, collect: Collect | None = None, max_bytes: int = MOST_BYTES
) -> Callable[[Callable[P, object]], Tool[P]]: ...


def streamed(
    function: Callable[P, object] | None = None,
    /,
    *,
    collect: Collect | None = None,
    max_bytes: int = MOST_BYTES,
) -> Tool[P] | Callable[[Callable[P, object]], Tool[P]]:
    """Make a tool of a generator; stands below `@server.tool()`.

    The function may be an async generator, a generator (it runs in a thread), or a function, async
    or not, that returns an iterator, a list, `Chunks` or one value. Where the client asks for
    chunks, each piece is sent as soon as it is there; the next is asked for when it is on its way.

    The tool's result is what the pieces make together: pieces of text make one text, others a list;
    a generator that returns a value gives that. `collect` makes something else of the list of
    pieces, as `collect=list` does of texts that do not belong together. The output schema follows
    from the annotation: `AsyncIterator[str]` gives a string, `AsyncIterator[Row]` a list of rows.

    A tool that gives more than `max_bytes` fails, since its result is kept until it is complete.
    """
    if function is None:
        return lambda function: _tool(function, collect, max_bytes)
    return _tool(function, collect, max_bytes)


def _tool(function: Callable[P, object], collect: Collect | None, max_bytes: int) -> Tool[P]:
    signature = inspect.signature(function, eval_str=True)
    own_context = find_context_parameter(function)
    name = getattr(function, "__name__", repr(function))

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> object:
        context = kwargs.get(own_context) if own_context else kwargs.pop(_CONTEXT, None)
        stream = _claimed(context)
        pieces = _Pieces(name, stream, max_bytes)

        async def work() -> object:
            return await pieces.gather(await _started(function, args, kwargs), collect, returns)

        if stream is None or stream.kept is None:
            return await work()
        # Under a task, the call of the client has ended before this begins.
        with cancellable(stream.kept):
            return await work()

    returns = _collected_type(signature.return_annotation, collect)
    parameters = list(signature.parameters.values())
    if own_context is None:
        # Asks the server for the request, without which there is nowhere to send the chunks to.
        asking = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=Context)
        parameters.append(asking)
        parameters.sort(key=lambda parameter: parameter.kind)
    changed = signature.replace(parameters=parameters, return_annotation=returns)
    call.__signature__ = changed  # type: ignore[attr-defined]
    call.__annotations__ = _annotations(changed)
    return cast("Tool[P]", call)


def _annotations(signature: inspect.Signature) -> dict[str, Any]:
    empty = inspect.Parameter.empty
    found = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    found["return"] = signature.return_annotation
    return {name: annotation for name, annotation in found.items() if annotation is not empty}


def _claimed(context: object) -> CallStream | None:
    """The stream of this call, if the client wants one and no other tool sends to it."""
    stream = current_call.get()
    if stream is None or not isinstance(context, Context):
        return None
    try:
        request = cast("Context[Any, Any]", context).request_context
    except ValueError:
        return None  # called by other code than a client's request
    return stream if stream.claim(request) else None


async def _started(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> object:
    """What the function returns; for a generator that is before its first line."""
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        return function(*args, **kwargs)
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs))


class _Pieces:
    """What a tool gave so far; each piece is sent on where somebody wants it."""

    def __init__(self, tool: str, stream: CallStream | None, max_bytes: int) -> None:
        self._tool = tool
        self._stream = stream
        self._left = self._max_bytes = max_bytes
        self._values: list[Any] = []

    async def gather(self, made: object, collect: Collect | None, returns: object) -> object:
        """Take every piece, and give the whole."""
        match made:
            case CallToolResult() | InputRequiredResult() | None:
                return made
            case AsyncIterator():
                async with _closing(cast("AsyncIterator[object]", made)) as source:
                    async for value in source:
                        await self._take(value)
                whole = None
            case Iterator():
                whole = await _from_thread(cast("Iterator[object]", made), self._take)
            case list() | tuple():
                items = cast("list[object]", made)
                for value in items:
                    await self._take(value, len(items))
                whole = items
            case _:
                await self._take(made, 1)
                whole = made
        if collect is not None:
            return collect(self._values)
        if whole is not None:
            return whole
        unsaid = returns is inspect.Signature.empty and bool(self._values)
        joined = returns is str or (unsaid and all(isinstance(v, str) for v in self._values))
        return "".join(self._values) if joined else self._values

    async def _take(self, value: object, total: int | None = None) -> None:
        if isinstance(value, Final):
            self._values.append(cast("Final[Any]", value).value)
            return
        chunk = chunk_of(value, self._tool, len(self._values))
        self._left -= chunk.size
        if self._left < 0:
            raise ToolError(
                f"the tool {self._tool!r} gives more than {self._max_bytes} bytes, which is the "
                "most that @streamed(max_bytes=...) lets it: raise the limit, or give less"
            )
        self._values.append(value)
        if self._stream is not None:
            await self._stream.send(chunk, total)


@asynccontextmanager
async def _closing(source: AsyncIterator[object]) -> AsyncGenerator[AsyncIterator[object]]:
    """A generator is closed at once when its call ends early, and not when it is found unused."""
    if hasattr(source, "aclose"):
        async with aclosing(cast("Any", source)):
            yield source
    else:
        yield source


async def _from_thread(source: Iterator[object], take: Take) -> object:
    """Take what a generator yields in its thread; what it returns.

    A call that is cancelled ends at once. Its generator cannot be interrupted, and is closed when
    it yields next.
    """
    give, values = anyio.create_memory_object_stream[object]()
    # Not from the pool, where generators that wait for slow clients would stop all other tools.
    own = anyio.CapacityLimiter(1)
    work = asyncio.create_task(anyio.to_thread.run_sync(_exhaust, source, give, limiter=own))
    # Nobody may be there to hear that a generator fails after its call was cancelled.
    work.add_done_callback(lambda work: work.cancelled() or work.exception())
    with values:
        async for value in values:
            await take(value)
    return await work


def _exhaust(source: Iterator[object], give: MemoryObjectSendStream[object]) -> object:
    """One thread for the whole generator, as some things must stay in the one they began in."""
    try:
        while True:
            try:
                value = next(source)
            except StopIteration as end:
                return end.value
            try:
                anyio.from_thread.run(give.send, value)
            except anyio.BrokenResourceError:
                return None  # the call is over
    finally:
        if inspect.isgenerator(source):
            source.close()
        anyio.from_thread.run_sync(give.close)


def _collected_type(annotation: Any, collect: Collect | None) -> Any:
    """What the pieces make together, from what is said of the pieces."""
    if collect is not None and collect is not list:
        return _returned_by(collect)
    origin, items = get_origin(annotation), get_args(annotation)
    if annotation is Chunks or origin is Chunks:
        return list[items[0]] if items else list[Any]
    if origin not in _ITERATORS and annotation not in _ITERATORS:
        return annotation
    if origin is collections.abc.Generator and len(items) == 3 and items[2] not in _NOTHING:
        return items[2]
    item = items[0] if items else Any
    if item is Any:
        return inspect.Signature.empty
    bare = get_args(item)[0] if get_origin(item) is Annotated else item
    return str if bare is str and collect is None else list[item]


def _returned_by(function: Callable[..., object]) -> Any:
    try:
        return inspect.signature(function, eval_str=True).return_annotation
    except (TypeError, ValueError):
        # Some that are written in C have no signature.
        return inspect.Signature.empty
