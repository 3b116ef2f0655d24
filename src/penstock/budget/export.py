"""The entries as a file that other programs read: CSV, JSON lines or Parquet."""

from __future__ import annotations

import asyncio
import csv
import importlib
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from penstock.budget.entries import Entry
from penstock.budget.ledger import Ledger
from penstock.budget.reports import EVERYTHING, HistoryFilter
from penstock.contract.errors import ConfigurationError

ExportFormat = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
_ROWS = 10_000
"""Rows that are in memory at once."""
COLUMNS = tuple(name for name in Entry.__struct_fields__ if name != "postings")
"""The columns of CSV and Parquet; tags are a JSON object. JSON lines have the postings as well."""
_WHOLE = frozenset(
    {"id", "hold", "amount_nanos"} | {name for name in COLUMNS if name.endswith("_tokens")}
)
_REAL = frozenset({"at", "held_at"})

_Write = Callable[[Sequence[Entry]], object]


async def export(
    ledger: Ledger,
    path: Path | str,
    kind: ExportFormat,
    chosen: HistoryFilter = EVERYTHING,
) -> int:
    """Write the chosen entries, oldest first, and return how many there were.

    The file appears when it is whole, in the place of one that was there. Parquet needs the
    package `pyarrow`.
    """
    if kind not in FORMATS:
        raise ConfigurationError(f"format {kind!r} is not known: give {', '.join(FORMATS)}")
    file = Path(path)
    unfinished = file.with_name(f".{file.name}.part")
    written = 0
    try:
        with _OPENERS[kind](unfinished) as write:
            rows: list[Entry] = []
            async for entry in ledger.entries(chosen):
                rows.append(entry)
                if len(rows) == _ROWS:
                    await asyncio.to_thread(write, rows)
                    written += len(rows)
                    rows = []
            if rows:
                await asyncio.to_thread(write, rows)
                written += len(rows)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return written


def _cells(entry: Entry) -> list[object]:
    values = [getattr(entry, name) for name in COLUMNS]
    place = COLUMNS.index("tags")
    values[place] = msgspec.json.encode(entry.tags).decode() if entry.tags else None
    return values


@contextmanager
def _csv(path: Path) -> Generator[_Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        yield lambda rows: writer.writerows(map(_cells, rows))


@contextmanager
def _json_lines(path: Path) -> Generator[_Write]:
    with path.open("wb") as file:
        encoder = msgspec.json.Encoder()
        yield lambda rows: file.write(encoder.encode_lines(rows))


@contextmanager
def _parquet(path: Path) -> Generator[_Write]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigurationError(
            "Parquet needs pyarrow: `pip install pyarrow`, or choose csv or jsonl"
        ) from error

    def type_of(name: str) -> Any:
        if name in _WHOLE:
            return arrow.int64()
        if name in _REAL:
            return arrow.float64()
        return arrow.bool_() if name == "estimated" else arrow.string()

    schema = arrow.schema([(name, type_of(name)) for name in COLUMNS])

    def write(rows: Sequence[Entry]) -> None:
        columns = zip(*map(_cells, rows), strict=True)
        arrays = [
            arrow.array(values, type_of(name))
            for name, values in zip(COLUMNS, columns, strict=True)
        ]
        writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))

    with parquet.ParquetWriter(path, schema) as writer:
        yield write


_OPENERS: dict[ExportFormat, Callable[[Path], AbstractContextManager[_Write]]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": _parquet,
}
