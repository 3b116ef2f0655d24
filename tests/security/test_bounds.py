"""No text has more tokens than its upper bound: classes, mixtures, and a search for the worst."""

from __future__ import annotations

import string
import sys
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.tokens import family_of, upper_text
from penstock.tokens.upper import upper
from tests.support.tokenizers import tokenizers

GPT, OTHERS = family_of("gpt-6-luna"), family_of("llama-3.3-70b")
CLASSES: dict[str, st.SearchStrategy[str]] = {
    "lower": st.sampled_from(string.ascii_lowercase),
    "upper": st.sampled_from(string.ascii_uppercase),
    "digits": st.sampled_from(string.digits),
    "marks": st.sampled_from(string.punctuation),
    "blanks": st.sampled_from(" \n\t\r\v\f"),
    "control": st.sampled_from([chr(code) for code in (*range(32), 127)]),
    "Latin": st.characters(min_codepoint=0x80, max_codepoint=0x24F),
    "Greek and Cyrillic": st.characters(min_codepoint=0x370, max_codepoint=0x52F),
    "Hebrew to Tibetan": st.characters(min_codepoint=0x530, max_codepoint=0xFFF),
    "Georgian to Khmer": st.characters(min_codepoint=0x1000, max_codepoint=0x1FFF),
    "signs": st.characters(min_codepoint=0x2000, max_codepoint=0x2FFF),
    "East Asian": st.characters(min_codepoint=0x3000, max_codepoint=0xD7FF),
    "compatible": st.characters(min_codepoint=0xF900, max_codepoint=0xFFFF),
    "beyond": st.characters(min_codepoint=0x10000, max_codepoint=sys.maxunicode),
    "numbers": st.characters(categories=("Nd", "Nl", "No")),
    "endings": st.sampled_from(["'s", "'LL", "'re", "'default", "n't", "'\u017f"]),
    "torn": st.sampled_from(["\U0001f600\u0e07", "\u0123\u10f0", "\xe0\u0e30", "\u3000"]),
    "words": st.sampled_from([" the", "river", " Mühle", "fetchAll", " 水車", " мельница", "HTTP"]),
}
MIXED = st.lists(st.one_of(*CLASSES.values()), max_size=60).map("".join)


def violations(text: str) -> list[tuple[str, int, int]]:
    bound = upper(text)
    found: list[tuple[str, int, int]] = []
    for name, count in tokenizers().items():
        most = bound.o200k if name == "o200k" else bound.shared
        if (tokens := count(text)) > most:
            found.append((name, tokens, most))
    return found


@pytest.mark.parametrize("kind", CLASSES)
def test_no_class_of_characters_has_more_tokens_than_its_bound(kind: str) -> None:
    @settings(max_examples=40)
    @given(st.lists(CLASSES[kind], max_size=80).map("".join))
    def hold(text: str) -> None:
        assert violations(text) == []

    hold()


@settings(max_examples=400)
@given(MIXED)
@example(" 'LL\u3000é'default")
@example("\U0001f600\u0e07         11沙n\U0001f600\u0e07")
@example("²²12345")
@example("33\r\n     'LL\"\\")
@example("2 ")
@example("*\r/*\r/*")
@example("." * 56 + "\n\n. ")
@example(" \u00dft \u00dft ")
@example("-" * 18 + " " + "-" * 18 + " ")
def test_no_mixture_has_more_tokens_than_its_bound(text: str) -> None:
    assert violations(text) == []


@settings(max_examples=100)
@given(MIXED, MIXED)
def test_texts_side_by_side_have_no_more_tokens_than_their_bounds(one: str, other: str) -> None:
    first, second = upper(one), upper(other)
    joined = upper(f"{one}\n\0{other}")
    count = tokenizers()["o200k"]
    assert count(one) + count(other) <= joined.o200k
    assert (first + second).o200k >= count(one) + count(other)


@settings(max_examples=4)
@given(st.integers(0, 2**32))
def test_no_search_finds_a_text_above_its_bound(seed: int) -> None:
    dice = Random(seed)
    pieces = [
        *string.printable,
        *("'s", "'LL", " the", "ing", "river", "River", "HTTP", "é", "ß", "й", "水", "\u0e07", "²"),
        *("\U0001f600", "\ufdfa", "\u200d", "\u0301", "\xa0", "----", "    ", '":', "\r\n", "();"),
    ]

    def worth(text: str) -> float:
        bound = upper(text)
        counts = tokenizers()
        return max(
            count(text) / max(1, bound.o200k if name == "o200k" else bound.shared)
            for name, count in counts.items()
        )

    best: list[str] = []
    height = 0.0
    for _ in range(300):
        trial = [*best]
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(trial) + 1)
            match dice.randrange(3):
                case 0:
                    trial.insert(at, dice.choice(pieces))
                case 1:
                    trial[at : at + 1] = [dice.choice(pieces)]
                case _:
                    trial[at : at + 2] = []
        if (reached := worth("".join(trial))) >= height and len(trial) < 40:
            best, height = trial, reached
        assert reached <= 1.0, "".join(trial)


def test_random_marks_have_a_bound_above_their_tokens_and_not_far() -> None:
    marks = "".join(Random(7).choices(string.punctuation, k=30_000))
    for name, count in tokenizers().items():
        family = GPT if name == "o200k" else OTHERS
        assert 1 <= upper_text(marks, family) / count(marks) < 2.5, name


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=300))
def test_a_bound_is_at_most_the_bytes(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    assert upper(text).o200k <= size
    # Compatibility characters may grow, and SentencePiece adds a blank.
    assert upper(text).shared <= 12 * size + 1


def test_a_model_whose_name_says_nothing_is_bounded_by_the_bytes() -> None:
    words = " PURPOSE RIVER jj" * 100
    for name in ("default", "my-llama-2-mix", "acme/model-1", ""):
        assert upper_text(words, family_of(name)) == len(words) + 1, name
    assert upper_text(words, family_of("llama-2-70b-chat")) < len(words) * 0.6


def test_pairs_and_words_of_the_list_hold_for_a_sentencepiece_tokenizer() -> None:
    count = tokenizers()["llama-2"]
    family = family_of("llama-2-70b-chat")
    for part in (" PURPOSE", " jj", "jj ", "Zw", " xqzj", "fetchAll", " Mühle", "\u0e07", "\t\t"):
        for times in (1, 10, 300):
            text = part * times
            assert count(text) <= upper_text(text, family), (part, times)


def test_what_grows_before_it_is_tokenized_counts_as_what_it_becomes() -> None:
    assert upper("\ufdfa").shared >= 18
