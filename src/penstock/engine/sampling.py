"""The calls of an engine that sample from a model, and those about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Unpack, overload

import msgspec

from penstock.contract.adaptation import AdaptMode
from penstock.contract.checks.spelling import methods_suggest_names
from penstock.contract.errors import InvalidRequest
from penstock.contract.exchange import Result, SamplingRequest, TokenCount
from penstock.contract.mcp.call_options import read_call_options
from penstock.contract.mcp.content import Found
from penstock.contract.mcp.sampling import MCPParams, fill_max_tokens, spelled_for_mcp
from penstock.contract.ports import RouteDecision
from penstock.contract.requests import (
    Caller,
    CountOptions,
    Messages,
    RequestOptions,
)
from penstock.engine.requests import asked
from penstock.pipeline.params import read_request
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.registry import Running
from penstock.pipeline.scope import NOBODY
from penstock.streaming.handle import StreamHandle
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.usage_counters import UsageStats

UNLIMITED = 65_536
"""The limit of an answer where none is made: room for any level of thinking."""
ROUTED = 1000
"""The limit of an answer whose route is asked for, when nothing is said about it."""


@methods_suggest_names
class Sampling(ABC):
    """What an engine offers to those who want an answer, whole or as a stream."""

    def __init__(self, pipeline: Pipeline) -> None:
        """All calls go through this pipeline."""
        self._pipeline = pipeline
        self._running = Running()

    @abstractmethod
    def default_max_tokens(self, models: Sequence[str | None] = (None,)) -> int | None:
        """The limit of an answer where a call gives none."""

    @property
    def hooks(self) -> Hooks:
        """Where to subscribe to what happens: a record for each request and each attempt."""
        return self._pipeline.hooks

    @overload
    async def create_message(
        self,
        messages: SamplingRequest,
        *,
        request_id: str | None = None,
        caller: Caller | None = None,
    ) -> Result: ...
    @overload
    async def create_message(
        self,
        messages: Messages,
        *,
        request_id: str | None = None,
        caller: Caller | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result: ...
    async def create_message(
        self,
        messages: SamplingRequest | Messages,
        *,
        request_id: str | None = None,
        caller: Caller | None = None,
        **options: Any,
    ) -> Result:
        """The whole answer to messages, or to one request that says everything.

        `model` may be a list: then each is tried after those before it have failed. A type as
        `output_schema` makes `result.parsed` a value of it; StructuredOutputInvalid is raised when
        the answer does not fit. Functions in `tools` are declared and not run: generators run them.
        Without `max_tokens` the model's default is used, see `metadata.max_tokens`.
        `request_id` names the request in `cancel_request`, logs and errors; one is made up without
        it. A call that is cancelled by its id raises RequestCancelled. `caller` says where the
        request came from, for those who serve others with it.
        """
        call = asked(messages, options, self.default_max_tokens)
        caller = caller or NOBODY
        with self._running.call(request_id, caller.key) as identifier:
            result = await self._pipeline.run(call.request, identifier, caller)
        return call.finished(result)

    @overload
    async def create_message_stream(
        self,
        messages: SamplingRequest,
        *,
        request_id: str | None = None,
        caller: Caller | None = None,
    ) -> StreamHandle: ...
    @overload
    async def create_message_stream(
        self,
        messages: Messages,
        *,
        request_id: str | None = None,
        caller: Caller | None = None,
        **options: Unpack[RequestOptions],
    ) -> StreamHandle: ...
    async def create_message_stream(
        self,
        messages: SamplingRequest | Messages,
        *,
        request_id: str | None = None,
        caller: Caller | None = None,
        **options: Any,
    ) -> StreamHandle:
        """The answer while it is made; returns as soon as its first event is there.

        Cancelled by its id before that, it raises RequestCancelled; later the stream ends with the
        event `Cancelled`.
        """
        call = asked(messages, options, self.default_max_tokens)
        caller = caller or NOBODY
        with self._running.call(request_id, caller.key) as identifier:
            handle = await self._pipeline.start(call.request, identifier, caller)
            handle.finish_with(call.ended)
            return self._running.keep(handle, caller.key)

    async def sample(
        self,
        params: MCPParams,
        *,
        model: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Result:
        """The answer to MCP's own params, as JSON or as the objects that it stands for.

        Unlike `create_message` and `SamplingRequest.from_mcp` it takes params without `maxTokens`
        for 1000 tokens, with a DeprecationWarning. `_provider` names the provider that must answer,
        and `_timeout` is the limit in milliseconds. The paths of problems are spelled as in MCP.
        Advisory options that the model lacks are adapted, unless `[models.NAME]` says `refuse`.
        """
        given = fill_max_tokens(params)
        request, paths = self._sampled(given, model, timeout, stream=False)
        try:
            return await self.create_message(request, request_id=request_id)
        except InvalidRequest as error:
            raise spelled_for_mcp(error, paths) from error.__cause__

    async def sample_stream(
        self,
        params: MCPParams,
        *,
        model: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> StreamHandle:
        """The same as a stream."""
        given = fill_max_tokens(params)
        request, paths = self._sampled(given, model, timeout, stream=True)
        try:
            return await self.create_message_stream(request, request_id=request_id)
        except InvalidRequest as error:
            raise spelled_for_mcp(error, paths) from error.__cause__

    def _sampled(
        self, params: Mapping[str, Any], model: str | None, timeout: float | None, *, stream: bool
    ) -> tuple[SamplingRequest, Mapping[str, str]]:
        """The request, and the paths that have another name in the params."""
        found = Found("", params)
        events = "read the events of sample_stream()"
        options = read_call_options(found, timeout=timeout, stream=None, events=events)
        if options.stream is not None and options.stream != stream:
            here, there = ("sample_stream", "sample") if stream else ("sample", "sample_stream")
            given = str(options.stream).lower()
            found.add("_stream", f"is {given}, which {here}() cannot do; call {there}()")
        limits = self._pipeline.limits
        request = read_request(
            params, limits, model=model, timeout=options.timeout, problems=found.problems
        )
        adapted = msgspec.structs.replace(request, adapt=self.adapt_mode(model))
        return options.applied(adapted), options.paths

    def adapt_mode(self, model: str | None = None) -> AdaptMode:
        """What becomes of advisory options that this model lacks, in `sample` and at endpoints."""
        del model
        return "adapt"

    async def cancel_request(self, request_id: str, *, key: str | None = None) -> bool:
        """Stop a running request; False when none of this id runs.

        With a `key` it stops only a request that was made with the key of this name.
        Call it on the engine's own event loop; `cancel_request_threadsafe` is for other threads.
        """
        return await self._running.cancel(request_id, key)

    def cancel_request_threadsafe(self, request_id: str) -> Future[bool]:
        """Stop a running request from any thread; the future gives what `cancel_request` would."""
        return self._running.cancel_threadsafe(request_id)

    @overload
    async def route(
        self, messages: SamplingRequest, *, caller: Caller | None = None
    ) -> RouteDecision: ...
    @overload
    async def route(
        self, messages: Messages, *, caller: Caller | None = None, **options: Unpack[CountOptions]
    ) -> RouteDecision: ...
    async def route(
        self,
        messages: SamplingRequest | Messages,
        *,
        caller: Caller | None = None,
        **options: Any,
    ) -> RouteDecision:
        """Which targets would be tried in which order, and why; no call is made.

        The request is validated as for `create_message`, but `max_tokens` may be left out: then it
        is 1000. `caller` says whose request it would be: sessions belong to a key, and with
        `isolate_keys` so does what is learnt.
        """
        return await self._pipeline.route(_limited(messages, options, ROUTED), caller or NOBODY)

    async def check_admission(
        self, request: SamplingRequest, *, caller: Caller | None = None
    ) -> None:
        """Raise what `create_message` would raise before it calls a provider; nobody is called.

        So a request is refused before anything is prepared for it: when it is invalid, when the
        caller's key does not allow it, or when a budget has no room for it.
        """
        await self._pipeline.check_admission(request, caller or NOBODY)

    @overload
    async def count_tokens(
        self, messages: SamplingRequest, *, caller: Caller | None = None
    ) -> TokenCount: ...
    @overload
    async def count_tokens(
        self, messages: Messages, *, caller: Caller | None = None, **options: Unpack[CountOptions]
    ) -> TokenCount: ...
    async def count_tokens(
        self,
        messages: SamplingRequest | Messages,
        *,
        caller: Caller | None = None,
        **options: Any,
    ) -> TokenCount:
        """How many tokens the model would read, tools and pictures included; nothing is answered.

        The first target of the model is asked, whose count is exact. An estimate, marked so, takes
        its place where the provider counts nothing, and after ModelNotFound and
        ProviderUnavailable, which are also what a server without the endpoint amounts to. All
        other errors are raised: AuthenticationFailed, RateLimited, InvalidRequest and its kin. So
        is ProviderTimeout when the request's own `timeout` runs out. `caller` limits the targets to
        those that it may use, and raises ModelNotFound when it may use none.
        """
        return await self._pipeline.count(_limited(messages, options, UNLIMITED), caller or NOBODY)

    async def usage_stats(self) -> UsageStats:
        """What was asked, answered and failed since the engine was opened, by provider, model, key.

        Answers, embeddings and transcripts count; counts of tokens and health checks do not.
        """
        return self._pipeline.usage.stats()


def _limited(
    messages: SamplingRequest | Messages, options: dict[str, Any], max_tokens: int
) -> SamplingRequest:
    return asked(messages, options, lambda models: max_tokens).request
