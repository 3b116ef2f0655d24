"""Labelled outcomes as a file that other programs read, and that can be trained from again."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from penstock.routing.outcomes.formats import Row, check_ending, write_rows
from penstock.routing.outcomes.queries import labelled_outcomes
from penstock.routing.outcomes.rows import NANOS, packed
from penstock.routing.outcomes.schema import asked

COLUMNS = {
    "prompt_id": "text",
    "model": "text",
    "score": "real",
    "cost_usd": "real",
    "source": "text",
    "prompt_tokens": "whole",
    "prompt": "text",
    "features": "text",
    "features_by": "text",
}
"""`features` are little-endian 16-bit floats in Base64, `features_by` says who has made them."""


def export(
    database: Path, file: Path, *, model: str | None = None, since: float | None = None
) -> int:
    """Write a row for each label, oldest outcome first; returns how many.

    The id of the request stands in the place of the prompt's; the prompt itself is there if it was
    kept.
    """
    check_ending(file)

    def write(connection: sqlite3.Connection) -> int:
        return write_rows(file, COLUMNS, _rows(connection, model, since))

    written = asked(database, write, None)
    return write_rows(file, COLUMNS, ()) if written is None else written


def _rows(connection: sqlite3.Connection, model: str | None, since: float | None) -> Iterator[Row]:
    for each in labelled_outcomes(connection, model, since):
        served = each.served
        for label in each.labels:
            yield {
                "prompt_id": served.request_id,
                "model": str(served.target),
                "score": label.quality.score,
                "cost_usd": None if served.cost_nanos is None else served.cost_nanos / NANOS,
                "source": label.quality.source.value,
                "prompt_tokens": served.prompt_tokens,
                "prompt": served.prompt,
                "features": None
                if served.features is None
                else base64.b64encode(packed(served.features)).decode(),
                "features_by": served.made_by,
            }
