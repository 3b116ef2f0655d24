"""The joint of two parts: nothing that the caller has is repeated, and nothing is lost."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pool.continuation.join import (
    RestartDiffers,
    TextJoin,
    continue_instruction,
    last_words,
)

TEXT = (
    "The quick brown fox jumps over the lazy dog. It then sleeps near the river, and dreams of "
    "rabbits.\n\nIn the morning the fox wakes up:\n- it eats\n- it runs\n- it hides in the old "
    "forest for the rest of the day, which was long; 3.14 is not 3, and `f(x)` is code.\n\n"
    "```python\ndef f(x):\n    return x\n```\nDie Füchsin schläft länger. И ещё одно слово."
)
CHINESE = "从前有一只狐狸\uff0c它住在森林里。每天早上它都会去河边喝水\uff0c然后再回到家里睡觉。"


def joined(delivered: str, continuation: str, seed: int = 0) -> str:
    """All that the caller has read, if the continuation comes in pieces of random sizes."""
    join, random_ = TextJoin(delivered), random.Random(seed)
    parts, at = [delivered], 0
    while at < len(continuation):
        size = random_.randint(1, 9)
        parts.append(join.feed(continuation[at : at + size]))
        at += size
    return "".join([*parts, join.finish()])


def _sentence(text: str, cut: int) -> str:
    """From the beginning of the sentence in which it was cut."""
    ends = [match.end() for match in re.finditer(r"\. |\n", text[: cut - 1])]
    return text[max(ends, default=0) :]


WAYS: dict[str, Callable[[str, int], str]] = {
    "the last words": lambda text, cut: _from_last_words(text, cut),
    "a quotation": lambda text, cut: '"' + _from_last_words(text, cut),
    "dots": lambda text, cut: "..." + _from_last_words(text, cut),
    "an introduction": lambda text, cut: "Sure, here it is:\n\n" + _from_last_words(text, cut),
    "everything": lambda text, cut: text,
    "blanks and everything": lambda text, cut: "\n " + text,
}


def _from_last_words(text: str, cut: int) -> str:
    return last_words(text[:cut]) + text[len(text[:cut].rstrip()) :]


def _cuts(text: str) -> Iterator[int]:
    # Of less than three letters nobody can tell which word they begin.
    return (cut for cut in range(3, len(text)) if text[:cut].strip())


@pytest.mark.parametrize("text", [TEXT, CHINESE], ids=["words", "no spaces"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_repeated_is_removed_at_every_cut(way: str, text: str) -> None:
    for cut in _cuts(text):
        assert joined(text[:cut], WAYS[way](text, cut), cut) == text, cut


def test_a_repeated_sentence_is_removed() -> None:
    text = TEXT.partition("\n\n```")[0]
    for cut in _cuts(text):
        if text[cut - 1] != "\n":
            assert joined(text[:cut], _sentence(text, cut), cut) == text, cut


@pytest.mark.parametrize(
    ("delivered", "continuation", "whole"),
    [
        ("One. T", "Two.", "One. Two."),
        ("one two", " three", "one two three"),
        ("one two", "three", "one two three"),
        ("one two ", "three", "one two three"),
        ("one two ", " three", "one two three"),
        ("One.", "Two.", "One. Two."),
        ("One.\n", "\nTwo.", "One.\n\nTwo."),
        ("One.\n\n", "Two.", "One.\n\nTwo."),
        ("one two", ", three", "one two, three"),
        ("one bro", "one brown", "one brown"),
        ("这是", "一只狐狸", "这是一只狐狸"),
        ("I have a", "another one", "I have a another one"),
        ("one two three", "three four", "one two three four"),
        ("one two three", "", "one two three"),
        ("one two three", "one two", "one two three"),
        ("one two three", "  \n", "one two three"),
        ("a cat", "Note: a dog", "a cat Note: a dog"),
        ("a cat sat", "Here:\nOn the mat", "a cat sat Here:\nOn the mat"),
    ],
)
def test_the_joint(delivered: str, continuation: str, whole: str) -> None:
    for seed in range(20):
        assert joined(delivered, continuation, seed) == whole


@pytest.mark.parametrize("text", ["Yes. ", "Yes.\n", "ab:0 ", "one two three "])
def test_blanks_at_the_end_of_a_short_text_are_not_repeated(text: str) -> None:
    for seed in range(9):
        assert joined(text, text, seed) == text


def test_an_answer_that_is_written_again_with_changes_is_joined_at_the_last_words() -> None:
    changed = TEXT[:100] + "but " + TEXT[100:]
    for cut in range(190, 210):
        assert joined(TEXT[:cut], changed, cut) == TEXT, cut


@pytest.mark.parametrize(
    "other",
    [
        TEXT[:150],
        TEXT[:100] + "but no fox at all.",
        TEXT[:100] + "and a fox, " * 1_000,
    ],
)
def test_another_answer_from_the_beginning_is_refused(other: str) -> None:
    with pytest.raises(RestartDiffers):
        joined(TEXT[:200], other)


def test_last_words_that_occur_twice_do_not_show_the_place() -> None:
    delivered = "It rains. " * 9
    with pytest.raises(RestartDiffers):
        joined(delivered, delivered[:70] + "but " + delivered)


@pytest.mark.parametrize(
    ("delivered", "continuation", "whole"),
    [
        ("A river b", "A river b\n\nA river b\n\nA river b", "A river b"),
        ("A river b", "A river b\n\nA river brings water.", "A river brings water."),
        ("A river b", "A river brings\nwater.", "A river brings\nwater."),
        ("- a", "- a\n- b\n- c", "- a\n- b\n- c"),
        ("- a", "- a\n- ", "- a\n- "),
        ("one", "one\n\ntwo\n\none", "one\n\ntwo\n\none"),
    ],
)
def test_a_short_text_that_is_repeated_line_by_line_is_removed(
    delivered: str, continuation: str, whole: str
) -> None:
    for seed in range(20):
        assert joined(delivered, continuation, seed) == whole


@given(st.text(min_size=1).filter(str.strip), st.text(), st.integers(0, 99))
def test_what_was_delivered_stays_and_new_words_are_kept(
    delivered: str, continuation: str, seed: int
) -> None:
    new = f"{continuation} ~end~"
    whole = joined(delivered, new, seed)
    assert whole.startswith(delivered)
    assert whole.endswith("~end~")
    assert len(whole) <= len(delivered) + len(new) + 1


def test_the_instruction_names_whole_words_at_the_end() -> None:
    assert last_words("one two three ") == "one two three"
    said = "word " * 400 + "and the la"
    assert last_words(said) == "word word word word word and the la"
    assert continue_instruction(said).count("and the la") == 1
    assert len(last_words("x" * 10_000)) == 80


@pytest.mark.parametrize(
    "piece", [" ", "\n", "a", "ab ", "x\n"], ids=["blank", "line", "letter", "word", "lines"]
)
def test_the_work_is_linear(piece: str) -> None:
    """A million characters in pieces: quadratic work would not end within the limit of a test."""
    join = TextJoin(piece * 300_000 + "end" + " " * 300_000)
    with contextlib.suppress(RestartDiffers):
        for _ in range(300_000):
            assert piece.startswith(join.feed(piece)) or join.joined
        join.finish()
