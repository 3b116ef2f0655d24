"""Upstreams that never end, of each dialect: bounded bytes, bounded memory, one error.

The server is in this process and the engine in a child, whose memory is measured for each row. The
server stops by itself after `MOST_SENT` bytes, which fails the row.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.security.endless import Row, rows
from tests.support.raw import HOST

MOST_SENT = 200 * 2**20
MOST_READ = {"default": 40 * 2**20, "small": 16 * 2**20, "short": 16 * 2**20}
"""With what sockets hold."""
MOST_GROWN = 128 * 2**20
_WRITTEN_AT_ONCE = 256 * 1024
pytestmark = pytest.mark.timeout(300)


class EndlessServer:
    """Writes the row that a request's model names, and counts the bytes that it could write."""

    def __init__(self) -> None:
        self.rows = rows()
        self.sent = Counter[str]()
        self.requests = Counter[str]()
        self._tasks: set[asyncio.Task[object]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            (length,) = [
                int(line.partition(":")[2])
                for line in head.split("\r\n")
                if line.lower().startswith("content-length:")
            ]
            body = await reader.readexactly(length)
            name = self._name(head.split(" ")[1], json.loads(body))
            self.requests[name] += 1
            await self._write(name, self.rows[name], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _name(self, path: str, body: dict[str, Any]) -> str:
        return body.get("model") or next(
            name for name in sorted(self.rows, key=len, reverse=True) if name in path
        )

    async def _write(self, name: str, row: Row, writer: asyncio.StreamWriter) -> None:
        block = row.block * max(1, _WRITTEN_AT_ONCE // len(row.block))
        if not row.raw:
            kind = "application/json" if row.whole else row.content_type
            coding = f"content-encoding: {row.coding}\r\n" if row.coding else ""
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{coding}\r\n"
            writer.write(head.encode())
        writer.write(row.before)
        while self.sent[name] < MOST_SENT:
            writer.write(block)
            await writer.drain()
            self.sent[name] += len(block)

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
async def test_no_endless_answer_takes_more_than_its_limits(tmp_path: Path) -> None:
    endless = EndlessServer()
    asked = "".join(
        f"{name} {row.limits} {'whole' if row.whole else 'stream'}\n"
        for name, row in endless.rows.items()
    )
    async with await asyncio.start_server(endless.serve, HOST, 0) as server:
        url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.security.endless_client",
            url,
            str(tmp_path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, said = await child.communicate(asked.encode())
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            await endless.aclose()
    assert child.returncode == 0, said.decode()
    *found, books = [json.loads(line) for line in out.splitlines()]
    assert [each["name"] for each in found] == list(endless.rows)
    problems = [
        f"{each['name']}: {problem}: {each}" for each in found for problem in wrong(endless, each)
    ]
    assert not problems, "\n".join(problems)
    # Nothing is held any more, and no bill is above what was held for it.
    assert books["held"] == 0
    assert books["bills"] > len(endless.rows) // 2
    assert not books["above"]


def wrong(endless: EndlessServer, got: dict[str, Any]) -> list[str]:
    """What is not as it should be with this row."""
    row = endless.rows[got["name"]]
    sent = endless.sent[got["name"]]
    checks = {
        f"{sent} bytes were read": sent <= MOST_READ[row.limits],
        "the memory": got["grown"] <= MOST_GROWN,
        "the error": got["error"] == row.error,
        "it may be retried": got["retryable"] == row.retryable,
        "the events": got["begun"] == row.begins,
        "not one end": got["ends"] == int(got["begun"]),
        "it was asked again": endless.requests[got["name"]] == 1 or row.error == "InvalidRequest",
        "the breaker": "is not asked for now" in got["again"] or row.error == "InvalidRequest",
    }
    return [problem for problem, good in checks.items() if not good]
