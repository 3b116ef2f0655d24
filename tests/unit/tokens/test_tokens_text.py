"""Estimates of texts, against true counts that were recorded with the real tokenizer."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.tokens import estimate_text, family_of, reserve_text, upper_text
from penstock.tokens.text import COSTS, SCRIPTS, Count, finds, measure, script


class Sample(msgspec.Struct):
    kind: str
    tokens: int
    text: str


class Recorded(msgspec.Struct):
    made: str
    """How the counts were made."""
    samples: list[Sample]


SAMPLES = msgspec.json.decode(
    Path(__file__).with_name("samples.json").read_bytes(), type=Recorded
).samples
LOOSE = {"Vietnamese": (0.8, 1.5), "Georgian": (0.7, 1.25)}
"""Where many words share few letters with what the model learnt from."""
FAR = {
    **dict.fromkeys(("German", "French", "Italian", "Turkish", "Swahili", "Finnish"), 2.1),
    **dict.fromkeys(("Spanish", "Polish", "Ukrainian"), 1.9),
    **dict.fromkeys(("Vietnamese", "Indonesian", "Russian"), 2.3),
    **dict.fromkeys(("Hebrew", "Bengali", "Persian", "Thai"), 3.0),
    **dict.fromkeys(("Arabic", "Hindi", "Georgian"), 3.5),
    "Tamil": 4.4,
}
"""Languages of which the list has few words."""
GPT = family_of("gpt-6-luna")
CLAUDE = family_of("claude-sonnet-5-5")
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=300)
"""Lone surrogates, NULs and unassigned characters too."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.kind)
def test_an_estimate_is_near_the_true_count(sample: Sample) -> None:
    low, high = LOOSE.get(sample.kind, (0.8, 1.25))
    assert low < estimate_text(sample.text) / sample.tokens < high


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.kind)
def test_a_reservation_is_above_the_true_count_and_not_far(sample: Sample) -> None:
    assert 1 <= reserve_text(sample.text) / sample.tokens < 2.3


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.kind)
def test_an_upper_bound_is_above_the_true_count_and_not_far(sample: Sample) -> None:
    most = FAR.get(sample.kind, 1.7)
    assert 1 <= upper_text(sample.text, GPT) / sample.tokens < most


@pytest.mark.parametrize("kind", ["English", "Python", "JavaScript", "SQL", "HTML", "Markdown"])
def test_a_bound_of_all_tokenizers_is_near_for_english_and_code(kind: str) -> None:
    (sample,) = (each for each in SAMPLES if each.kind == kind)
    assert 1 <= upper_text(sample.text, family_of("llama-3.3-70b")) / sample.tokens < 1.7


def test_the_mean_error_over_all_kinds_is_small() -> None:
    errors = [abs(estimate_text(each.text) / each.tokens - 1) for each in SAMPLES]
    assert sum(errors) / len(errors) < 0.1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("Hi", 1),
        (" ", 1),
        ("\n", 1),
        ("\0", 0),
        ("\ud800", 3),
        ("\U0010ffff", 4),
    ],
)
def test_the_smallest_texts(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens


def test_claude_has_more_tokens_for_the_same_text() -> None:
    text = SAMPLES[0].text * 10
    assert estimate_text(text, CLAUDE) / estimate_text(text) == pytest.approx(1.3, rel=0.01)
    assert reserve_text(text, CLAUDE) / reserve_text(text) == pytest.approx(1.3, rel=0.02)


@given(ANY_TEXT)
def test_any_text_has_an_estimate_between_nothing_and_its_bytes(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    for family in (CLAUDE, GPT):
        assert 0 <= estimate_text(text, family) <= reserve_text(text, family) <= size


@given(ANY_TEXT, ANY_TEXT)
def test_two_texts_in_one_cost_about_what_they_cost_alone(first: str, second: str) -> None:
    together, apart = measure(first + second), measure(first) + measure(second)
    # At the seam a word may grow together, take a blank, or lose its mark; no more than that.
    assert abs(together.cost - apart.cost) < 20
    assert together.cost >= max(measure(first).cost, measure(second).cost) - 20


@given(ANY_TEXT.filter(str.strip), st.integers(2, 30))
def test_a_text_said_often_costs_as_often(text: str, times: int) -> None:
    once, often = measure(f"{text}\n"), measure(f"{text}\n" * times)
    assert often.cost == pytest.approx(once.cost * times, abs=20 + 2 * times)
    assert often.size == once.size * times


def test_no_find_takes_away_more_than_its_neighbours_add() -> None:
    (lowered,) = (name for name, cost in COSTS.items() if cost < 0)
    assert lowered == "marks before a word"
    assert COSTS["runs of marks"] + COSTS[lowered] > 0
    assert all(cost > 0 for _, _, cost in SCRIPTS)


def test_scripts_are_in_order_and_every_character_has_one() -> None:
    assert all(first[0] < second[0] for first, second in pairwise(SCRIPTS))
    for start, name, _ in SCRIPTS:
        assert SCRIPTS[script(chr(start))][1] == name
    assert SCRIPTS[script("\U0010ffff")] == SCRIPTS[-1]


def test_the_finds_are_those_that_have_a_cost() -> None:
    assert finds(b"").keys() == COSTS.keys()
    found = finds(b"def fetchAll(self):\n    return 12345 # XMLish strengths")
    assert found["groups of digits"] == 2
    assert found["words glued to others"] == 1
    assert found["capitals before a word"] == 1
    assert found["four consonants in a row"] == 2
    assert found["marks before a word"] == 1


def test_counts_of_a_text_add_up() -> None:
    assert Count(1.5, 2, 10) + Count(2.0, 1, 5) == Count(3.5, 3, 15)
    assert Count(9.2, 0, 4).tokens() == 4


HOSTILE = {
    "letters": "a",
    "capitals": "A",
    "camels": "aB",
    "blanks": " ",
    "tabs": "\t",
    "line ends": "\n",
    "marks": "(",
    "digits": "7",
    "consonants": "xkcd",
    "surrogates": "\udc80",
    "right to left": "\u202eש",
    "NULs": "\0",
    "combining": "é\u0301",
    "everything": "aB 1\t.\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_time_grows_with_the_length_and_with_nothing_else(kind: str) -> None:
    def seconds(length: int) -> float:
        text = (HOSTILE[kind] * length)[:length]
        best = float("inf")
        for _ in range(3):
            started = time.thread_time()
            measure(text)
            best = min(best, time.thread_time() - started)
        return best

    # Ten times the text: quadratic work would take a hundred times as long.
    assert seconds(1_000_000) / seconds(100_000) < 30


def test_ten_megabytes_are_no_problem() -> None:
    text = "The wheel stands still. " * 420_000
    assert estimate_text(text) / len(text) == pytest.approx(0.21, abs=0.05)
