"""Asks for answers without end, and prints what came of each: `python -m ... URL FOLDER`.

It reads `name limits form` from its input, a line for each row, and writes a line of JSON for each.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

from penstock.config.settings import Config
from penstock.contract.errors import PenstockError
from penstock.contract.events import Error
from penstock.engine.engine import Engine

KINDS = ("openai-chat", "openai", "anthropic", "gemini", "ollama", "bedrock")
_HIGHEST = re.compile(r"VmHWM:\s+(\d+) kB")


def forget_highest() -> int:
    """Measure the highest memory from now on; the memory now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return highest()


def highest() -> int:
    found = _HIGHEST.search(Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def ask(engine: Engine, name: str, *, whole: bool) -> dict[str, object]:
    before = forget_highest()
    kind = name.partition(".")[0]
    error: PenstockError | None = None
    begun, ends = False, 0
    try:
        if whole:
            await engine.create_message("Hello", model=f"{kind}/{name}", max_tokens=20)
        else:
            stream = await engine.create_message_stream(
                "Hello", model=f"{kind}/{name}", max_tokens=20
            )
            begun = True
            async for event in stream:
                if isinstance(event, Error):
                    error, ends = event.error, ends + 1
    except PenstockError as raised:
        error = raised
    grown = highest() - before
    again: PenstockError | None = None
    try:
        await engine.create_message("Hello", model=f"{kind}/{name}", max_tokens=20)
    except PenstockError as raised:
        again = raised
    return {
        "name": name,
        "error": type(error).__name__,
        "message": str(error),
        "retryable": error is not None and error.retryable,
        "begun": begun,
        "ends": ends,
        "grown": grown,
        "again": str(again),
    }


def config(url: str, folder: str, **pool: float) -> Config:
    return Config.model_validate(
        {
            "providers": {
                kind: {"kind": kind, "url": f"{url}/{kind}", "auth_token": "key"} for kind in KINDS
            },
            "pool": {"breaker_failures": 1, **pool},
            "prices": {"default": {"input": 1.0, "output": 10.0}},
            "storage": {"url": f"sqlite:///{folder}/penstock.db"},
            "budgets": {"all": {"limit_usd": 100}},
        }
    )


async def main(url: str, folder: str) -> None:
    small = 8 * 2**20
    async with (
        Engine(config(url, folder)) as default,
        Engine(config(url, folder, max_stream_bytes=small, max_response_bytes=small)) as few_bytes,
        Engine(config(url, folder, stream_idle_timeout_s=0.5, keep_alive_timeout_s=0.5)) as short,
    ):
        engines = {"default": default, "small": few_bytes, "short": short}
        for line in sys.stdin:
            name, limits, form = line.split()
            found = await ask(engines[limits], name, whole=form == "whole")
            sys.stdout.write(json.dumps(found) + "\n")
        for engine in engines.values():
            # What is settled is written a moment later.
            await (await engine.ledger()).tend()
        ledger = await default.ledger()
        (balance,) = await ledger.balances()
        entries = [entry async for entry in ledger.entries()]
        held = {each.request_id: each.amount_nanos for each in entries if each.kind == "hold"}
        bills = [each for each in entries if each.kind == "settle"]
        books = {
            "held": balance.held_nanos,
            "bills": len(bills),
            "above": [each.model for each in bills if each.amount_nanos > held[each.request_id]],
        }
        sys.stdout.write(json.dumps(books) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
