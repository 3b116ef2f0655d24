"""A provider that breaks on purpose: the model's name says how, exactly and at the TCP level.

It speaks whichever wire it is given. Its answer is sixty words; whatever else a caller ends up with
is wrong, unless it is one clear error. It keeps what it was asked, and when.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.faults.answer import Answer
from tests.faults.ways import WAYS
from tests.support.wire.connection import read_request
from tests.support.wire.dialect import WireDialect
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Failure
from tests.support.wire.seen import Asked, Seen, SeenEmbedding


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it came in."""

    at: float
    seen: Seen | SeenEmbedding
    caller: str = ""
    """What it says of itself in `x-caller`."""

    @property
    def begun(self) -> str:
        """What the caller wants gone on with."""
        return begun_in(self.seen)


def begun_in(seen: Seen | SeenEmbedding) -> str:
    """The beginning of an answer at the end of a request, if there is one."""
    if isinstance(seen, SeenEmbedding):
        return ""
    last = seen.messages[-1]
    return last.text if last.role == "assistant" else ""


@dataclass(eq=False)
class FaultServer:
    """`async with FaultServer() as server:`; `server.url` is the base address.

    A model's name is a way to answer, and after a dot how exactly: `cut.40`, `healthy.b`. A request
    that the wire does not allow fails the test when the server is left.
    """

    dialect: WireDialect = field(default_factory=OpenAIChat)
    down: bool = False
    down_for: str | None = None
    """The one model whose requests fail, as all do when the server is `down`."""
    lists: int = 0
    """How often the list of models was asked for."""
    requests: list[Request] = field(default_factory=list[Request])
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a caller has hung up before the answer was at its end."""
    problems: list[Exception] = field(default_factory=list[Exception])

    def of(self, model: str, caller: str | None = None) -> list[Request]:
        """The requests for this model, in their order; those of one caller, or of all."""
        return [
            each
            for each in self.requests
            if each.seen.model == model and caller in (None, each.caller)
        ]

    def gaps(self, model: str) -> list[float]:
        """The seconds between its requests."""
        times = [each.at for each in self.of(model)]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self.dialect.base_path}"
        self._open: set[asyncio.StreamWriter] = set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        if self.problems:
            raise self.problems[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while (request := await read_request(reader)) is not None:
                caller = request.headers.get("x-caller", "")
                if not await self.reply(self.dialect.read(request), caller, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            self.problems.append(error)
        finally:
            self._open.discard(writer)
            writer.close()

    async def reply(
        self,
        asked: Asked | None,
        caller: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer what was asked; whether the connection may be used on."""
        if asked is None:
            # The list of models is always there, also while no model answers.
            self.lists += 1
            body = self.dialect.models()
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n" + head.encode() + body)
            await writer.drain()
            return True
        seen = asked
        assert isinstance(seen, Seen | SeenEmbedding), "only answers and vectors are to be had here"
        request = Request(time.monotonic(), seen, caller)
        self.requests.append(request)
        self.asked.set()
        number = len(self.of(seen.model, caller))
        answer = Answer(self.dialect, seen, request.begun, number, reader, writer, self.gone)
        if self.down or self.down_for == seen.model:
            return await answer.refuse(Failure("overloaded"))
        way, _, how = seen.model.partition(".")
        return await WAYS[way](answer, how)
