"""What a tool talks to while its call is a task: it cannot tell it from a plain call.

Questions become the task's open questions and wait for an answer, in whichever era; progress
becomes the task's message, and travels on to those who listen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import anyio
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import REQUEST_TIMEOUT, ProgressToken, RequestId

from penstock.mcp.tasks.records import JSON
from penstock.mcp.tasks.wire import RequestContext

PROGRESS = "notifications/progress"


class Listener(Protocol):
    """The task behind a channel."""

    async def ask(self, questions: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """What the client answers to each, as it came: `{"result": ...}` or `{"error": ...}`."""
        ...

    async def progressed(self, progress: JSON, token: ProgressToken | None = None) -> None:
        """The parameters of a progress notification; without a token it is the request's own."""
        ...

    async def told(self, method: str, params: JSON) -> None:
        """Any other notification."""
        ...


class TaskChannel:
    """The request-scoped channel of a call, as the SDK's sessions want it."""

    def __init__(self, ctx: RequestContext, listener: Listener) -> None:
        """In place of the channel of the request that has been answered long ago."""
        headers = getattr(ctx.request, "headers", None)
        self.transport = TransportContext(kind="task", can_send_request=True, headers=headers)
        self.request_id: RequestId | None = ctx.request_id
        self.message_metadata: MessageMetadata = None
        self.cancel_requested = anyio.Event()
        self._listener = listener
        self._asked = 0

    @property
    def can_send_request(self) -> bool:
        """A task can always ask; whether anybody answers is the client's affair."""
        return True

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client, and wait; raises the MCPError that it answers with."""
        self._asked += 1
        key = f"question-{self._asked}"
        question: JSON = {"method": method, "params": dict(params or {})}
        timeout = (opts or {}).get("timeout")
        try:
            with anyio.fail_after(timeout):
                answers = await self._listener.ask({key: question})
        except TimeoutError as error:
            late = f"nobody answered {method} within {timeout} s"
            raise MCPError(REQUEST_TIMEOUT, late) from error
        return answer_of(answers[key])

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Tell the client, as far as it listens."""
        told = dict(params or {})
        if method == PROGRESS:
            token: ProgressToken | None = told.pop("progressToken", None)
            await self._listener.progressed(told, token)
        else:
            await self._listener.told(method, told)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report how far the work is, whether or not the client has given a token for it."""
        given = {"progress": progress, "total": total, "message": message}
        told = {key: value for key, value in given.items() if value is not None}
        await self._listener.progressed(told)


def answer_of(answer: JSON) -> JSON:
    """What the client has answered; raises what it has refused with."""
    if (error := answer.get("error")) is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    return answer["result"]


def session_on(channel: TaskChannel, ctx: RequestContext) -> ServerSession:
    """A session that outlives the request: everything goes by the channel."""
    connection = Connection(
        channel, protocol_version=ctx.protocol_version, client_params=ctx.session.client_params
    )
    connection.client_capabilities = ctx.session.client_capabilities
    connection.initialized.set()
    return ServerSession(channel, connection, request_meta=ctx.meta)
