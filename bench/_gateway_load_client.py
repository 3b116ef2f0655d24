"""The callers of `gateway_load.py`: every answer is read to its end and judged piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple

from _gateway_load_upstream import piece

CHAT = "/v1/chat/completions"
RIGHT = "right"
"""All of it came, in order, with its end."""
REFUSED = "not connected"
RESET = "reset before the answer"
CUT = "cut"
"""A stream that was begun and has neither an end nor an error: nobody may ever see this."""
TORN = "reset in mid-stream"
IN_BAND = "error in the stream"
WRONG = "wrong"
_names = itertools.count()


class Ask(NamedTuple):
    """One request."""

    pieces: int = 3
    pause_ms: int = 0
    stream: bool = False
    status: int = 200
    """What the provider is to answer with."""
    model: str = "load"
    key: str = ""
    leave_after: int | None = None
    """So many pieces are read, and then the caller goes away."""


class Outcome(NamedTuple):
    """How it ended."""

    name: str
    what: str
    """One of the words above, or the status of a refusal."""
    began: float
    first_s: float = 0.0
    whole_s: float = 0.0
    shown: str = ""
    port: int = 0
    """Of the caller's side of the connection."""

    @property
    def first(self) -> float:
        """When the answer began."""
        return self.began + self.first_s

    @property
    def ended(self) -> float:
        """When there was nothing more to come."""
        return self.began + self.whole_s


class Caller:
    """One connection to the gateway, which is opened anew whenever it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer: asyncio.StreamWriter | None = None
        self.begun = asyncio.Event()
        """Whether there was an answer, or will be none."""

    async def ask(self, ask: Ask) -> Outcome:
        """Whatever happens."""
        name = f"n{next(_names)}"
        began = time.perf_counter()
        self.begun.clear()
        try:
            return await self._asked(name, ask, began)
        except OSError as error:
            spent = time.perf_counter() - began
            return Outcome(name, REFUSED, began, spent, spent, shown=repr(error))
        finally:
            self.begun.set()

    async def _asked(self, name: str, ask: Ask, began: float) -> Outcome:
        await self._connect()
        assert self._writer is not None
        first = [0.0]
        port = self._writer.get_extra_info("sockname")[1]
        said, status = b"", 0
        pieces: list[bytes] = []
        try:
            self._writer.write(_request(CHAT, ask.key, _body(name, ask)))
            status, headers = await self._head(first)
            self.begun.set()
            async for data in self._data(headers):
                pieces.append(data)
                if ask.leave_after is not None and len(pieces) > ask.leave_after:
                    self.close()
                    break
            said = b"".join(pieces)
            what = judged(name, ask, status, said)
            if headers.get("connection") == "close":
                self.close()
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            broken = TORN if isinstance(error, ConnectionError) else CUT
            what, said = (broken if status else RESET), b"".join(pieces) + repr(error).encode()
        now = time.perf_counter()
        shown = "" if what == RIGHT else said[-300:].decode(errors="replace")
        return Outcome(name, what, began, first[0] - began, now - began, shown, port)

    async def get(self, path: str, key: str, body: object = None) -> tuple[int, bytes]:
        """Another path, its status and its body; raises OSError or IncompleteReadError."""
        await self._connect()
        assert self._writer is not None
        self._writer.write(_request(path, key, body))
        status, headers = await self._head([0.0])
        said = b"".join([each async for each in self._data(headers)])
        if headers.get("connection") == "close":
            self.close()
        return status, said

    async def _connect(self) -> None:
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _head(self, first: list[float]) -> tuple[int, Mapping[str, str]]:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("no answer") from error
        first[0] = time.perf_counter()
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = (each.partition(": ") for each in rest if each)
        return int(line.split()[1]), {name.lower(): value for name, _, value in headers}

    async def _data(self, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        if "content-length" in headers:
            yield await self._reader.readexactly(int(headers["content-length"]))
            return
        while size := int(await _line(self._reader), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)


async def _line(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n")


def _request(path: str, key: str, body: object) -> bytes:
    said = b"" if body is None else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: localhost\r\n"
    more = f"authorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    return f"{head}{more}content-length: {len(said)}\r\n\r\n".encode() + said


def _body(name: str, ask: Ask) -> Mapping[str, object]:
    message = {"role": "user", "content": f"{name} {ask.pieces} {ask.pause_ms} {ask.status}"}
    said = {"model": ask.model, "messages": [message], "max_tokens": 64 + ask.pieces * 4}
    return said | {"stream": True} if ask.stream else said


def judged(name: str, ask: Ask, status: int, said: bytes) -> str:
    """One of the words above, for an answer that was read to its end."""
    if ask.leave_after is not None:
        return RIGHT
    if status != 200:
        # What was asked for is no surprise; the gateway may say it in another way.
        return RIGHT if ask.status != 200 else str(status)
    wanted = "".join(piece(name, number) for number in range(ask.pieces))
    if not ask.stream:
        text = json.loads(said)["choices"][0]["message"]["content"]
        return RIGHT if text == wanted else WRONG
    text, ended, error = read_events(said)
    if error:
        # Before its first piece it could have been asked for elsewhere.
        return IN_BAND if text and wanted.startswith(text) and not ended else WRONG
    if not ended:
        return CUT
    return RIGHT if text == wanted else WRONG


def read_events(said: bytes) -> tuple[str, bool, bool]:
    """The text of a stream, whether it has its end, and whether it has an error."""
    text: list[str] = []
    finished = done = error = False
    for event in said.split(b"\n\n"):
        data = event.partition(b"data: ")[2]
        if data == b"[DONE]":
            done = True
        elif data:
            body = json.loads(data)
            error = error or "error" in body
            for choice in body.get("choices", ()):
                text.append(choice["delta"].get("content") or "")
                finished = finished or choice.get("finish_reason") is not None
    return "".join(text), finished and done, error


class Crowd:
    """Callers that ask one thing after the other until they are told to stop."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.outcomes: list[Outcome] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, number: int, ask: Ask, *, keeps: bool = False, gives_up: bool = False) -> None:
        """So many, who keep their connections or not, and may go when nobody answers."""
        self._tasks += [
            asyncio.create_task(self._go_on(ask, keeps=keeps, gives_up=gives_up))
            for _ in range(number)
        ]

    async def stop(self) -> None:
        """What has begun is waited for."""
        self._stop.set()
        await asyncio.gather(*self._tasks)

    def counted(self, since: int = 0) -> Counter[str]:
        return Counter(each.what for each in self.outcomes[since:])

    def examples(self, allowed: frozenset[str] = frozenset({RIGHT})) -> list[str]:
        """A few of those that should not be."""
        bad = [each for each in self.outcomes if each.what not in allowed]
        return [f"{each.name} {each.what}: {each.shown}" for each in bad[:5]]

    async def _go_on(self, ask: Ask, *, keeps: bool, gives_up: bool) -> None:
        caller = Caller(self.port)
        with contextlib.closing(caller):
            while not self._stop.is_set():
                outcome = await caller.ask(ask)
                self.outcomes.append(outcome)
                if gives_up and outcome.what in (REFUSED, RESET):
                    return
                if not keeps:
                    caller.close()
