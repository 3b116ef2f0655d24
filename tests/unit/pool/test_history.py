"""Quantiles of the recent latencies, compared with a plain count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pool.history import LEAST_SAMPLES, Latencies

SECONDS = st.floats(0, 1000)


def filled(samples: list[float], size: int = 128) -> Latencies:
    latencies = Latencies(size)
    for sample in samples:
        latencies.add(sample)
    return latencies


def test_nothing_is_known_without_samples() -> None:
    latencies = Latencies()
    assert (latencies.mean, latencies.quantile(0.5), len(latencies)) == (None, None, 0)


def test_a_quantile_needs_twenty_samples_and_a_mean_needs_one() -> None:
    latencies = filled([1.0] * (LEAST_SAMPLES - 1))
    assert (latencies.mean, latencies.quantile(0.5)) == (1.0, None)
    latencies.add(1.0)
    assert latencies.quantile(0.5) == 1.0


@pytest.mark.parametrize(
    ("q", "expected"), [(0, 1), (0.01, 1), (0.07, 7), (0.5, 50), (0.95, 95), (0.951, 96), (1, 100)]
)
def test_the_quantile_of_a_hundred_is_the_sample_of_that_rank(q: float, expected: float) -> None:
    assert filled([float(n) for n in range(100, 0, -1)]).quantile(q) == expected


def test_a_new_sample_shows_at_once_and_the_oldest_is_forgotten() -> None:
    latencies = filled([1.0] * 20, size=20)
    assert latencies.quantile(1.0) == 1.0
    latencies.add(9.0)
    assert (latencies.quantile(1.0), latencies.mean, len(latencies)) == (9.0, 1.4, 20)
    for _ in range(20):
        latencies.add(2.0)
    assert (latencies.quantile(1.0), latencies.mean) == (2.0, 2.0)


class Counted(float):
    """A number that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: float) -> bool:
        Counted.comparisons += 1
        return float(self) < float(other)


def test_samples_are_sorted_only_when_asked_and_changed() -> None:
    Counted.comparisons = 0
    latencies = filled([Counted(n % 7) for n in range(50)])
    assert Counted.comparisons == 0
    latencies.quantile(0.5)
    once = Counted.comparisons
    assert once > 0
    assert [latencies.quantile(q) for q in (0.0, 1.0)] == [0, 6]
    assert Counted.comparisons == once


@pytest.mark.parametrize("q", [-0.1, 1.1, 95, float("nan")])
def test_a_quantile_that_is_no_share_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match=r"q=.*from 0 to 1"):
        Latencies().quantile(q)


def test_a_size_that_could_never_answer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"size=19.*20 samples or more"):
        Latencies(19)


@given(
    samples=st.lists(SECONDS, min_size=20, max_size=300),
    size=st.integers(20, 150),
    hundredths=st.integers(0, 100),
)
def test_a_quantile_is_the_least_sample_that_its_share_does_not_exceed(
    samples: list[float], size: int, hundredths: int
) -> None:
    kept = samples[-size:]
    value = filled(samples, size).quantile(hundredths / 100)
    assert value in kept
    at_most = sum(sample <= value for sample in kept)
    below = sum(sample < value for sample in kept)
    assert at_most * 100 >= hundredths * len(kept)
    assert below * 100 < hundredths * len(kept) or value == min(kept)


@given(st.lists(SECONDS, min_size=1, max_size=60), st.integers(20, 40))
def test_the_mean_is_that_of_the_samples_that_are_kept(samples: list[float], size: int) -> None:
    kept = samples[-size:]
    assert filled(samples, size).mean == pytest.approx(sum(kept) / len(kept))
