"""The parts that the learning router is made of, each by itself."""

import logging
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import Target
from penstock.routing.cost_model import Line, Mean, Traffic
from penstock.routing.index.exact import ExactIndex
from penstock.routing.learning.drift import Drift
from penstock.routing.learning.features import MOST_CHARACTERS, SIZE, SUMMARY, FeatureMaker, unit
from penstock.routing.learning.linear import (
    COMMON_RIDGE,
    RIDGE,
    Common,
    Heads,
    LinearHead,
    summarised,
)
from penstock.routing.learning.model import Learner, LearnerSettings
from penstock.routing.learning.neighbours import SHRINK, SHRINK_COMMON, SHRINK_GIVEN, Neighbours
from penstock.routing.learning.prompt_features import Reader
from penstock.routing.learning.trust import ENOUGH, Evidence, gained
from penstock.routing.outcomes.outcome import Logged, Outcome, Quality, Source

ONE, TWO = Target("p", "one"), Target("p", "two")


class Broken:
    """An embedder whose files are gone."""

    @property
    def name(self) -> str:
        return "broken"

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise ConfigurationError("the table is not installed")


class Short:
    """An embedder of fewer dimensions than there are places for."""

    @property
    def name(self) -> str:
        return "short"

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[float(len(text)), 1.0] for text in texts]


def random_vector(seed: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return unit(np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32))


def test_importing_penstock_does_not_import_numpy() -> None:
    code = "import penstock, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "text", ["", " ", "?", "a", "日本語の質問", "\ud800", "x" * 100_000, "\n\n"]
)
def test_every_text_has_finite_features_of_one_size(text: str) -> None:
    vector = FeatureMaker().vector(text)
    assert vector.shape == (SIZE,)
    assert np.isfinite(vector).all()


def test_features_of_a_text_are_always_the_same_and_like_texts_are_nearer() -> None:
    maker = FeatureMaker()
    sky, sea, code = (
        unit(maker.vector(text))
        for text in ("Why is the sky blue?", "Why is the sea blue?", "def f(x):\n  return x[1:]")
    )
    assert (sky == unit(FeatureMaker().vector("Why is the sky blue?"))).all()
    assert sky @ sea > sky @ code


def test_of_a_long_text_the_end_is_looked_at_too() -> None:
    maker = FeatureMaker()
    long = "word " * MOST_CHARACTERS
    assert (maker.vector(long) != maker.vector(long + "12 + 34 = ?")).any()


def test_a_missing_embedder_is_told_once_and_letters_stand_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    maker = FeatureMaker(Broken())
    with caplog.at_level(logging.WARNING):
        first, second = maker.vector("one text"), maker.vector("one text")
    assert (first == FeatureMaker().vector("one text")).all()
    assert (first == second).all()
    assert [record.getMessage() for record in caplog.records] == [
        "routing looks at letters instead of meaning: the table is not installed"
    ]
    assert maker.name == FeatureMaker().name != FeatureMaker(Short()).name


def test_embeddings_of_any_length_fit() -> None:
    assert np.isfinite(FeatureMaker(Short()).vector("text")).all()


def test_the_exact_index_finds_what_comparing_everything_finds() -> None:
    index, rows = ExactIndex(SIZE), [random_vector(seed) for seed in range(200)]
    for number, row in enumerate(rows):
        index.put(number, row)
    asked = random_vector(999)
    found, similar, _ = index.search(asked, 10)
    truth = sorted(range(200), key=lambda row: -float(rows[row] @ asked))[:10]
    assert set(found.tolist()) == set(truth)
    assert float(similar.max()) == pytest.approx(float(rows[truth[0]] @ asked))
    with pytest.raises(IndexError, match="row 300 of 200"):
        index.put(300, asked)


def test_the_memory_of_prompts_is_bounded_and_loses_no_evidence() -> None:
    memory = Neighbours(SIZE, capacity=50)
    column = memory.add_target()
    alike = random_vector(999)
    for seed in range(200):
        vector = unit((alike + 0.001 * random_vector(seed)).astype(np.float32))
        memory.add(vector, column, 1.0, 1.0)
    assert len(memory) == 50
    near = memory.near(alike, 1.0, [column])
    assert near is not None
    assert near.evidence.tolist() == pytest.approx([200], rel=0.001)
    assert float(memory.evidence(1.0)[column]) == pytest.approx(200)


def test_outcomes_of_one_prompt_share_a_row() -> None:
    memory = Neighbours(SIZE)
    columns = [memory.add_target(), memory.add_target()]
    for column in columns:
        memory.add(random_vector(1), column, 1.0, 1.0)
    assert len(memory) == 1


@pytest.mark.parametrize("column", [0, 1, 2, 3])
def test_neighbours_correct_more_by_outcomes_that_nobody_chose(column: int) -> None:
    memory, here = Neighbours(SIZE), random_vector(1)
    given, chosen, mixed = (memory.add_target() for _ in range(3))
    for number in range(40):
        memory.add(here, given, 1.0, 1.0, given=True)
        memory.add(here, chosen, 1.0, 1.0)
        memory.add(here, mixed, 1.0, 1.0, given=number % 4 == 0)
    # Neither a new version nor age makes any difference to where the evidence is from.
    memory.inherit(memory.add_target(), given, 0.5)
    memory.rescale(0.25, given)
    memory.add(here, given, 1.0, 1.0, given=True)
    near = memory.near(here, 1.0, [column])
    assert near is not None
    shares = {given: 1.0, chosen: 0.0, mixed: 0.25}
    shrink = SHRINK + shares.get(column, 1.0) * (SHRINK_GIVEN - SHRINK)
    seen = {given: 11, chosen: 40, mixed: 40}.get(column, 20)
    surprise = 0.5 * seen
    left = shrink / (seen + shrink)
    common = surprise * left / (seen * left + SHRINK_COMMON)
    expected = np.asarray([0.5 * seen], np.float32)
    assert near.correction(expected).tolist() == pytest.approx(
        [surprise / (seen + shrink) + common * left], rel=1e-3
    )


def test_what_a_file_tells_counts_for_more_than_what_was_chosen() -> None:
    here = random_vector(1)
    found: list[float] = []
    for given in (True, False):
        learner = Learner()
        told = Outcome(
            target=ONE, features=here, prompt_tokens=9, quality=Quality(1.0), given=given
        )
        for _ in range(40):
            learner.learn(told)
        found.append(learner.estimates(here, 9, [ONE])[0].quality)
    assert 0.5 < found[1] < found[0] < 1.0


def test_the_linear_model_is_ridge_regression_over_all_it_has_seen() -> None:
    dice = np.random.default_rng(4)
    rows = np.stack([summarised(random_vector(seed)) for seed in range(60)]).astype(np.float64)
    scores = dice.random(60)
    head = LinearHead(0.5)
    for row, score in zip(rows, scores, strict=True):
        head.add(row.astype(np.float32), float(score), 1.0)
    exact = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(rows.shape[1]), rows.T @ (scores - 0.5))
    assert head.own == pytest.approx(exact, abs=1e-4)
    head.rescale(0.25)
    faded = np.linalg.solve(
        rows.T @ rows / 4 + RIDGE * np.eye(rows.shape[1]), rows.T @ (scores - 0.5) / 4
    )
    assert head.own == pytest.approx(faded, abs=1e-4)


@pytest.mark.parametrize("seen", [0, 300])
def test_a_new_version_has_a_prior_of_its_own_and_a_share_of_what_was_seen(seen: int) -> None:
    parent, same = LinearHead(0.4), LinearHead(0.7)
    for number in range(seen):
        features, score = summarised(random_vector(number)), float(number % 3 > 0)
        parent.add(features, score, 1.0)
        same.add(features, score, 0.5)
    child = parent.child(0.5, 0.7)
    for head in (child, same):
        head.lean(np.zeros(len(head.own), np.float32))
    assert child.prior == 0.7
    assert child.weights == pytest.approx(same.weights, abs=1e-4)


@pytest.mark.parametrize("older_first", [True, False])
def test_of_a_new_version_the_catalogue_counts_wherever_its_predecessor_stands(
    older_first: bool,
) -> None:
    older, newer = Target("p", "claude-3-haiku"), Target("p", "claude-haiku-5-5")
    learner = Learner(LearnerSettings(priors={older: 0.42, newer: 0.7}))
    targets = [older, newer] if older_first else [newer, older]
    found = learner.estimates(random_vector(1), 9, targets)
    known = {target: each.quality for target, each in zip(targets, found, strict=True)}
    assert known == {older: pytest.approx(0.42), newer: pytest.approx(0.7)}


def test_of_a_sum_is_expected_what_is_expected_of_its_parts_together() -> None:
    dice = np.random.default_rng(6)
    rows = np.stack([random_vector(seed) for seed in range(20)])
    counts = dice.random((20, 3)).astype(np.float32)
    heads = Heads.none()
    for number, prior in enumerate([0.2, 0.5, 0.9]):
        head = LinearHead(prior)
        head.weights = dice.standard_normal(len(summarised(rows[0]))).astype(np.float32)
        heads = heads.met()
        heads.put(number, head)
    heads = heads.of([2, 0, 1])
    together = heads.means_of_sums(counts.T @ rows[:, SUMMARY], counts.sum(0))
    each = np.stack([heads.means(row) for row in rows])
    assert together == pytest.approx((counts * each).sum(0), rel=1e-4)


def test_weights_in_common_are_those_of_one_regression_in_two_levels() -> None:
    dice, size = np.random.default_rng(5), len(summarised(random_vector(1)))
    rows = np.stack([summarised(random_vector(seed)) for seed in range(90)])
    scores, common, heads = dice.random(90), Common(), [LinearHead(0.5) for _ in range(3)]
    # All levels at once: one block of weights for what is common, one for each target's own.
    wide = np.zeros((90, 4 * size))
    for number, (row, score) in enumerate(zip(rows, scores, strict=True)):
        target = number % 3 if number > 30 else 0
        heads[target].add(row, float(score), 1.0, common)
        wide[number, 1:size] = row[1:]
        wide[number, (1 + target) * size : (2 + target) * size] = row
    ridge = np.concatenate([np.full(size, COMMON_RIDGE), np.full(3 * size, RIDGE)])
    exact = np.linalg.solve(wide.T @ wide + np.diag(ridge), wide.T @ (scores - 0.5))
    assert common.weights == pytest.approx(exact[:size], abs=1e-4)
    for target, head in enumerate(heads):
        head.lean(common.weights)
        own = exact[(1 + target) * size : (2 + target) * size]
        assert head.weights == pytest.approx(exact[:size] + own, abs=1e-4)
    again = Common()
    again.rebuild(heads)
    assert again.weights == pytest.approx(common.weights, abs=1e-4)


def test_old_evidence_fades_by_decisions() -> None:
    learner = Learner(LearnerSettings(half_life=100))
    for number in range(50):
        learner.learn(
            Outcome(
                target=ONE,
                features=random_vector(number),
                prompt_tokens=9,
                quality=Quality(1.0),
            )
        )
    fresh = learner.evidence(ONE)
    learner.tick += 100
    assert learner.evidence(ONE) == pytest.approx(fresh / 2)


def test_a_failure_of_the_provider_says_nothing_about_quality() -> None:
    learner = Learner()
    before = learner.estimates(random_vector(1), 9, [ONE])[0].quality
    learner.learn(Outcome(target=ONE, features=random_vector(1), prompt_tokens=9, latency_ms=9.0))
    after = learner.estimates(random_vector(1), 9, [ONE])[0]
    assert (after.quality, after.expected.latency_ms) == (before, 9.0)


def test_labels_count_by_their_source() -> None:
    found: list[float] = []
    for source in (Source.FEEDBACK, Source.JUDGE, Source.RETRY):
        learner = Learner()
        vector = random_vector(1)
        for _ in range(5):
            learner.learn(
                Outcome(target=ONE, features=vector, prompt_tokens=9, quality=Quality(1.0, source))
            )
        found.append(learner.estimates(vector, 9, [ONE])[0].quality)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 3


def test_costs_grow_with_the_prompt_and_are_never_negative() -> None:
    line = Line()
    assert line.at(10) is None
    for size in range(100, 1000, 10):
        line.add(size, 5 + size / 100)
    small, large = line.at(100), line.at(1000)
    assert small == pytest.approx(6, abs=1)
    assert large == pytest.approx(15, abs=1)
    falling = Line()
    for size in range(10, 500, 10):
        falling.add(size, 500 - size)
    assert falling.at(100_000) == 0


def test_means_follow_what_is_recent() -> None:
    mean, dice = Mean(), random.Random(2)
    for _ in range(2000):
        mean.add(dice.uniform(0, 100))
    assert mean.value == pytest.approx(50, abs=10)
    for _ in range(2000):
        mean.add(1000.0)
    assert mean.value == pytest.approx(1000, rel=0.01)


def test_of_a_target_without_answers_nothing_is_expected() -> None:
    expected = Traffic().expected(100)
    assert (expected.cost_usd, expected.latency_ms, expected.output_tokens) == (None, None, None)


def test_drift_is_noticed_soon_and_chance_is_not() -> None:
    dice, drift = random.Random(8), Drift()
    assert not any(drift.add(float(dice.random() < 0.8) - 0.8) for _ in range(5000))
    fallen = [drift.add(float(dice.random() < 0.2) - 0.8) for _ in range(40)]
    assert any(fallen)


def logged(learned: Target, propensity: float) -> Logged:
    return Logged(1, propensity, learned, ONE, (0.5, 0.7, 0.5), (0.0, 0.1, 0.0))


def test_the_gain_is_what_was_expected_corrected_by_what_happened() -> None:
    assert gained(logged(ONE, 0.9), ONE, 1.0) == 0
    assert gained(logged(TWO, 0.5), Target("p", "third"), 1.0) == pytest.approx(0.1)
    assert gained(logged(TWO, 0.5), TWO, 1.0) == pytest.approx(0.1 + 0.5 / 0.5)
    assert gained(logged(TWO, 0.5), ONE, 1.0) == pytest.approx(0.1 - 0.5 / 0.5)


def outcome(target: Target, score: float) -> Outcome:
    return Outcome(
        target=target,
        features=random_vector(1),
        prompt_tokens=9,
        quality=Quality(score),
        logged=logged(TWO, 0.5),
    )


def test_learning_takes_over_with_evidence_and_gives_back_when_it_fails() -> None:
    evidence = Evidence()
    for _ in range(ENOUGH - 1):
        evidence.add(outcome(TWO, 1.0))
    assert not evidence.in_force
    evidence.add(outcome(TWO, 1.0))
    assert evidence.in_force
    for _ in range(20 * ENOUGH):
        evidence.add(outcome(TWO, 0.0))
    assert not evidence.in_force
    assert evidence.verdict().gain < 0


async def test_a_reader_remembers_no_more_of_long_texts_than_it_looks_at() -> None:
    maker = FeatureMaker()
    reader = Reader(maker)
    text = f"{'a' * 1_000_000} the end"
    assert (await reader.features(text) == maker.vector(text)).all()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20):
            await reader.features(f"{number} {'a' * 1_000_000}")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000
