"""Files of rows that other programs read and write: CSV, JSON lines and Parquet."""

from __future__ import annotations

import codecs
import csv
import importlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem

Row: TypeAlias = dict[str, Any]
_AT_ONCE = 1000
_Write: TypeAlias = Callable[[Sequence[Row]], object]
ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson")


def check_ending(path: Path) -> None:
    """Raise InvalidRequest when the name does not say which form the file has."""
    if path.suffix.lower() not in ENDINGS:
        problem = f"{path.name!r} does not say its form: end its name with {', '.join(ENDINGS)}"
        raise InvalidRequest.of([Problem("FILE", problem)])


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows with their numbers from 1; raises PenstockError for a file that cannot be read."""
    check_ending(path)
    try:
        yield from enumerate(_READERS[path.suffix.lower()](path), 1)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"cannot read {path}: {reason}; give another path") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is no {path.suffix} file: {error}; save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise ConfigurationError(f"{path} is no {path.suffix} file: {error}") from error


def write_rows(path: Path, columns: Mapping[str, str], rows: Iterable[Row]) -> int:
    """Write rows of these columns, each `text`, `real` or `whole`; returns how many.

    The file appears when it is whole, in the place of one that was there.
    """
    check_ending(path)
    unfinished = path.with_name(f".{path.name}.part")
    written = 0
    try:
        with _WRITERS[path.suffix.lower()](unfinished, columns) as write:
            some: list[Row] = []
            for row in rows:
                some.append(row)
                if len(some) == _AT_ONCE:
                    write(some)
                    written += len(some)
                    some = []
            write(some)
            written += len(some)
        unfinished.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"cannot write {path}: {reason}; give another path") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return written


def _read_csv(path: Path) -> Iterator[Row]:
    # Prompts are longer than what csv takes for a field that was never closed.
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            # Cells beyond the header have no name, and missing ones are None.
            yield {name: value or None for name, value in row.items() if name}


def _read_json_lines(path: Path) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            # Some programs begin a file with a mark of its encoding, and many end it with a line.
            text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()
            if not text:
                continue
            try:
                yield decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                where = f"{path.name} line {number}"
                said = f"is not a JSON object: {error}; mend it: nothing was brought in"
                raise InvalidRequest.of([Problem(where, said)]) from error


def _read_parquet(path: Path) -> Iterator[Row]:
    _, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_AT_ONCE):
                yield from batch.to_pylist()
    except ValueError as error:
        raise ConfigurationError(f"{path} is not a Parquet file: {error}") from error


@contextmanager
def _write_csv(path: Path, columns: Mapping[str, str]) -> Generator[_Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        yield writer.writerows


@contextmanager
def _write_json_lines(path: Path, columns: Mapping[str, str]) -> Generator[_Write]:
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:

        def write(rows: Sequence[Row]) -> None:
            known = [{n: v for n, v in row.items() if v is not None} for row in rows]
            file.write(encoder.encode_lines(known))

        yield write


@contextmanager
def _write_parquet(path: Path, columns: Mapping[str, str]) -> Generator[_Write]:
    arrow, parquet = _arrow()
    kinds = {"text": arrow.string(), "real": arrow.float64(), "whole": arrow.int64()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        yield lambda rows: writer.write_table(arrow.Table.from_pylist(list(rows), schema=schema))


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigurationError(
            "Parquet needs pyarrow: `pip install pyarrow`, or use .csv or .jsonl"
        ) from error


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
}
_WRITERS: dict[str, Callable[[Path, Mapping[str, str]], AbstractContextManager[_Write]]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".ndjson": _write_json_lines,
}
