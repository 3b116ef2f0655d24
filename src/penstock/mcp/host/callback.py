"""Answers the sampling requests of MCP servers with an engine, in both eras.

```python
callback = sampling_callback(engine, server="docs", approval=ask_user)
async with Client(server, **callback.options) as client:
    ...
```

A host of several servers makes one `SamplingHost`, and gets a callback for each of them.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Unpack

import msgspec
from mcp import Client, ClientSession
from mcp.client.session import ClientRequestContext
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ErrorData,
    SamplingCapability,
    SamplingContextCapability,
    SamplingMessage,
    SamplingToolsCapability,
)

from penstock.contract.approval import Approver, Estimate, Review
from penstock.contract.context import with_context
from penstock.contract.errors import (
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    Problem,
    SamplingRejected,
)
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import IncludeContext
from penstock.contract.requests import Caller
from penstock.mcp.host.approval import approved_answer, approved_request
from penstock.mcp.host.context import HEAD, ContextLimits, Peer, gather
from penstock.mcp.host.limits import ServerLimits
from penstock.mcp.host.options import Answering, ClientOptions, FastMCPOptions, HostOptions
from penstock.mcp.host.policy import SERVER_TAG, ServerRule, shaped
from penstock.mcp.host.results import error_of, internal_error, result_of, takes_lists
from penstock.mcp.host.review import control_character
from penstock.mcp.host.size import bytes_of
from penstock.mcp.host.terminal import TerminalApprover
from penstock.pipeline.limits import STANDARD
from penstock.pipeline.params import read_request

Answer = CreateMessageResult | CreateMessageResultWithTools | ErrorData
_logger = logging.getLogger(__name__)


class SamplingHost:
    """One engine, one policy and one approver in front of any number of servers."""

    def __init__(self, engine: Answering, **options: Unpack[HostOptions]) -> None:
        """Nothing is connected; who is asked without a function is at the terminal."""
        policy = options.get("policy") or engine.sampling_policy
        approval = options.get("approval")
        self.approver: Approver | None = None
        if callable(approval):
            self.approver = approval
            policy = msgspec.structs.replace(policy, approval="ask")
        elif approval is not None:
            policy = msgspec.structs.replace(policy, approval=approval)
        self.engine = engine
        self.policy = policy
        self.model = options.get("model")
        self.context_limits = options.get("context_limits") or ContextLimits()
        self._limits: dict[str, ServerLimits] = {}
        self._peers: dict[str, weakref.ref[Peer]] = {}

    def callback(
        self, server: str = "", *, tools: bool = True, context: bool = True
    ) -> SamplingCallback:
        """What answers this server, with tools and context as far as its rule allows them.

        Give the client `**callback.options`. One that gets the callback alone declares neither, so
        make it without.
        """
        rule = self.policy.rule(server)
        return SamplingCallback(
            self, server, tools=tools and rule.tools, context=rule.context if context else "none"
        )

    def client(self, server: str, target: Any, **options: Any) -> Client:
        """The official client for this server, with the callback and what it can declared."""
        client = Client(target, **self.callback(server).options, **options)
        self.join(server, client)
        return client

    def join(self, server: str, client: Peer) -> None:
        """Let a client made elsewhere be among those that `allServers` means, while it lives."""
        self._peers[server] = weakref.ref(client)

    def limits(self, server: str) -> ServerLimits:
        """What the server has used, over all of its connections."""
        if server not in self._limits:
            self._limits[server] = ServerLimits(server, self.policy.rule(server))
        return self._limits[server]

    def ask(self) -> Approver:
        """Whoever is asked."""
        if self.approver is None:
            self.approver = TerminalApprover()
        return self.approver

    def sharing(self, besides: str) -> Iterator[tuple[str, ClientSession]]:
        """The sessions of other servers that share their resources."""
        for name, reference in self._peers.items():
            peer = reference()
            if peer is None or name == besides or not self.policy.rule(name).share:
                continue
            try:
                yield name, peer.session
            except RuntimeError:
                # It is not connected, or no longer.
                continue


class SamplingCallback:
    """Answers one server; give the official client its `options`, and fastmcp's the others."""

    def __init__(
        self, host: SamplingHost, server: str, *, tools: bool, context: IncludeContext
    ) -> None:
        """Made by `SamplingHost.callback` and `sampling_callback`."""
        self._host = host
        self._server = server
        self._tools = tools
        self._context: IncludeContext = context

    @property
    def capabilities(self) -> SamplingCapability:
        """What the client must declare: `tools` and `context` only where they are answered."""
        return SamplingCapability(
            tools=SamplingToolsCapability() if self._tools else None,
            context=SamplingContextCapability() if self._context != "none" else None,
        )

    @property
    def options(self) -> ClientOptions:
        """The callback and the capabilities, for `mcp.Client(server, **callback.options)`."""
        return {"sampling_callback": self, "sampling_capabilities": self.capabilities}

    @property
    def fastmcp_options(self) -> FastMCPOptions:
        """The same for `fastmcp.Client(server, **callback.fastmcp_options)`."""
        return {"sampling_handler": self.handler, "sampling_capabilities": self.capabilities}

    async def handler(
        self,
        messages: list[SamplingMessage],
        params: CreateMessageRequestParams,
        context: ClientRequestContext,
    ) -> Answer:
        """What fastmcp calls a sampling handler; the messages are those of the params."""
        return await self(context, params)

    async def __call__(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> Answer:
        """The answer, or an error that says why there is none."""
        try:
            return await self._answer(context.session, params)
        except PenstockError as error:
            # Its words may hold what was said.
            kind = type(error).__name__
            _logger.info("no answer for the MCP server %r: %s", self._server, kind)
            return error_of(error)
        except Exception:
            # Nothing of the host may reach a server but our words.
            _logger.exception("sampling for the MCP server %r failed", self._server)
            return internal_error()

    async def _answer(self, session: ClientSession, params: CreateMessageRequestParams) -> Answer:
        host = self._host
        limits = host.limits(self._server)
        rule = host.policy.rule(self._server)
        mode = host.policy.mode(self._server)
        taken = limits.count_request()
        if mode == "never":
            raise SamplingRejected(_not_allowed(self._server))
        size = _size(params, rule)
        async with limits.turn(session, size, taken):
            request = self._read(session, params)
            step = _Reviewed(self, session, request.include_context, asks=mode == "ask")
            # Its context is that of this host, and not of the engine's own configuration.
            request = msgspec.structs.replace(request, include_context="none")
            caller = Caller(
                tags={**rule.tags, SERVER_TAG: self._server},
                traceparent=_text(request.meta, "traceparent"),
                tracestate=_text(request.meta, "tracestate"),
                terms=limits,
                review=step,
            )
            try:
                engine = host.engine
                result = await engine.create_message(
                    shaped(request, rule, engine.targets, host.model, engine.adapt_mode),
                    caller=caller,
                )
            except ModelNotFound as error:
                # A server names no model: it is the host's own rule that names one in vain.
                _logger.error("the rule of the MCP server %r: %s", self._server, error)
                raise
            if step.shown is not None and host.policy.review_answers:
                result = await approved_answer(
                    host.ask(), step.shown, result, host.policy.timeout_s
                )
        return result_of(result, several=bool(request.tools or request.tool_choice))

    def _read(self, session: ClientSession, params: CreateMessageRequestParams) -> SamplingRequest:
        lists = takes_lists(session.protocol_version)
        problems = [
            Problem(name, "this host has not declared sampling.tools: leave it out")
            for name, given in (("tools", params.tools), ("toolChoice", params.tool_choice))
            if given is not None and not (self._tools and lists)
        ]
        problems += [
            Problem(f"tools[{index}].name", f"holds the character {found}: write a plain name")
            for index, tool in enumerate(params.tools or ())
            if (found := control_character(tool.name)) is not None
        ]
        given = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        return read_request(given, STANDARD, problems=problems)

    async def review(
        self,
        session: ClientSession,
        request: SamplingRequest,
        estimate: Callable[[SamplingRequest], Awaitable[Estimate]],
        *,
        asks: bool,
    ) -> tuple[SamplingRequest, Review | None]:
        """The request with its context, as approved; and what was shown, if anybody was asked."""
        request = await self._with_context(session, request)
        if not asks:
            return request, None
        info = session.server_info
        review = Review(
            request=request,
            estimate=await estimate(request),
            server=self._server,
            claims=None if info is None else info.title or info.name,
        )
        policy = self._host.policy
        approved = await approved_request(self._host.ask(), review, policy.timeout_s)
        return approved, msgspec.structs.replace(review, request=approved)

    async def _with_context(
        self, session: ClientSession, request: SamplingRequest
    ) -> SamplingRequest:
        if request.include_context == "none" or self._context == "none":
            # A client may leave the context out, and one that did not declare it does.
            return request
        sessions = [(self._server, session)]
        if request.include_context == self._context == "allServers":
            sessions += self._host.sharing(besides=self._server)
        return with_context(request, await gather(sessions, self._host.context_limits), HEAD)


class _Reviewed:
    """The pipeline's question about one request, which remembers what was shown."""

    def __init__(
        self,
        callback: SamplingCallback,
        session: ClientSession,
        scope: IncludeContext,
        *,
        asks: bool,
    ) -> None:
        self._callback = callback
        self._session = session
        self._scope: IncludeContext = scope
        self._asks = asks
        self.shown: Review | None = None

    async def __call__(
        self, request: SamplingRequest, estimate: Callable[[SamplingRequest], Awaitable[Estimate]]
    ) -> SamplingRequest:
        request = msgspec.structs.replace(request, include_context=self._scope)
        request, self.shown = await self._callback.review(
            self._session, request, estimate, asks=self._asks
        )
        return msgspec.structs.replace(request, include_context="none")


def sampling_callback(
    engine: Answering,
    *,
    server: str = "",
    tools: bool = False,
    context: bool = False,
    **options: Unpack[HostOptions],
) -> SamplingCallback:
    """A callback for one server; `server` is the host's own name for it, by which rules go.

    A client that gets the callback alone declares neither `tools` nor `context`, so requests with
    tools are refused. To answer them, ask for it here and give the client `**callback.options`.
    """
    return SamplingHost(engine, **options).callback(server, tools=tools, context=context)


def _size(params: CreateMessageRequestParams, rule: ServerRule) -> int:
    """The bytes of the request; raises InvalidRequest for more than this host reads."""
    size = bytes_of(params, rule.max_prompt_bytes)
    if size > rule.max_prompt_bytes:
        raise InvalidRequest.of(
            [
                Problem(
                    "messages",
                    f"the request has more than {rule.max_prompt_bytes:,} bytes, which is the "
                    "most that this host reads: send less",
                )
            ]
        )
    return size


def _not_allowed(server: str) -> str:
    named = f"the server {server!r}" if server else "a server that it has given no name"
    return f"this host does not let {named} sample"


def _text(meta: dict[str, Any] | None, name: str) -> str | None:
    value = (meta or {}).get(name)
    return value if isinstance(value, str) else None
