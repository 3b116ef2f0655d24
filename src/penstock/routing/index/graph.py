"""Searches along a graph of neighbours, for memories of more than some ten thousand rows.

Both keep the rows themselves beside the graph: similarities are exact, what a graph has lost is
compared one by one, and a graph can be made again at any time. They are extras: `usearch`
(`penstock[routing-index]`) and `ruvector` (`penstock[routing-ruvector]`).
"""

from __future__ import annotations

import copy
import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.contract.errors import ConfigurationError
from penstock.routing.index.exact import MOST_COMPARED, ExactIndex, Found, VectorIndex
from penstock.routing.index.sketch import SketchIndex

_log = logging.getLogger("penstock.routing")
_CANDIDATES = 256
"""How many rows a graph looks at while it searches; more find more, and take longer."""
_CONNECTED = 16
_PACKAGES = {
    "usearch": ("usearch.index", "routing-index"),
    "ruvector": ("ruvector", "routing-ruvector"),
}
"""The module and the extra of each index that needs a package."""


def index_for(capacity: int, name: str = "auto") -> Callable[[int], VectorIndex]:
    """What makes the index of a memory of so many rows, or the one of this name.

    Where the package of a named index is missing, it is the exact one, with one warning.
    """
    if name == "exact":
        return ExactIndex
    if name in _PACKAGES:
        if problem := missing_package(name):
            warned_once(name, problem)
            return ExactIndex
        return UsearchIndex if name == "usearch" else RuvectorIndex
    if capacity > MOST_COMPARED and not missing_package("usearch"):
        return UsearchIndex
    return SketchIndex


def missing_package(name: str) -> str | None:
    """Why the index of this name cannot be made here; None when it can."""
    if name in _PACKAGES:
        try:
            _module(name)
        except ConfigurationError as error:
            return str(error)
    return None


@functools.cache
def warned_once(name: str, problem: str) -> None:
    """Log that this index is replaced: once in a process, however many models and reloads."""
    _log.warning(
        '[routing] index = "%s": %s. Until then the exact index is used, which finds the same '
        "prompts and takes longer in a large memory",
        name,
        problem,
    )


class UsearchIndex:
    """A graph by usearch, with half the precision of the rows."""

    def __init__(self, dimensions: int) -> None:
        """Empty."""
        usearch = _module("usearch")
        self._exact = ExactIndex(dimensions)
        self._graph: Any = usearch.Index(
            ndim=dimensions,
            metric="cos",
            dtype="bf16",
            connectivity=_CONNECTED,
            expansion_search=_CANDIDATES,
        )

    def __len__(self) -> int:
        """How many rows are filled."""
        return len(self._exact)

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Write the next row, or one that exists."""
        replaced = row < len(self._exact)
        self._exact.put(row, vector)
        if replaced:
            self._graph.remove(row)
        self._graph.add(row, vector, threads=1)

    def search(self, vector: NDArray[np.float32], number: int) -> Found:
        """Most of the nearest rows."""
        if len(self._exact) <= number:
            return self._exact.search(vector, number)
        found: Any = self._graph.search(vector, number, threads=1)
        rows = np.asarray(found.keys, np.uint64).astype(np.intp)
        if len(rows) < number:
            return self._exact.search(vector, number)
        return self._exact.looked_at(rows, vector)

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        return self._exact.vectors(rows)

    def __deepcopy__(self, memo: dict[int, object]) -> UsearchIndex:
        """Another of the same rows: Python cannot copy the graph by itself."""
        other = copy.copy(self)
        other._exact, other._graph = copy.deepcopy(self._exact, memo), self._graph.copy()
        return other


class RuvectorIndex:
    """A graph by ruvector, which forgets deleted rows only when it is made again.

    A replaced row gets a new name; so many more rows are asked for as old names may be in the way,
    and when they are as many as the rows, the graph is made again.
    """

    def __init__(self, dimensions: int) -> None:
        """Empty."""
        self._module = _module("ruvector")
        self._dimensions = dimensions
        self._exact = ExactIndex(dimensions)
        self._graph: Any = None
        self._names: list[str] = []
        self._row_of: dict[str, int] = {}
        self._gone = 0
        self._rebuild()

    def __len__(self) -> int:
        """How many rows are filled."""
        return len(self._exact)

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Write the next row, or one that exists."""
        replaced = row < len(self._exact)
        self._exact.put(row, vector)
        if replaced:
            old = self._names[row]
            self._graph.delete(old)
            del self._row_of[old]
            self._gone += 1
            if self._gone > len(self._exact):
                self._rebuild()
                return
            self._names[row] = f"{row}.{int(old.partition('.')[2]) + 1}"
        else:
            self._names.append(f"{row}.0")
        self._row_of[self._names[row]] = row
        self._graph.insert(self._names[row], np.ascontiguousarray(vector, np.float32))

    def search(self, vector: NDArray[np.float32], number: int) -> Found:
        """Most of the nearest rows."""
        count = len(self._exact)
        if count <= number:
            return self._exact.search(vector, number)
        asked = number + -(-number * self._gone // count)
        found: Any = self._graph.search(vector, asked, ef_search=max(_CANDIDATES, asked))
        known = [self._row_of[name] for name, *_ in found if name in self._row_of][:number]
        if len(known) < number:
            return self._exact.search(vector, number)
        return self._exact.looked_at(np.asarray(known, np.intp), vector)

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        return self._exact.vectors(rows)

    def __deepcopy__(self, memo: dict[int, object]) -> RuvectorIndex:
        """Another of the same rows, with a graph of its own."""
        other = copy.copy(self)
        other._exact = copy.deepcopy(self._exact, memo)
        other._rebuild()
        return other

    def _rebuild(self) -> None:
        self._graph = self._module.HnswIndex.create(
            self._dimensions, metric="cosine", m=_CONNECTED, ef_search=_CANDIDATES
        )
        count = len(self._exact)
        self._names = [f"{row}.0" for row in range(count)]
        self._row_of = {name: row for row, name in enumerate(self._names)}
        self._gone = 0
        if count:
            self._graph.insert_batch(self._names, self._exact.vectors(np.arange(count)))


def _module(name: str) -> Any:
    module, extra = _PACKAGES[name]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"the package {name} is missing: run pip install 'penstock[{extra}]'"
        ) from error
