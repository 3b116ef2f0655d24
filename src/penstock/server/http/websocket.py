"""One WebSocket, as a door sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.contract.requests import Caller
from penstock.server.exchange import ClientGone, Header, Receive, Scope, Send, caller_of, peer_of

if TYPE_CHECKING:
    from penstock.server.auth.gate import Access, Gate, Needs

DRAIN = "websocket.drain"
"""The event of a server that is about to stop; it is not in ASGI, and other servers have none."""

POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012

_REFUSALS = "websocket.http.response"


class Signal(Enum):
    """What may come in place of a message."""

    DRAIN = "take nothing new, and close when what runs has ended"


class Socket:
    """Reads whole messages, writes them no faster than they are taken, and knows when it is over.

    Every method raises ClientGone once the client has gone.
    """

    __slots__ = (
        "_client",
        "_gate",
        "_needs",
        "_receive",
        "_refusals",
        "_send",
        "accepted",
        "access",
        "closed",
        "headers",
        "path",
    )

    method = "GET"

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Not yet accepted."""
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.access: Access | None = None
        """What the caller may do, once that is known."""
        self.accepted = False
        """Whether there is a WebSocket, so that nothing can be said in HTTP any more."""
        self.closed = False
        """Whether we have closed it."""
        self._receive = receive
        self._send = send
        self._client: tuple[str, int] | None = scope.get("client")
        self._gate: Gate | None = None
        self._needs: Needs = "key"
        self._refusals = _REFUSALS in scope.get("extensions", {})

    @property
    def caller(self) -> Caller | None:
        """Where its requests come from, as far as its key and its headers tell."""
        return caller_of(self.headers, self.access)

    @property
    def peer(self) -> str:
        """The address of whoever is connected."""
        return peer_of(self._client)

    def knock(self, gate: Gate, needs: Needs) -> None:
        """Be let in by this gate, now and for each request; raises HttpProblem."""
        self._gate, self._needs = gate, needs
        gate.admit(self, needs)

    def admit(self) -> None:
        """One more request begins; raises HttpProblem when its key allows none, or no longer."""
        if self._gate is not None:
            self._gate.admit(self, self._needs, counted=True)

    def told(self, error: Exception) -> Exception:
        """What the caller is told of an error."""
        return error if self._gate is None else self._gate.failed(self, error)

    async def accept(self, headers: Iterable[Header] = ()) -> None:
        """Begin."""
        self.accepted = True
        await self._tell({"type": "websocket.accept", "headers": list(headers)})

    async def refuse(self, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
        """Answer in HTTP instead."""
        self.accepted = self.closed = True
        if not self._refusals:
            await self._tell({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        all_headers = [(b"content-type", b"application/json"), *headers]
        await self._tell({"type": f"{_REFUSALS}.start", "status": status, "headers": all_headers})
        await self._tell({"type": f"{_REFUSALS}.body", "body": body})

    async def receive(self) -> str | bytes | Signal:
        """The next message: a text, or bytes when its sender says that it is none."""
        while True:
            event = await self._receive()
            if event["type"] == "websocket.receive":
                text: str | None = event.get("text")
                data: bytes = event.get("bytes") or b""
                return data if text is None else text
            if event["type"] == DRAIN:
                return Signal.DRAIN
            if event["type"] == "websocket.disconnect":
                raise ClientGone

    async def send(self, message: bytes) -> None:
        """A message of UTF-8; returns when the client has taken enough of what was sent before."""
        await self._tell({"type": "websocket.send", "text": message.decode()})

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye, once."""
        if not self.closed:
            self.closed = True
            await self._tell({"type": "websocket.close", "code": code, "reason": reason})

    async def _tell(self, event: dict[str, Any]) -> None:
        try:
            await self._send(event)
        except OSError as error:
            raise ClientGone from error
