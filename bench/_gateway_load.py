"""The load of `gateway.py`: connections that are never idle, and answers that are all checked.

    python bench/_gateway_load.py JOB

`JOB` is JSON: the port, the bytes of one request, how many connections, for how many seconds and at
most how many requests, and whether the answer is a stream. Printed is how many answers came, in
which time, and the quantiles of how long each took to its first byte and to its end.

An answer counts when its status is 200 and it has all the words of `_chat_server.py` in their
number, and a stream its end; anything else ends the run with what came instead.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import NamedTuple, cast

import uvloop
from _chat_server import CHUNKS, WORD

WORDS = (WORD * CHUNKS).encode()
_OK = (b"HTTP/1.1 200", b"HTTP/1.0 200")
_SHOWN = 600


class Job(NamedTuple):
    """What is asked for."""

    port: int
    request: str
    """Head and body, as they are sent."""
    connections: int
    seconds: float
    most: int | None = None
    stream: bool = False


def is_whole(answer: bytes) -> bool:
    """Whether nothing more is to come, of an answer that is not a stream."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        return body.endswith(b"0\r\n\r\n")
    announced = lower.partition(b"content-length:")[2].split(b"\r\n")[0]
    return len(body) >= int(announced or 0)


def is_right(answer: bytes) -> bool:
    """Whether it is the answer of the upstream, of which nothing is missing."""
    return answer.startswith(_OK) and WORDS in (answer if WORDS in answer else unchunked(answer))


def is_right_stream(answer: bytes) -> bool:
    """Whether every chunk has come, and the end."""
    if not answer.startswith(_OK):
        return False
    said = answer if answer.count(WORD.encode()) == CHUNKS else unchunked(answer)
    return said.count(WORD.encode()) == CHUNKS and b"[DONE]" in said


def unchunked(answer: bytes) -> bytes:
    """The body without the lengths between its pieces, which may have cut a word in two."""
    rest = answer.partition(b"\r\n\r\n")[2]
    pieces: list[bytes] = []
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        try:
            size = int(length, 16)
        except ValueError:
            break
        pieces.append(rest[:size])
        rest = rest[size + 2 :]
    return b"".join(pieces)


class Load:
    """One run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.request = job.request.encode()
        self.answers = 0
        self.begun = 0
        self.firsts: list[float] = []
        self.wholes: list[float] = []
        self.length = 0
        """How long the last answer was: the next one is likely to be as long."""
        self.stop = 0.0
        self.failure: str | None = None

    def may_go_on(self, now: float) -> bool:
        return (
            now < self.stop
            and self.failure is None
            and (self.job.most is None or self.begun < self.job.most)
        )

    def result(self, elapsed: float) -> dict[str, float]:
        return {
            "answers": self.answers,
            "seconds": elapsed,
            "first_p50_ms": quantile(self.firsts, 0.5),
            "first_p99_ms": quantile(self.firsts, 0.99),
            "p50_ms": quantile(self.wholes, 0.5),
            "p99_ms": quantile(self.wholes, 0.99),
        }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1e3


class Client(asyncio.Protocol):
    """One connection: as soon as an answer is there, the next request goes out."""

    def __init__(self, load: Load, done: asyncio.Future[None]) -> None:
        self.load = load
        self.done = done
        self.seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted, for uvloop's are none by inheritance.
        self.transport = cast(asyncio.Transport, transport)
        self.ask(time.perf_counter())

    def ask(self, now: float) -> None:
        load = self.load
        if not load.may_go_on(now):
            self.transport.close()
            return
        load.begun += 1
        self.began = now
        self.first = 0.0
        self.transport.write(load.request)

    def data_received(self, data: bytes) -> None:
        load = self.load
        now = time.perf_counter()
        if not self.seen:
            self.first = now
            self.seen = data
        else:
            self.seen += data
        seen = self.seen
        if load.job.stream:
            if not seen.endswith(b"\r\n0\r\n\r\n") and not self.refused():
                return
            right = is_right_stream(seen)
        else:
            # The head is only taken apart when the length is not that of the answer before.
            if len(seen) != load.length and not is_whole(seen):
                return
            load.length = len(seen)
            right = is_right(seen)
        if not right:
            load.failure = seen[:_SHOWN].decode(errors="replace")
        load.answers += 1
        load.firsts.append(self.first - self.began)
        load.wholes.append(now - self.began)
        self.seen = b""
        self.ask(now)

    def refused(self) -> bool:
        return not self.seen.startswith(_OK) and is_whole(self.seen)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.seen or exc is not None:
            self.load.failure = self.load.failure or f"the connection was lost: {exc}"
        if not self.done.done():
            self.done.set_result(None)


async def run(job: Job) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    load = Load(job)
    waiting = [loop.create_future() for _ in range(job.connections)]
    began = time.perf_counter()
    load.stop = began + job.seconds
    for done in waiting:
        await loop.create_connection(lambda done=done: Client(load, done), "127.0.0.1", job.port)
    await asyncio.gather(*waiting)
    if load.failure is not None or not load.answers:
        sys.exit(f"a wrong answer: {load.failure or 'none at all'}")
    return load.result(time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(Job(*json.loads(sys.argv[1]))))))
