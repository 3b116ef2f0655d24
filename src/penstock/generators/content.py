"""Generators of text: what they share with those of structured values, and the plain one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar, cast

import msgspec

from penstock.contract.checks.spelling import unknown_options
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.events import Complete, GeneratorDelta, GeneratorEvent, StreamEvent
from penstock.contract.exchange import Metadata, Result, SamplingRequest
from penstock.contract.messages import Audio, Content, Image, JSONObject, Message, user
from penstock.contract.options import Extra, MCPTool, ModelPreferences, ReasoningLevel, ToolChoice
from penstock.contract.requests import (
    Messages,
    RequestOptions,
    build_request,
    named_models,
    read_messages,
)
from penstock.contract.tools import RunnableTool, ToolSource
from penstock.generators import contexts
from penstock.generators.contexts import MessageType, PromptContext, PromptContextProvider
from penstock.generators.functions import runnable
from penstock.generators.sources import servers, tools_of
from penstock.generators.stream import GeneratorStream, Settled
from penstock.generators.tool_loop import Ask, LoopLimits, ToolLoop, out_of_time
from penstock.streaming.handle import StreamHandle

T = TypeVar("T")
Prompt: TypeAlias = str | Content | Sequence[str | Content]
"""A text, or texts with pictures and sounds between them."""

DEFAULT_MAX_TOKENS = 4096
"""What an answer may take when nothing is said; thinking counts too."""
_CONTEXT_TIMEOUT_S = 30.0
_LOOP_OPTIONS = {
    "max_tool_rounds": "max_rounds",
    "tool_timeout": "timeout_s",
    "max_parallel_tools": "concurrency",
    "max_tool_result_bytes": "result_bytes",
}
_SECONDS, _WHOLE = "a number", "a whole number"
_LIMITS = {
    "max_tool_rounds": _WHOLE,
    "max_parallel_tools": _WHOLE,
    "max_tool_result_bytes": _WHOLE,
    "tool_timeout": _SECONDS,
    "context_timeout": _SECONDS,
}


class GeneratorOptions(TypedDict, total=False):
    """The keyword arguments of generators; every one may be left out."""

    model: str | Sequence[str] | None
    system_prompt: str | None
    temperature: float | None
    max_tokens: int
    stop_sequences: Sequence[str]
    reasoning_level: ReasoningLevel | None
    extra: Extra | None
    model_preferences: ModelPreferences | None
    tools: Sequence[RunnableTool | Callable[..., Any] | JSONObject]
    mcp_tools: Sequence[MCPTool | ToolSource]
    tool_choice: ToolChoice | Literal["auto", "required", "none"] | None
    parallel_tools: bool | None
    metadata: JSONObject
    timeout: float | None
    ignore_invalid_options: bool
    max_tool_rounds: int
    tool_timeout: float
    max_parallel_tools: int
    max_tool_result_bytes: int
    tool_errors: Literal["return", "raise"]
    context_timeout: float


class Sampler(Protocol):
    """What a generator needs of an engine."""

    async def create_message(self, messages: SamplingRequest, /) -> Result:
        """The whole answer."""
        ...

    async def create_message_stream(self, messages: SamplingRequest, /) -> StreamHandle:
        """The answer while it is made."""
        ...

    def default_max_tokens(self, models: Sequence[str | None] = (None,), /) -> int | None:
        """The limit of an answer where none is given; None where there is no default."""
        ...

    def takes(self, part: Image | Audio, model: str | None = None, /) -> bool:
        """Whether some provider that may answer reads parts like this one."""
        ...

    def connects_natively(self, tool: MCPTool, model: str | None = None, /) -> bool:
        """Whether every provider that may answer can itself use this MCP server."""
        ...

    def tool_source(self, tool: MCPTool, /) -> ToolSource:
        """The tools of this MCP server, with a connection from here."""
        ...

    def validated(self, request_id: str, /, *, fits: bool) -> None:
        """Hears whether an answer was of the type that was asked for; waits for nothing."""
        ...


class ContentGenerator(ABC, Generic[T]):
    """A prompt that can be answered again and again, by several tasks at once.

    Calls are independent of each other; contexts that are added later hold for later calls.
    """

    def __init__(self, sampler: Sampler, prompt: Prompt | None, options: GeneratorOptions) -> None:
        """Raises InvalidRequest at once for a blank prompt and for bad options."""
        self._sampler = sampler
        self._prompt = None if prompt is None else prompt_turn(prompt)
        given: dict[str, Any] = dict(options)
        if problems := unknown_options(given, GeneratorOptions.__annotations__):
            raise InvalidRequest.of(problems)
        self._limits, self._context_timeout = _limits(given)
        listed = _listed("tools", given.pop("tools", ()), "functions")
        self._tools = tuple(runnable(each, f"tools[{at}]") for at, each in enumerate(listed))
        self._models = named_models(given.get("model"))
        given["mcp_tools"], self._sources = servers(
            given.get("mcp_tools", ()),
            natively=lambda tool: all(sampler.connects_natively(tool, m) for m in self._models),
            source=sampler.tool_source,
        )
        if "max_tokens" not in given:
            limit = sampler.default_max_tokens(self._models)
            given["max_tokens"] = DEFAULT_MAX_TOKENS if limit is None else limit
        self._request = build_request((), cast(RequestOptions, given))
        self._contexts: list[PromptContext] = []
        self._providers: list[PromptContextProvider] = []
        _check_names(self._tools)

    def add_prompt_context(
        self, message_type: MessageType | Literal["system", "human", "assistant"], content: str
    ) -> None:
        """Send this text along with the prompt from now on.

        System texts follow the option `system_prompt`, in one prompt; human and assistant texts are
        turns before this generator's prompt. Each kind keeps the order in which it was added.
        """
        self._contexts.append(contexts.context(message_type, content))

    def add_prompt_context_provider(self, provider: PromptContextProvider) -> None:
        """Ask `provider.generate_context()` for texts to send along, anew for each call.

        They stand behind those of `add_prompt_context`. All providers are asked at once, each for
        at most `context_timeout` seconds; PromptContextFailed names the one that fails.
        """
        self._providers.append(provider)

    async def generate(
        self, prompt: Prompt | None = None, *, history: Messages = ()
    ) -> tuple[T, Metadata]:
        """The answer, and what there is to know about it.

        A `prompt` given here takes the place of the generator's own. `history` is the turns before
        it, as `create_message` takes them; they follow the contexts.
        """
        async with contextlib.aclosing(self.run(prompt, history, streamed=False)) as events:
            async for event in events:
                if isinstance(event, Settled):
                    return event.value, event.result.metadata
        raise RuntimeError("a run ended without an answer")

    def stream(self, prompt: Prompt | None = None, *, history: Messages = ()) -> GeneratorStream[T]:
        """The answer while it is made: an async iterator of events, and a context manager.

        `prompt` and `history` are those of `generate`.
        """
        return GeneratorStream(self.run(prompt, history, streamed=True))

    def run(
        self, prompt: Prompt | None, history: Messages, *, streamed: bool
    ) -> AsyncGenerator[GeneratorEvent | Settled[T], None]:
        """The events of one run, the value last; for code that wraps a generator.

        Raises InvalidRequest at once for a missing or blank prompt and for a bad history.
        """
        turn = self._prompt if prompt is None else prompt_turn(prompt)
        if turn is None:
            problem = "is missing: give one to this call, or to the generator"
            raise InvalidRequest.of([Problem("prompt", problem)])
        turns = (*read_messages("history", history), turn)
        return self._settle(self._streamed if streamed else self._whole, turns)

    @abstractmethod
    def _settle(
        self, ask: Ask, turns: tuple[Message, ...]
    ) -> AsyncGenerator[GeneratorEvent | Settled[T], None]:
        """The events of one run, and last the value."""

    async def _tool_loop(self, ask: Ask, turns: tuple[Message, ...]) -> ToolLoop:
        started, limit = time.perf_counter(), self._request.timeout
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                given = await contexts.gather(self._providers, self._context_timeout)
                remote, missing = await tools_of(self._sources)
        except TimeoutError as error:
            if limit is None or not clock.expired():
                raise
            raise out_of_time(limit) from error
        system, messages = contexts.merged(
            self._request.system_prompt, [*self._contexts, *given], turns
        )
        request = msgspec.structs.replace(self._request, system_prompt=system, messages=messages)
        return ToolLoop(
            ask,
            request,
            [*self._tools, *remote],
            self._limits,
            missing=missing,
            started=started,
            takes=lambda part: any(self._sampler.takes(part, each) for each in self._models),
        )

    async def _whole(self, request: SamplingRequest) -> AsyncGenerator[StreamEvent, None]:
        yield Complete(await self._sampler.create_message(request))

    async def _streamed(self, request: SamplingRequest) -> AsyncGenerator[StreamEvent, None]:
        async with await self._sampler.create_message_stream(request) as stream:
            async for event in stream:
                yield event


class StringGenerator(ContentGenerator[str]):
    """Answers a prompt with text."""

    async def _settle(
        self, ask: Ask, turns: tuple[Message, ...]
    ) -> AsyncGenerator[GeneratorDelta | Settled[str], None]:
        tool_loop = await self._tool_loop(ask, turns)
        async with contextlib.aclosing(tool_loop.run()) as events:
            async for event in events:
                yield event
        result = tool_loop.result
        yield Settled(result.text, result, (turns[-1], *tool_loop.turns))


def prompt_turn(prompt: Prompt) -> Message:
    """The user's turn of a prompt; raises InvalidRequest for a blank one and for other types."""
    if isinstance(prompt, str | msgspec.Struct):
        prompt = (prompt,)
    parts: tuple[Any, ...] = tuple(prompt) if isinstance(prompt, Iterable) else (prompt,)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not all(isinstance(part, str | msgspec.Struct) for part in parts):
        problem = f"is {prompt!r}; give a text, or texts with pictures and sounds between them"
        raise InvalidRequest.of([Problem("prompt", problem)])
    if all(isinstance(part, str) and not part.strip() for part in parts):
        raise InvalidRequest.of([Problem("prompt", "is blank; say what is to be generated")])
    return user(*parts)


def _limits(options: dict[str, Any]) -> tuple[LoopLimits, float]:
    """Take the limits of the loop and of the contexts out of the options."""
    given = {name: options.pop(name) for name in _LIMITS if name in options}
    wrong = [
        Problem(name, f"is {value!r}; it must be {_LIMITS[name]} more than 0")
        for name, value in given.items()
        if not _is_limit(value, whole=_LIMITS[name] == _WHOLE)
    ]
    errors = options.pop("tool_errors", "return")
    if errors not in ("return", "raise"):
        wrong.append(Problem("tool_errors", f"is {errors!r}; say 'return' or 'raise'"))
    if wrong:
        raise InvalidRequest.of(wrong)
    of_contexts = given.pop("context_timeout", _CONTEXT_TIMEOUT_S)
    limits = {_LOOP_OPTIONS[name]: value for name, value in given.items()}
    return LoopLimits(errors=errors, **limits), of_contexts


def _is_limit(value: Any, *, whole: bool) -> bool:
    fits = isinstance(value, int) or (isinstance(value, float) and not whole)
    return fits and not isinstance(value, bool) and value > 0


def _listed(name: str, given: Any, what: str) -> Iterable[Any]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        return cast(Iterable[Any], given)
    raise InvalidRequest.of([Problem(name, f"is {given!r}; give a list of {what}")])


def _check_names(tools: Sequence[RunnableTool]) -> None:
    names = [each.definition.name for each in tools]
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InvalidRequest.of([Problem("tools", f"{name!r} is there twice") for name in twice])
