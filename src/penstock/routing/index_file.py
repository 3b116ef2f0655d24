"""The rows of an index in a file, so that a start need not make them again.

The file is a cache: whatever is wrong with it, the rows are made again from the outcomes. It begins
with a line that says what it holds, and of what sort; the rows follow, and are mapped into memory,
so that only those which are looked at are read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.routing.index import VectorIndex

logger = logging.getLogger(__name__)

_HEAD = 512
"""Bytes of the first line, filled up with blanks: the rows stay aligned."""
Index = TypeVar("Index", bound=VectorIndex)


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    penstock_rows: int
    """The version of the format."""
    sort: str
    dimensions: int
    rows: int
    digest: str


class _WrongFile(ValueError):
    pass


def save(index: VectorIndex, path: Path, sort: str) -> None:
    """Write all rows; `sort` is the name of their features. The file is whole or as it was."""
    count = len(index)
    rows = np.ascontiguousarray(index.vectors(np.arange(count)), "<f4")
    head = _Head(1, sort, rows.shape[1], count, _digest(rows))
    line = msgspec.json.encode(head).ljust(_HEAD - 1) + b"\n"
    if len(line) != _HEAD:
        raise ValueError(f"sort {sort!r} is too long a name: give it less than 300 letters")
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(line)
            file.write(rows.data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def load(
    path: Path,
    sort: str,
    dimensions: int,
    make: Callable[[int, NDArray[np.float32]], Index],
) -> Index | None:
    """The index with the rows of a file; None when there is none, and with a warning if it is bad.

    Changes to the index do not reach the file.
    """
    try:
        return make(dimensions, _read(path, sort, dimensions))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        logger.warning("the saved index %s is not used and will be made again: %s", path, error)
        return None


def _read(path: Path, sort: str, dimensions: int) -> NDArray[np.float32]:
    with path.open("rb") as file:
        head = msgspec.json.decode(file.read(_HEAD), type=_Head)
    if (head.penstock_rows, head.sort, head.dimensions) != (1, sort, dimensions):
        raise _WrongFile(f"it holds {head.sort!r} in {head.dimensions} dimensions, not {sort!r}")
    size = path.stat().st_size
    if head.rows < 0 or size != _HEAD + 4 * head.rows * dimensions:
        raise _WrongFile(f"{head.rows} rows cannot take {size} bytes")
    if not head.rows:
        return np.zeros((0, dimensions), np.float32)
    rows: NDArray[np.float32] = np.memmap(
        path, "<f4", mode="c", offset=_HEAD, shape=(head.rows, dimensions)
    )
    if _digest(rows) != head.digest:
        raise _WrongFile("its checksum is wrong")
    return rows


def _digest(rows: NDArray[np.float32]) -> str:
    return blake2b(np.ascontiguousarray(rows).data, digest_size=16).hexdigest()
