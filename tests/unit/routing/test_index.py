"""What every index of the router promises, over all that are installed; in CI all are."""

import importlib.util
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.contract.errors import ConfigurationError
from penstock.routing.features import unit
from penstock.routing.index import EXACT_ROWS, ExactIndex, VectorIndex
from penstock.routing.index_file import load, save
from penstock.routing.index_graph import RuvectorIndex, UsearchIndex, index_for
from penstock.routing.neighbours import Neighbours
from tests.support.services import missing

DIMENSIONS = 24
Rows: TypeAlias = NDArray[np.float32]


class Make(Protocol):
    """Makes an index, empty or with rows."""

    def __call__(self, dimensions: int, rows: Rows | None = None, /) -> VectorIndex: ...


BACKENDS: dict[str, Make] = {
    "numpy": ExactIndex,
    "usearch": UsearchIndex,
    "ruvector": RuvectorIndex,
}


@pytest.fixture(params=sorted(BACKENDS))
def make(request: pytest.FixtureRequest) -> Make:
    name: str = request.param
    if importlib.util.find_spec(name) is None:
        missing(name)
    return BACKENDS[name]


def vectors(number: int, seed: int = 1) -> Rows:
    dice = np.random.default_rng(seed)
    return np.stack(
        [unit(row) for row in dice.standard_normal((number, DIMENSIONS)).astype(np.float32)]
    )


def filled(make: Make, rows: Rows) -> VectorIndex:
    index = make(DIMENSIONS)
    for number, row in enumerate(rows):
        index.put(number, row)
    return index


def recall(index: VectorIndex, rows: Rows, most: int = 20) -> float:
    """The share of the nearest rows that are found, by comparing everything."""
    shares: list[float] = []
    for asked in vectors(25, seed=2):
        found, similar = index.search(asked, most)
        assert len(set(found.tolist())) == most
        assert similar == pytest.approx(rows[found] @ asked, abs=1e-5)
        truth = np.argsort(-(rows @ asked))[:most]
        shares.append(len(set(found.tolist()) & set(truth.tolist())) / most)
    return float(np.mean(shares))


def test_the_nearest_rows_are_found_with_their_exact_similarities(make: Make) -> None:
    rows = vectors(600)
    index = filled(make, rows)
    assert len(index) == 600
    assert recall(index, rows) > 0.9
    assert (index.vectors(np.asarray([3, 5])) == rows[[3, 5]]).all()


def test_a_replaced_row_is_found_where_it_is_now_and_nowhere_else(make: Make) -> None:
    rows = vectors(300)
    index = filled(make, rows)
    for turn in range(5):
        rows = vectors(300, seed=10 + turn)
        for number, row in enumerate(rows):
            index.put(number, row)
    assert len(index) == 300
    assert recall(index, rows) > 0.9


def test_with_fewer_rows_than_asked_for_all_are_given(make: Make) -> None:
    rows = vectors(7)
    found, _ = filled(make, rows).search(rows[0], 20)
    assert sorted(found.tolist()) == list(range(7))


def test_rows_are_filled_one_after_the_other(make: Make) -> None:
    with pytest.raises(IndexError, match="row 2 of 0"):
        make(DIMENSIONS).put(2, vectors(1)[0])


def test_a_full_memory_stays_bounded_with_every_index(make: Make) -> None:
    memory = Neighbours(DIMENSIONS, 40, make)
    column = memory.add_target()
    for row in vectors(200):
        memory.add(row, column, 1.0, 1.0)
    assert len(memory) == 40
    assert float(memory.evidence(1.0)[column]) == pytest.approx(200)


def test_saved_rows_are_loaded_and_go_on_to_grow(make: Make, tmp_path: Path) -> None:
    rows, path = vectors(100), tmp_path / "rows"
    save(filled(make, rows), path, "letters")
    again = load(path, "letters", DIMENSIONS, ExactIndex)
    assert again is not None
    assert recall(again, rows) == 1
    again.put(3, rows[4])
    again.put(100, rows[0])
    assert len(again) == 101
    unchanged = load(path, "letters", DIMENSIONS, ExactIndex)
    assert unchanged is not None
    assert (unchanged.vectors(np.arange(100)) == rows).all()
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


def test_saved_rows_may_be_loaded_into_every_index(make: Make, tmp_path: Path) -> None:
    rows, path = vectors(300), tmp_path / "rows"
    save(filled(ExactIndex, rows), path, "letters")
    again = load(path, "letters", DIMENSIONS, make)
    assert again is not None
    assert recall(again, rows) > 0.9


def flipped(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def shortened(data: bytes) -> bytes:
    return data[:-4]


def emptied(data: bytes) -> bytes:
    return b""


def rubbish(data: bytes) -> bytes:
    return b"\xff" * len(data)


def of_another_format(data: bytes) -> bytes:
    return data.replace(b'"penstock_rows":1', b'"penstock_rows":2')


@pytest.mark.parametrize("spoil", [flipped, shortened, emptied, rubbish, of_another_format])
def test_a_spoilt_file_is_told_once_and_not_used(
    spoil: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows"
    save(filled(ExactIndex, vectors(30)), path, "letters")
    path.write_bytes(spoil(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert load(path, "letters", DIMENSIONS, ExactIndex) is None
    assert len(caplog.records) == 1
    assert str(path) in caplog.text


def test_rows_of_other_features_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    save(filled(ExactIndex, vectors(30)), path, "letters")
    assert load(path, "wordllama", DIMENSIONS, ExactIndex) is None
    assert load(path, "letters", DIMENSIONS + 1, ExactIndex) is None


def test_no_file_is_no_reason_to_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load(tmp_path / "none", "letters", DIMENSIONS, ExactIndex) is None
    assert not caplog.records


def test_small_memories_are_compared_exactly() -> None:
    assert index_for(EXACT_ROWS) is ExactIndex


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(ConfigurationError, match=r"penstock\[routing-index\]"):
        UsearchIndex(DIMENSIONS)
    assert index_for(EXACT_ROWS + 1) is ExactIndex
