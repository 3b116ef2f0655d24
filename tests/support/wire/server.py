"""An HTTP/1.1 server of scenarios, written on bare sockets so that every fault is exact.

It knows no dialect: it reads requests, hands them to the dialect, and writes what that renders. A
request that the dialect cannot read, or that nobody scripted, fails the test when the server is
left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from types import TracebackType

from tests.support.wire.connection import Exchange, Writer, read_request
from tests.support.wire.count import words_of
from tests.support.wire.dialect import Frame, TranscribingDialect, WireDialect, WireResponse
from tests.support.wire.scenario import Failure, Scenario
from tests.support.wire.seen import (
    Asked,
    Seen,
    SeenCount,
    SeenEmbedding,
    SeenTranscription,
    WireRequest,
    heard_in,
)

HOST = "127.0.0.1"
HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
_TURNS = 50
_SEND_BUFFER = 64 * 1024


class _Connection(asyncio.StreamReaderProtocol):
    """Notices at once that the caller has gone, also while nothing is read."""

    def __init__(self, server: WireServer) -> None:
        loop = asyncio.get_running_loop()
        self.gone = asyncio.Event()
        super().__init__(asyncio.StreamReader(loop=loop), self._serve, loop=loop)
        self._server = server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._server.serve(reader, writer, self.gone)

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


@dataclass(eq=False)
class WireServer:
    """Plays scenarios in their order, and keeps what it has seen."""

    dialect: WireDialect
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    connections: int = 0
    """How many were ever opened."""
    problems: list[BaseException] = field(default_factory=list[BaseException])
    improvise: Callable[[Seen], Scenario] | None = None
    """Makes up an answer to what was asked, when the script has none."""
    _script: deque[Scenario] = field(default_factory=deque[Scenario])
    _tasks: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])
    _server: asyncio.Server | None = None
    _port: int = 0

    @property
    def url(self) -> str:
        """The base address to configure."""
        return f"http://{HOST}:{self._port}{self.dialect.base_path}"

    @property
    def open_connections(self) -> int:
        """How many are open now."""
        return len(self._tasks)

    @property
    def seen(self) -> list[Seen]:
        """Every generation request so far."""
        return [each.seen for each in self.exchanges if isinstance(each.seen, Seen)]

    @property
    def bodies(self) -> list[str]:
        """The bodies of all calls so far, as they came."""
        return [each.body.decode() for each in self.exchanges]

    @property
    def received(self) -> int:
        """How many calls of any kind have come so far."""
        return len(self.exchanges)

    @property
    def embeddings(self) -> list[SeenEmbedding]:
        """Every embedding call so far."""
        return [each.seen for each in self.exchanges if isinstance(each.seen, SeenEmbedding)]

    @property
    def counts(self) -> list[Seen]:
        """Every prompt that was to be counted so far."""
        return [each.seen.prompt for each in self.exchanges if isinstance(each.seen, SeenCount)]

    @property
    def transcriptions(self) -> list[SeenTranscription]:
        """Every recording so far."""
        found = [
            heard_in(each.seen) if isinstance(each.seen, Seen) else each.seen
            for each in self.exchanges
        ]
        return [each for each in found if isinstance(each, SeenTranscription)]

    @property
    def progress(self) -> int:
        """How much of the last answer has been taken, in bytes."""
        return self.exchanges[-1].sent

    @property
    def call_ids(self) -> bool:
        """Whether the wire carries the ids of tool calls."""
        return self.dialect.call_ids

    @property
    def reports_stop_sequence(self) -> bool:
        """Whether an answer says that a stop sequence ended it."""
        return self.dialect.reports_stop_sequence

    def play(self, *scenarios: Scenario) -> None:
        """Answer the next requests so."""
        self._script.extend(scenarios)

    def status(self, failure: Failure) -> int | None:
        """The HTTP status under which the provider reports this failure."""
        return self.dialect.error(failure, None).status

    def count_of(self, prompt: Seen) -> int:
        """The tokens that this prompt has by its count."""
        return words_of(prompt)

    def response_id(self, scenario: Scenario) -> str:
        """The id that this answer carries."""
        return scenario.response_id

    async def gone(self) -> None:
        """Wait until the caller has closed the connection of the last request."""
        await self.exchanges[-1].gone.wait()

    async def idle(self) -> None:
        """Wait until it has hung up on everybody, and everybody had the time to notice."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(_TURNS):
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        """Hang up on everybody, and listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> WireServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), HOST, 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        if self.problems:
            raise AssertionError(f"the server refused a request: {self.problems[0]!r}") from (
                self.problems[0]
            )
        if kind is None:
            assert not self._script, f"{len(self._script)} scenarios were never asked for"

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event
    ) -> None:
        """Answer requests on one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while (request := await read_request(reader)) is not None:
                    await self._answer(request, Writer(writer, gone))
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, request: WireRequest, out: Writer) -> None:
        try:
            seen = self.dialect.read(request)
            out.exchange = Exchange(seen, out.gone, body=request.body)
            self.exchanges.append(out.exchange)
            scenario = self._next(seen)
        except (AssertionError, ValueError, LookupError, TypeError) as error:
            self.problems.append(error)
            await out.whole(WireResponse(500, repr(error).encode(), content_type="text/plain"), {})
            return
        if scenario is not None:
            await self._play(scenario, seen, out)
        else:
            await out.whole(WireResponse(200, self._standing(seen)), self.dialect.headers)

    def _standing(self, seen: Asked | None) -> bytes:
        if isinstance(seen, SeenCount):
            return self.dialect.count(seen)
        return (
            self.dialect.vectors(seen) if isinstance(seen, SeenEmbedding) else self.dialect.models()
        )

    def _next(self, seen: Asked | None) -> Scenario | None:
        if self._script:
            return self._script.popleft()
        if self.improvise is not None and isinstance(seen, Seen):
            return self.improvise(seen)
        # Only generations need a script; all other calls have an answer of their own.
        assert not isinstance(seen, Seen | SeenTranscription), "nobody scripted this request"
        return None

    async def _play(
        self,
        scenario: Scenario,
        seen: Asked | None,
        out: Writer,
    ) -> None:
        headers = self.dialect.headers
        if scenario.has("silent"):
            await out.gone.wait()
        elif scenario.has("html", "html_error"):
            status = 200 if scenario.has("html") else 502
            await out.whole(WireResponse(status, HTML, content_type="text/html"), {})
        elif scenario.has("redirect"):
            await out.whole(WireResponse(307, b"", {"location": f"{self.url}/elsewhere"}), {})
        elif scenario.failure is not None and not scenario.has("error_event"):
            asked = None if isinstance(seen, SeenTranscription) else seen
            response = self.dialect.error(scenario.failure, asked)
            if scenario.has("error_in_200"):
                response = WireResponse(200, response.body)
            await out.whole(response, headers)
        elif isinstance(seen, Seen):
            await self._generate(scenario, seen, out)
        elif isinstance(seen, SeenTranscription):
            assert isinstance(self.dialect, TranscribingDialect)
            await out.whole(WireResponse(200, self.dialect.transcript(scenario)), headers)
        else:
            raise TypeError("only failures can be scripted for this call")

    async def _generate(self, scenario: Scenario, seen: Seen, out: Writer) -> None:
        dialect = self.dialect
        if scenario.has("not_json"):
            content_type = dialect.stream_type if seen.stream else "application/json"
            garbage = WireResponse(200, b"upstream connect error", content_type=content_type)
            await out.whole(garbage, dialect.headers)
        elif seen.stream != scenario.has("wrong_type"):
            await self._stream(scenario, seen, out)
        else:
            if scenario.pause is not None:
                await out.wait(scenario.pause)
            response = WireResponse(200, dialect.answer(scenario, seen))
            if scenario.has("gzip") and "gzip" in seen.headers.get("accept-encoding", ""):
                packed = gzip.compress(response.body)
                response = WireResponse(200, packed, {"content-encoding": "gzip"})
            await out.whole(response, dialect.headers)

    async def _stream(self, scenario: Scenario, seen: Seen, out: Writer) -> None:
        await out.head(200, {**self.dialect.headers, "content-type": self.dialect.stream_type})
        pause, pieces = scenario.pause, 0
        if pause is not None and not pause.after:
            await out.wait(pause)
        for frame in _with_fault(self.dialect, scenario, seen):
            await out.chunks(frame.data, scenario.fragment)
            pieces += frame.piece
            if pause is not None and frame.piece and pieces == pause.after:
                await out.wait(pause)
        if scenario.has("pings"):
            await out.ping(self.dialect.ping())
        elif scenario.has("stall", "open"):
            await out.gone.wait()
        elif scenario.has("cut", "reset"):
            await out.hang_up(reset=scenario.has("reset"))
        else:
            await out.end()


def _with_fault(dialect: WireDialect, scenario: Scenario, seen: Seen) -> Iterator[Frame]:
    frames = dialect.stream(scenario, seen)
    fault = scenario.fault
    if fault is None:
        yield from frames
    elif fault.kind == "no_terminal":
        yield from takewhile(lambda frame: not frame.terminal, frames)
    elif fault.kind == "malformed":
        before = list(_first_pieces(frames, fault.after))
        yield from (*before, dialect.malformed_event(), *frames[len(before) :])
    elif fault.kind in ("truncated", "cut", "reset", "stall", "pings"):
        yield from _first_pieces(frames, fault.after)
    elif fault.kind == "error_event":
        assert scenario.failure is not None, "an error event needs a failure"
        yield from (*_first_pieces(frames, fault.after), dialect.error_event(scenario.failure))
    else:
        yield from frames


def _first_pieces(frames: Iterable[Frame], count: int) -> Iterator[Frame]:
    """The frames up to this many pieces; none at all for 0."""
    for frame in frames:
        if not count:
            return
        yield frame
        count -= frame.piece
