"""What was made fast, against the obvious way to compute it."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.routing.index.exact import Found
from penstock.routing.index.sketch import SketchIndex
from penstock.routing.learning.features import MEANING, WORDS, FeatureMaker
from penstock.routing.learning.neighbours import NEAREST, SOFTNESS, STRANGE, Neighbours

MAKER = FeatureMaker()
Vector = NDArray[np.float32]


def words_of(text: str) -> list[float]:
    """The view of the words: each gram spelt out, hashed and counted by itself."""
    words: list[str] = re.findall(r"[a-z]+|\d|[^\sa-z\d]", text.lower())
    grams = [*words, *(f"{one} {two}" for one, two in pairwise(words))]
    out = [0.0] * WORDS
    for gram, times in Counter(crc32(g.encode("utf-8", "replace")) for g in grams).items():
        mixed = (gram * 0x9E3779B97F4A7C15 % 2**64) >> 32
        out[(mixed >> 1) % WORDS] += (1 + math.log(times)) * (1 if mixed & 1 else -1)
    length = math.sqrt(sum(each * each for each in out))
    return [each / length for each in out] if length else out


@given(
    st.text(st.characters(codec=None), max_size=200) | st.text("ab N7.é日\ud800 \n", max_size=60)
)
def test_words_and_pairs_are_hashed_as_if_spelt_out(text: str) -> None:
    found = MAKER.vector(text)[MEANING : MEANING + WORDS]
    assert found.tolist() == pytest.approx(words_of(text), abs=1e-6)


@given(st.lists(st.integers(-9, 9), max_size=30), st.integers(1, 40))
def test_the_best_are_those_that_sorting_finds(similar: list[int], number: int) -> None:
    values = np.asarray(similar, np.float32)
    rows = np.arange(len(similar)) + 100
    best = Found(rows, values, values[:, None]).best(number)
    assert sorted(best.similar.tolist()) == sorted(similar)[-number:]
    for row, value, vector in zip(best.rows, best.similar, best.vectors, strict=True):
        assert similar[row - 100] == value == vector[0]


def directions(number: int, size: int) -> list[Vector]:
    dice = np.random.default_rng(4)
    made = dice.standard_normal((number, size)) + 2 * dice.standard_normal((1, size))
    return [(each / np.linalg.norm(each)).astype(np.float32) for each in made]


@pytest.mark.parametrize("rows", [5, NEAREST, NEAREST + 1, 1_100])
@pytest.mark.parametrize("columns", [[0, 1, 2, 3], [2], [3, 0], [1, 3, 2, 0]])
def test_what_is_near_adds_up_as_if_counted_one_by_one(rows: int, columns: list[int]) -> None:
    index = SketchIndex(120)
    memory = Neighbours(120, 2_000, lambda _: index)
    for _ in range(4):
        memory.add_target()
    seen: list[dict[int, tuple[float, float]]] = []
    for number, each in enumerate(directions(rows, 120)):
        column, weight, score = number % 4, 1 + number % 3, number % 7 / 6
        memory.add(each, column, score, weight)
        seen.append({column: (weight, weight * score)})
    asked, scale = directions(3, 120)[2] * np.float32(0.9) + directions(4, 120)[3], 2.5
    near = memory.near(asked, scale, columns)
    assert near is not None

    found = index.search(asked, NEAREST)
    pairs = [(float(s), int(r)) for s, r in zip(found.similar, found.rows, strict=True)]
    nearest = sorted(pairs)[-NEAREST:]
    most = max(STRANGE, nearest[-1][0])
    evidence, score = np.zeros(4), np.zeros(4)
    sums = np.zeros((4, 120))
    for similar, row in nearest:
        counts = math.exp((similar - most) / SOFTNESS) / scale
        for column, (weight, scored) in seen[row].items():
            evidence[column] += counts * weight
            score[column] += counts * scored
            sums[column] += counts * weight * index.vectors(row)
    assert near.evidence == pytest.approx(evidence[columns], rel=1e-4)
    assert near.score == pytest.approx(score[columns], rel=1e-4, abs=1e-6)
    assert near.sums(slice(0, 120)) == pytest.approx(sums[columns], rel=1e-3, abs=1e-4)
