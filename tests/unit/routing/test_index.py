"""What every index of the router promises, over all that are installed; in CI all are."""

import copy
import importlib.util
import sys
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.contract.errors import ConfigurationError
from penstock.routing.index.exact import MOST_COMPARED, ExactIndex, VectorIndex
from penstock.routing.index.graph import RuvectorIndex, UsearchIndex, index_for, warned_once
from penstock.routing.index.sketch import SketchIndex
from penstock.routing.learning.features import SIZE, unit
from penstock.routing.learning.neighbours import Neighbours
from tests.support.services import missing_package

DIMENSIONS = 24
Rows: TypeAlias = NDArray[np.float32]


Make: TypeAlias = Callable[[int], VectorIndex]
BACKENDS: dict[str, tuple[str, Make]] = {
    "exact": ("numpy", ExactIndex),
    "sketch": ("numpy", SketchIndex),
    "usearch": ("usearch", UsearchIndex),
    "ruvector": ("ruvector", RuvectorIndex),
}


@pytest.fixture(params=sorted(BACKENDS))
def make(request: pytest.FixtureRequest) -> Make:
    package, made = BACKENDS[request.param]
    if importlib.util.find_spec(package) is None:
        missing_package(package)
    return made


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
        found, similar, kept = index.search(asked, most).best(most)
        assert len(set(found.tolist())) == most
        assert (kept == rows[found]).all()
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


def test_a_copy_finds_the_same_and_has_rows_of_its_own(make: Make) -> None:
    rows, changed = vectors(300), vectors(300, seed=3)
    index = filled(make, rows)
    other = copy.deepcopy(index)
    assert recall(other, rows) > 0.9
    for number, row in enumerate(changed):
        other.put(number, row)
    assert recall(other, changed) > 0.9
    assert recall(index, rows) > 0.9


def test_with_fewer_rows_than_asked_for_all_are_given(make: Make) -> None:
    rows = vectors(7)
    found = filled(make, rows).search(rows[0], 20).rows
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


def prompts(number: int, seed: int = 1) -> Rows:
    """Like the features of prompts: of some subjects, and in many more dimensions than subjects."""
    dice = np.random.default_rng(seed)
    subjects = np.random.default_rng(0).standard_normal((40, SIZE))
    some = dice.dirichlet(np.full(40, 0.1), number) @ subjects
    rows = (some + 0.3 * dice.standard_normal((number, SIZE))).astype(np.float32)
    return np.stack([unit(row) for row in rows])


def missed(index: VectorIndex, rows: Rows, most: int) -> float:
    """The share of the nearest rows that comparing everything finds beside those of the index."""
    shares: list[float] = []
    for asked in prompts(20, seed=2):
        found, similar, kept = index.search(asked, most).best(most)
        assert len(set(found.tolist())) == most
        assert (kept == rows[found]).all()
        assert similar == pytest.approx(rows[found] @ asked, abs=1e-5)
        truth = np.argsort(-(rows @ asked))[:most]
        shares.append(len(set(truth.tolist()) - set(found.tolist())) / most)
    return float(np.mean(shares))


def test_sketches_lead_to_nearly_all_of_the_nearest_rows() -> None:
    rows = prompts(3_000)
    index = SketchIndex(SIZE)
    for number, row in enumerate(rows):
        index.put(number, row)
        if number in (999, 1_023, 1_024, 2_047):
            # Where sketches begin, and where they are made again.
            assert missed(index, rows[: number + 1], 200) < 0.05
    assert missed(index, rows, 200) < 0.05
    assert missed(index, rows, 2) < 0.05


def test_sketches_keep_up_with_rows_that_are_of_another_kind_than_before() -> None:
    index, rows = SketchIndex(SIZE), prompts(1_100)
    for number, row in enumerate(rows):
        index.put(number, row)
    dice = np.random.default_rng(3)
    turn = np.linalg.qr(dice.standard_normal((SIZE, SIZE)))[0].astype(np.float32)
    for _ in range(5):
        rows = prompts(1_100, seed=int(dice.integers(1_000, 9_000))) @ turn
        for number, row in enumerate(rows):
            index.put(number, row)
    shares: list[float] = []
    for asked in prompts(20, seed=2) @ turn:
        found = index.search(asked, 100).best(100).rows
        truth = np.argsort(-(rows @ asked))[:100]
        shares.append(len(set(found.tolist()) & set(truth.tolist())) / 100)
    assert float(np.mean(shares)) > 0.95


def test_few_rows_that_are_replaced_again_and_again_need_no_sketches() -> None:
    index, rows = SketchIndex(SIZE), prompts(50)
    for number in range(5_000):
        index.put(number % 50, rows[number % 50])
    assert missed(index, rows, 20) == 0


def test_rows_that_are_all_alike_are_found_too() -> None:
    index, row = SketchIndex(SIZE), prompts(1)[0]
    for number in range(1_500):
        index.put(number, row)
    found, similar, _ = index.search(row, 200).best(200)
    assert len(set(found.tolist())) == 200
    assert similar == pytest.approx(np.ones(200), abs=1e-5)


def test_of_small_memories_all_rows_are_compared() -> None:
    assert index_for(MOST_COMPARED) is SketchIndex
    assert index_for(MOST_COMPARED, "exact") is ExactIndex


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("usearch", "usearch.index", "routing-index"), ("ruvector", "ruvector", "routing-ruvector")],
)
def test_without_its_package_an_index_is_the_exact_one_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    module: str,
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    warned_once.cache_clear()
    assert index_for(100, name) is index_for(100, name) is ExactIndex
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert f'index = "{name}"' in warning.getMessage()
    assert f"pip install 'penstock[{extra}]'" in warning.getMessage()
    with pytest.raises(ConfigurationError, match=f"the package {name} is missing"):
        BACKENDS[name][1](DIMENSIONS)


def test_auto_takes_sketches_where_usearch_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    assert index_for(MOST_COMPARED + 1) is SketchIndex
    assert caplog.records == []
