"""All columns, and the servers behind them: what is tested, and what the page is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.independent import aimock_rows, llama_rows
from tests.independent.rows import Row, Wrong

TITLES: Mapping[str, str] = {
    "aimock": "aimock 1.43.0",
    "llama": "llama.cpp's server (xllamacpp)",
}
ROWS: tuple[Row[Any], ...] = (*aimock_rows.ROWS, *llama_rows.ROWS)


def faults(server: str) -> list[Wrong[Any]]:
    """Everything that this server gets wrong, once, in the order of the columns."""
    found: dict[str, Wrong[Any]] = {}
    for row in ROWS:
        if row.server == server:
            for each in (*row.wrong.values(), *row.tolerated):
                found.setdefault(each.fault, each)
    return list(found.values())
