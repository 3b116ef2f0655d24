"""A gateway under a hard budget: what is admitted never costs more than what was reserved."""

from __future__ import annotations

import asyncio
import contextlib
import json
import string
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.config.load import parse
from penstock.engine.engine import Engine
from tests.support.tokenizers import tokenizers
from tests.support.wire.connection import read_request
from tests.unit.server.gateway_support import Gateway, running_gateway

MARKS = "".join(Random(7).choices(string.punctuation, k=30_000))
PROSE = "The wheel turns while the water runs, and it stands still when the gate is shut. " * 100
TEXTS = {
    "marks": MARKS[:6000],
    "prose": PROSE,
    "letters": "".join(Random(8).choices(string.ascii_letters + " ", k=6000)),
    "emoji": "".join(chr(Random(9).randrange(0x1F300, 0x1F650)) for _ in range(1500)),
    "ideographs": "".join(Random(10).choices("水車門川石橋龘靐", k=3000)),
    "JSON": json.dumps([{"id": n, "name": "mill", "ok": True} for n in range(200)]),
}
USD = 10**9


class Upstream:
    """An OpenAI-compatible server that counts as OpenAI does."""

    def __init__(self) -> None:
        self.url = ""
        self.counts: list[int] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await read_request(reader)) is not None:
                said = json.loads(request.body)["messages"]
                count = tokenizers()["o200k"]
                # Three for each message and three for the answer's start, as OpenAI documents it.
                read = 3 + sum(3 + count(each["role"]) + count(each["content"]) for each in said)
                self.counts.append(read)
                body = json.dumps(
                    {
                        "id": "1",
                        "object": "chat.completion",
                        "model": "gpt-4.1",
                        "choices": [
                            {
                                "index": 0,
                                "finish_reason": "length",
                                "message": {"role": "assistant", "content": "word " * 10},
                            }
                        ],
                        "usage": {
                            "prompt_tokens": read,
                            "completion_tokens": 10,
                            "total_tokens": read + 10,
                        },
                    }
                ).encode()
                head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def upstream() -> AsyncGenerator[Upstream]:
    made = Upstream()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield made


@contextlib.asynccontextmanager
async def gateway(url: str, folder: Path, limit_usd: float) -> AsyncGenerator[Gateway]:
    config = parse(
        f"""
        [providers.up]
        kind = "openai-chat"
        url = "{url}"
        auth_token = "none"
        [models.default]
        targets = ["up/gpt-4.1"]
        [models.default.prices."up/gpt-4.1"]
        input = 5.0
        output = 5.0
        [budgets.all]
        limit_usd = {limit_usd}
        period = "forever"
        [storage]
        url = "sqlite:///{folder / "ledger.db"}"
        """
    )
    async with running_gateway(Engine(config, model_files=False, keep_books=True)) as running:
        yield running


async def spent(running: Gateway) -> dict[str, Any]:
    stats = await running.engine.usage_stats()
    assert stats.remaining is not None
    return {"cost": stats.total.cost_nanos, "left": stats.remaining["all"]}


async def test_thirty_thousand_marks_are_refused_before_any_call(tmp_path: Path) -> None:
    # At 5 USD a million, their 20,000 tokens cost a tenth of a dollar.
    assert tokenizers()["o200k"](MARKS) * 5e-6 > 0.05
    async with upstream() as up, gateway(up.url, tmp_path, 0.05) as running:
        refused = await running.chat(MARKS, max_tokens=10)
        assert refused.status_code == 429, refused.text
        assert refused.json()["error"]["code"] == "insufficient_quota"
        assert up.counts == []
        assert await spent(running) == {"cost": None, "left": 0.05 * USD}
        # Ordinary English of a third of that length is admitted.
        assert (await running.chat(PROSE, max_tokens=10)).status_code == 200


@pytest.mark.parametrize("kind", TEXTS)
async def test_no_bill_exceeds_its_reservation(kind: str, tmp_path: Path) -> None:
    async with upstream() as up, gateway(up.url, tmp_path, 0.3) as running:
        answered = await running.chat(TEXTS[kind], max_tokens=10)
        assert answered.status_code == 200, answered.text
        (read,) = up.counts
        assert (await spent(running))["cost"] == (read + 10) * 5000
        entries = [entry async for entry in (await running.engine.ledger()).entries()]
        held, settled = (
            sum(entry.amount_nanos for entry in entries if entry.kind == kind)
            for kind in ("hold", "settle")
        )
        assert 0 < abs(settled) <= abs(held)


async def test_a_budget_is_never_overdrawn_by_many_requests_at_once(tmp_path: Path) -> None:
    async with upstream() as up, gateway(up.url, tmp_path, 0.05) as running:
        asked = (running.chat(TEXTS["marks"][:1500], max_tokens=10) for _ in range(12))
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {200, 429}
        found = await spent(running)
        assert (found["cost"] or 0) + found["left"] == 0.05 * USD
        assert found["left"] >= 0
