"""A gateway under attack, and what must hold after every attack."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.testing import FakeProvider
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until

BODY = chat_body("Hi there", model="default", max_tokens=10)
WORST = 500
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


@dataclass
class Target:
    """A gateway that asks for keys, with those of two callers."""

    gateway: Gateway
    texts: dict[str, str]
    fake: FakeProvider
    said: list[bytes] = field(default_factory=list[bytes])

    @property
    def key(self) -> bytes:
        """The header line that shows the first key."""
        return f"authorization: Bearer {self.texts['one']}\r\n".encode()

    def head(self, line: str, *lines: bytes, key: bool = True) -> bytes:
        """A head with these further lines."""
        shown = self.key if key else b""
        return b"".join([f"{line}\r\nhost: x\r\n".encode(), shown, *(x + b"\r\n" for x in lines)])

    async def send(self, *pieces: bytes, asked: int = 0) -> list[int]:
        """The status of every answer to these bytes, each of which is whole.

        A connection that is closed without a word gives none. After the first piece we wait until
        the model was asked as often as `asked` says.
        """
        answer = await self.raw(*pieces, asked=asked)
        return statuses(answer)

    async def raw(self, *pieces: bytes, asked: int = 0) -> bytes:
        """All that is answered until the gateway closes; we close our side only after that."""
        reader, writer = await asyncio.open_connection(self.gateway.host, self.gateway.port)
        answer = b""
        try:
            with suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await until(lambda: len(self.fake.requests) >= asked)
            with suppress(ConnectionError):
                while data := await asyncio.wait_for(reader.read(65_536), 30):
                    answer += data
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        self.said.append(answer)
        return answer

    async def is_well(self) -> None:
        """It answers, nothing of the attack is left, and nobody heard of a key."""
        answer = await self.gateway.client.post(CHAT, json=BODY, headers=bearer(self.texts["two"]))
        assert answer.status_code == 200, answer.text
        server = self.gateway.server
        await until(lambda: server.running_requests == 0)
        # That of the client which has just asked stays.
        await until(lambda: len(server.server_state.connections) <= 1)
        assert all(text.encode() not in each for text in self.texts.values() for each in self.said)


@asynccontextmanager
async def under_attack(
    caplog: pytest.LogCaptureFixture, *, fake: FakeProvider | None = None, **keys: dict[str, Any]
) -> AsyncGenerator[Target]:
    """A gateway with the keys `one` and `two`; afterwards it is well, and logged no accident."""
    provider = fake or FakeProvider()
    engine, texts = keyed_engine(provider, **{"one": {}, "two": {}, **keys})
    caplog.set_level(logging.DEBUG, logger="penstock")
    async with running_gateway(engine) as gateway:
        target = Target(gateway, texts, provider)
        yield target
        await target.is_well()
    no_accident(caplog)


def no_accident(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that was logged speaks of an error of ours."""
    bad = [each for each in caplog.records if each.levelno >= logging.ERROR or each.exc_info]
    assert bad == [], [each.getMessage() for each in bad]


def statuses(answer: bytes, *, heads: bool = False) -> list[int]:
    """Of all answers in these bytes; fails when they are not whole answers one after the other.

    `heads`: some may be answers to HEAD, which tell of a body that they do not have.
    """
    found: list[int] = []
    while answer:
        match = _STATUS.match(answer)
        assert match is not None, answer[:200]
        head, end, rest = answer.partition(b"\r\n\r\n")
        assert end, answer[:200]
        status = int(match[1])
        if status == 100:
            answer = rest
            continue
        length = _LENGTH.search(head + b"\r\n")
        if length is None:
            # Only the last may be of a length that its end tells.
            assert b"connection: close" in head.lower(), head
            size = len(rest)
        else:
            size = int(length[1])
            if heads and (not rest or _STATUS.match(rest)):
                size = 0
        assert len(rest) >= size, (head, rest)
        found.append(status)
        answer = rest[size:]
    assert all(status < WORST for status in found), found
    return found


def as_json(value: Any) -> bytes:
    """As a body."""
    return json.dumps(value).encode()


def in_chunks(data: bytes, sizes: Sequence[int] = ()) -> bytes:
    """In the framing of `transfer-encoding: chunked`."""
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    pieces.append(data)
    framed = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece]
    return b"".join([*framed, b"0\r\n\r\n"])
