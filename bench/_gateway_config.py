"""The configuration of Penstock in `gateway.py`: everything that costs something is on.

The log of requests goes to a file, the ledger to a file beside it, a hard budget judges each
request, a key is asked for, and the breaker and the counters cannot be turned off. With `Size`
there are many of each, of which one is used: whatever looks through all of them shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.config.settings import Config

MODEL = "bench"
KEY = "psk_bench-0123456789abcdefghijklmnopqrstuvwxyz"
STORE = "ledger.db"
_BOOKS = f"""[storage]
url = "sqlite:///{STORE}"
[budgets.total]
limit_usd = 1000000.0
"""
HAS_KEYS = "keys" in Config.model_fields


class Size(NamedTuple):
    """How much there is beside what is used."""

    models: int = 0
    budgets: int = 0
    keys: int = 0


def write_config(
    folder: Path, upstream: str, size: Size | None = None, *, ledger: bool = True
) -> Path:
    """The file that `penstock serve` reads; without `ledger` nothing in it asks for one."""
    path = folder / "penstock.toml"
    books = _BOOKS if ledger else ""
    path.write_text("".join([books, *_sections(upstream, size or Size())]))
    return path


def _sections(upstream: str, size: Size) -> Iterator[str]:
    yield f"""
[server]
log = "json"
[providers.up]
kind = "openai-chat"
url = "{upstream}/v1"
auth_token = "bench"
"""
    yield _model(MODEL)
    if HAS_KEYS:
        yield _key("bench", KEY)
    for number in range(size.models):
        yield _model(f"other-{number}")
    for number in range(size.budgets):
        yield f'[budgets.other-{number}]\nlimit_usd = 10.0\nkey = "other-{number}"\n'
    for number in range(size.keys if HAS_KEYS else 0):
        yield _key(f"other-{number}", f"psk_other-{number}")


def _model(name: str) -> str:
    return f"""[models.{name}]
targets = ["up/{name}"]
[models.{name}.prices."up/{name}"]
input = 1.0
output = 5.0
"""


def _key(name: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'[keys.{name}]\nhash = "sha256:{digest}"\nrequests_per_minute = 100000000\n'
