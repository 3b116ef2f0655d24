"""Stop sequences are found in text that comes in pieces, wherever it is split."""

import itertools
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.stop_sequences import StopScanner

TEXTS = st.text("abc ", max_size=40)
STOPS = st.lists(st.text("abc ", min_size=1, max_size=6), min_size=1, max_size=4)


def cut(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """What comes before the sequence that ends first, the longest of several, character wise."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            hit = max(found, key=len)
            return text[: end - len(hit)], hit
    return text, None


def pieces_of(text: str, borders: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in borders)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


@given(TEXTS, STOPS, st.lists(st.integers(0, 100)))
def test_a_text_is_cut_at_the_same_place_however_it_is_split(
    text: str, stops: list[str], borders: list[int]
) -> None:
    scanner = StopScanner(stops)
    said = ""
    for piece in pieces_of(text, borders):
        said += scanner.push(piece)
        assert cut(text, stops)[0].startswith(said)
    said += "" if scanner.hit else scanner.rest()
    assert (said, scanner.hit) == cut(text, stops)


@given(TEXTS, TEXTS, STOPS, st.lists(st.integers(0, 100)))
def test_text_that_the_reader_has_counts_and_is_not_repeated(
    before: str, text: str, stops: list[str], borders: list[int]
) -> None:
    if cut(before, stops)[1] is not None:
        return
    scanner = StopScanner(stops)
    scanner.follow(before)
    said = "".join(map(scanner.push, pieces_of(text, borders)))
    said += "" if scanner.hit else scanner.rest()
    whole, hit = cut(before + text, stops)
    assert scanner.hit == hit
    # What the reader has cannot be taken back.
    assert said == whole[len(before) :]


def test_nothing_is_held_back_longer_than_needed() -> None:
    scanner = StopScanner(["END", "EX"])
    assert [scanner.push(piece) for piece in ("one E", "N", "d, ", "E", "Y")] == [
        "one ",
        "",
        "ENd, ",
        "",
        "EY",
    ]
    assert (scanner.push("E"), scanner.held, scanner.rest()) == ("", "E", "E")
    # After `rest` another text begins.
    assert (scanner.push("ND"), scanner.hit) == ("ND", None)


@pytest.mark.parametrize("stops", [[], [""]])
def test_without_sequences_text_passes_as_it_is(stops: list[str]) -> None:
    scanner = StopScanner(stops)
    assert (scanner.push("any"), scanner.held, scanner.rest()) == ("any", "", "")


def test_the_time_does_not_grow_with_the_square_of_a_sequence() -> None:
    def seconds(length: int) -> float:
        scanner = StopScanner(["a" * length + "b"])
        began = time.process_time()
        for _ in range(length):
            scanner.push("a")
        scanner.push("c")
        return time.process_time() - began

    seconds(1000)
    assert seconds(80_000) < 40 * max(seconds(8000), 0.001)
