"""One answer of the provider that breaks, as the pieces that the ways to break are made of.

What is said comes from the encoders of the dialect; how it is put on the wire, and where it stops,
is decided here.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from tests.support.wire.dialect import Frame, WireDialect
from tests.support.wire.scenario import Call, Failure, Scenario, Stop, Tokens
from tests.support.wire.seen import Seen, SeenEmbedding

WORDS = tuple(f"word{number} " for number in range(1, 61))
WHOLE = "".join(WORDS)
PROMPT_TOKENS = 10
"""What the provider counts for any prompt; of an answer, each word is one."""
OTHER = WHOLE.upper()
"""An answer in other words."""
JSON = {"content-type": "application/json"}
_RESET = struct.pack("ii", 1, 0)  # linger for no time: the kernel sends RST instead of FIN


def first_words(count: int) -> str:
    """The text of so many pieces."""
    return "".join(WORDS[:count])


class Packer:
    """Compresses a body piece by piece, each of which can be read when it has come."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(wbits=31)

    def piece(self, data: bytes) -> bytes:
        return self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def rest(self) -> bytes:
        return self._zlib.flush()


@dataclass(eq=False)
class Answer:
    """Each method that ends the answer gives whether the connection may be used on."""

    dialect: WireDialect
    seen: Seen | SeenEmbedding
    begun: str
    """What the caller wants gone on with."""
    number: int
    """The how-manieth request for this model it is."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event
    packer: Packer | None = None
    """Set for a body that is compressed while it is sent."""
    played: list[Frame] = field(default_factory=list[Frame])
    """The events that were sent."""

    # ---- what is said

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return isinstance(self.seen, Seen) and bool(self.seen.stream)

    @property
    def words(self) -> Sequence[str]:
        """Those of the sixty that are not yet there."""
        left = WORDS
        while left and len(WHOLE) - len("".join(left)) < len(self.begun):
            left = left[1:]
        return left

    def body(self, words: Sequence[str] | None = None, stop: Stop = "end") -> bytes:
        """A whole answer, or the vectors."""
        if isinstance(self.seen, SeenEmbedding):
            return self.dialect.vectors(self.seen)
        return self.dialect.answer(self._scenario(words, stop), self.seen)

    def frames(self, words: Sequence[str] | None = None, stop: Stop = "end") -> Sequence[Frame]:
        """All events of a stream."""
        assert isinstance(self.seen, Seen), "vectors are not streamed"
        return self.dialect.stream(self._scenario(words, stop), self.seen)

    def _scenario(self, words: Sequence[str] | None, stop: Stop) -> Scenario:
        text = tuple(self.words if words is None else words)
        return Scenario(text=text, stop=stop, tokens=Tokens(PROMPT_TOKENS, len(self.words)))

    def until(self, count: int) -> list[Frame]:
        """The events up to so many of the sixty; for 0 those that come before the first."""
        taken: list[Frame] = []
        pieces = max(0, count - (len(WORDS) - len(self.words)))
        for frame in self.frames():
            if frame.piece and not pieces:
                break
            taken.append(frame)
            pieces -= frame.piece
            if frame.piece and not pieces:
                break
        return taken

    def call_frames(self, *, whole: bool) -> list[Frame]:
        """The events of five words and of a tool call, or of its beginning only."""
        assert isinstance(self.seen, Seen), "vectors are not streamed"
        words = WORDS[:5]
        call = Call.of("call_1", "look", {"query": "the weather in Paris"})
        frames = self.dialect.stream(Scenario(text=words, calls=(call,)), self.seen)
        before = list(takewhile(lambda frame: not frame.terminal, frames))
        pieces = [at for at, frame in enumerate(before) if frame.piece]
        return before if whole else before[: pieces[len(words)] + 1]

    # ---- whole answers

    async def say(self, words: Sequence[str] | None = None) -> bool:
        """The answer as it was asked for, whole or streamed."""
        if not self.streamed:
            return await self.send(200, self.body(words), JSON)
        await self.begin()
        await self.play(self.frames(words))
        return await self.end()

    async def refuse(self, failure: Failure, headers: Mapping[str, str] | None = None) -> bool:
        """The error as this provider reports it before an answer."""
        response = self.dialect.error(failure, self.seen)
        merged = {**JSON, **response.headers, **(headers or {})}
        return await self.send(response.status, response.body, merged)

    async def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
        await self.head(status, {**headers, "content-length": str(len(body))})
        self.writer.write(body)
        await self.writer.drain()
        return True

    # ---- bodies in pieces

    async def begin(self, content_type: str | None = None, **headers: str) -> None:
        """The head of a stream, whose body is chunked."""
        kind = content_type or self.dialect.stream_type
        await self.head(200, {"content-type": kind, "transfer-encoding": "chunked", **headers})

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())
        await self.writer.drain()

    async def play(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.played.append(frame)
            await self.chunk(frame.data)

    async def chunk(self, data: bytes) -> None:
        if self.packer is not None:
            data = self.packer.piece(data)
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self) -> bool:
        if self.packer is not None:
            rest = self.packer.rest()
            self.writer.write(b"%x\r\n%s\r\n" % (len(rest), rest))
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        return True

    # ---- ends that are none

    async def hush(self) -> bool:
        """Say nothing more, until the caller hangs up."""
        try:
            await self.reader.read(1)
        except ConnectionError:
            pass
        finally:
            self.gone.set()
        return False

    async def drip(self, data: bytes, pause_s: float = 0.01) -> bool:
        """Say this for ever, until the caller hangs up."""
        listening = asyncio.ensure_future(self.hush())
        try:
            while not listening.done():
                await self.chunk(data)
                await asyncio.wait({listening}, timeout=pause_s)
        finally:
            listening.cancel()
        return False

    async def abort(self, *, reset: bool = False) -> bool:
        """End the connection where more should follow, or tear it down."""
        if reset:
            sock: socket.socket = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()
        return False
