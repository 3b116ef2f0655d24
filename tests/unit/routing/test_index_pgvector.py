"""The rows of an index in PostgreSQL as they are in the process: no database is needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.routing.index.pgvector import PgvectorIndex, digest
from penstock.routing.learning.features import unit
from penstock.routing.learning.neighbours import Neighbours

DIMENSIONS = 12
Rows = NDArray[np.float32]


def vectors(number: int, seed: int = 1) -> Rows:
    drawn = np.random.default_rng(seed).standard_normal((number, DIMENSIONS)).astype(np.float32)
    return np.stack([unit(row) for row in drawn])


def filled(rows: Rows, recent: int) -> PgvectorIndex:
    index = PgvectorIndex("m", DIMENSIONS, recent)
    for number, row in enumerate(rows):
        index.put(number, row)
    return index


def nearest(rows: Rows, vector: Rows, most: int) -> set[int]:
    return set(np.argsort(-(rows @ vector))[:most].tolist())


def found(index: PgvectorIndex, vector: Rows, most: int = 10) -> set[int]:
    numbers, similar, _ = index.search(vector, most)
    assert similar == pytest.approx(index.vectors(numbers) @ vector, abs=1e-5)
    assert len(set(numbers.tolist())) == len(numbers)
    return set(numbers.tolist())


def test_few_rows_are_compared_without_any_table() -> None:
    rows = vectors(100)
    index = filled(rows, recent=100)
    assert not index.outgrown
    for vector in vectors(5, seed=2):
        assert found(index, vector) == nearest(rows, vector, 10)


def test_of_many_rows_the_newest_are_compared_and_older_ones_if_they_were_prepared() -> None:
    rows = vectors(100)
    index = filled(rows, recent=30)
    assert index.outgrown
    for vector in vectors(5, seed=2):
        newest = {70 + each for each in nearest(rows[70:], vector, 10)}
        assert found(index, vector) == newest
        index.prepare(vector, [digest(rows[each]) for each in nearest(rows, vector, 10)])
        assert found(index, vector) == nearest(rows, vector, 10)
    assert found(index, vectors(1, seed=3)[0]) <= set(range(70, 100))


def test_what_was_prepared_and_is_gone_since_is_not_found() -> None:
    rows = vectors(100)
    index = filled(rows, recent=30)
    index.prepare(rows[3], [digest(rows[3]), digest(vectors(1, seed=9)[0])])
    assert 3 in found(index, rows[3])
    index.put(3, vectors(1, seed=5)[0])
    assert digest(rows[3]) not in {digest(row) for row in index.vectors(np.arange(100))}
    assert found(index, rows[3]) <= {3, *range(70, 100)}


def test_only_so_many_searches_are_prepared_at_once() -> None:
    rows = vectors(400)
    index = filled(rows, recent=30)
    for row in rows[:300]:
        index.prepare(row, [digest(row)])
    assert 0 not in found(index, rows[0])
    assert 299 in found(index, rows[299])


def test_a_full_memory_stays_bounded() -> None:
    memory = Neighbours(DIMENSIONS, 40, lambda _: PgvectorIndex("m", DIMENSIONS, 10))
    column = memory.add_target()
    for row in vectors(200):
        memory.add(row, column, 1.0, 1.0)
    assert len(memory) == 40
    assert float(memory.evidence(1.0)[column]) == pytest.approx(200)


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 15)), max_size=60),
    st.integers(1, 4),
)
def test_the_table_that_is_told_all_changes_is_like_the_rows(
    puts: list[tuple[int, int]], at_once: int
) -> None:
    """Whatever is put, and also what is put while a change is being written."""
    choice = vectors(16)
    index = PgvectorIndex("m", DIMENSIONS, 5)
    table = {digest(each) for each in vectors(3, seed=2)}
    strange = index.found(table)
    assert set(strange) == table
    table -= set(strange)
    for row, which in puts:
        change = index.lacks(at_once)
        held = index.vectors(np.arange(len(index)))
        if not (held == choice[which]).all(1).any():
            index.put(min(row, len(index)), choice[which])
        table |= {name for name, vector in change if vector is not None}
        table -= {name for name, vector in change if vector is None}
        index.written(change)
    if len(puts) % 2:
        index.compare_anew()
        table -= set(index.found(table))
    while change := index.lacks(at_once):
        table |= {name for name, vector in change if vector is not None}
        table -= {name for name, vector in change if vector is None}
        index.written(change)
    held = index.vectors(np.arange(len(index)))
    assert table == {digest(row) for row in held}
    newest = found(index, choice[0], 5)
    assert len(newest) == min(5, len(index))
