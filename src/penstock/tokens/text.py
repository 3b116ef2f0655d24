"""How many tokens a text has, without a tokenizer: a linear model over what a text is made of.

Tokenizers of the o200k kind cut a text into words, groups of up to three digits, runs of marks and
blanks, and split what they rarely saw. So the text is first written as its shape, one letter for
each character's class, and the runs of each class are counted: plain passes over bytes, no regular
expression, so the time grows with the length and with nothing else. `COSTS` and `SCRIPTS` say what
each find costs. They were fitted to true o200k counts of source code, documents, JSON, generated
ids and numbers, and texts in 500 languages; `bench/tokens.py` shows how well they do.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

COSTS: Mapping[str, float] = {
    "word": 0.80,
    "letters past 5": 0.06,
    "letters past 9": 0.24,
    "capitals before a word": 1.05,
    "words glued to others": 0.22,
    "four consonants in a row": 0.86,
    "rare letters": 0.37,
    "groups of digits": 1.01,
    "runs of marks": 1.04,
    "marks past the first": 0.46,
    "marks past the fourth": 0.66,
    "marks before a word": -0.65,
    "line ends": 1.33,
    "runs of blanks": 0.60,
    "unfamiliar words": 0.45,
}
"""Tokens for each find in a text. A mark before a word is often part of its token: `(self`."""

SCRIPTS: tuple[tuple[int, str, float], ...] = (
    (0x0080, "Latin-1 signs", 1.20),
    (0x00C0, "Latin-1 letters", 0.88),
    (0x0100, "Latin of Central Europe and Turkey", 1.19),
    (0x0180, "other Latin, accents", 1.32),
    (0x0370, "Greek", 0.30),
    (0x0400, "Cyrillic beyond Russian", 1.30),
    (0x0410, "Russian", 0.21),
    (0x0450, "Cyrillic beyond Russian", 1.30),
    (0x0460, "Cyrillic of Asia", 1.10),
    (0x0530, "Armenian", 0.21),
    (0x0590, "Hebrew", 0.35),
    (0x0600, "Arabic", 0.25),
    (0x066E, "Arabic beyond Arabic", 0.59),
    (0x0700, "Syriac to Mandaic", 2.00),
    (0x0900, "Devanagari, Bengali", 0.29),
    (0x0A00, "Gurmukhi", 0.53),
    (0x0A80, "Gujarati", 0.29),
    (0x0B00, "Odia", 1.53),
    (0x0B80, "Tamil", 0.29),
    (0x0C00, "Telugu, Kannada, Malayalam", 0.41),
    (0x0D80, "Sinhala", 0.53),
    (0x0E00, "Thai", 0.41),
    (0x0E80, "Lao, Tibetan", 1.53),
    (0x1000, "Burmese", 0.41),
    (0x10A0, "Georgian", 0.15),
    (0x1100, "Jamo", 2.91),
    (0x1200, "Ethiopic", 1.73),
    (0x13A0, "Cherokee to Tagbanwa", 2.91),
    (0x1780, "Khmer", 0.41),
    (0x1800, "Mongolian to Vedic", 2.91),
    (0x1E00, "Vietnamese", 0.30),
    (0x1F00, "ancient Greek", 2.00),
    (0x2000, "quotes and dashes", 1.30),
    (0x2070, "signs", 1.65),
    (0x2500, "boxes", 0.25),
    (0x25A0, "signs", 1.65),
    (0x2E80, "radicals", 2.91),
    (0x3000, "kana", 0.79),
    (0x3100, "rare ideographs", 2.91),
    (0x4E00, "ideographs", 0.82),
    (0xA000, "Yi to Meitei", 2.91),
    (0xAC00, "Hangul", 0.57),
    (0xD7B0, "surrogates, private use", 2.91),
    (0xF900, "ideographs, compatible", 0.82),
    (0xFB00, "presentation forms", 2.00),
    (0xFF00, "full-width forms", 0.79),
    (0xFFF0, "specials", 2.91),
    (0x10000, "ancient and rare", 4.00),
    (0x1F000, "emoji", 1.78),
    (0x20000, "rare ideographs", 4.00),
)
"""Where a script begins, and what each of its characters costs.

What is Latin has a word's cost already: its letters beyond ASCII cost this much more.
"""

_MARGIN = 1.25
_MORE_UNFAMILIAR = 0.7
"""What an unfamiliar word may cost above that, in the languages that a tokenizer never learnt."""
_SPARE = 3
_SLICE = 32_768
"""Characters that are looked at together, so that little memory is needed, and a part in another
language does not drown in the rest."""
_COMMON = (b" the ", b" of ", b" and ", b" to ", b" in ", b" is ", b" a ", b" for ")
_WORDS_A_COMMON_ONE = 6
"""English prose has a common word at least this often. Words beyond are taken for another
language's, which costs more; in code few words stand between blanks alone."""


def _shapes(*classes: tuple[Iterable[int], str]) -> bytes:
    table = bytearray(b"?" * 256)
    for members, name in classes:
        for member in members:
            table[member] = ord(name)
    return bytes(table)


_SHAPE = _shapes(
    (range(0x21, 0x7F), "."),
    (b"bcdfghlmnprsty", "c"),
    (b"aeiou", "e"),
    (b"jkqvwxz", "x"),
    (range(0x41, 0x5B), "U"),
    (range(0x30, 0x3A), "0"),
    (b" ", "s"),
    (b"\t\v\f", "t"),
    (b"\r\n", "n"),
    # The first bytes of Latin letters with accents in UTF-8; 0xE1 begins those of Vietnamese.
    (range(0xC3, 0xCE), "e"),
    (b"\xe1", "e"),
)
_PLAIN = bytes.maketrans(b"cex", b"aaa")
_CONSONANTS = bytes.maketrans(b"xU", b"cc")
_ASCII = bytes(range(0x80))
_CONTINUATION = bytes(range(0x80, 0xC0))


def _only(classes: bytes) -> bytes:
    """A table that leaves these classes and makes blanks, to split at, of all others."""
    return bytes(byte if byte in classes else 0x20 for byte in range(256))


_WORDS, _DIGITS, _MARKS, _LINES, _BLANKS = map(_only, (b"aU", b"0", b".", b"n", b"st"))
_RULERS = (b"-", b"=", b"*", b"#", b"_", b"~", b".", b"/", b"+")
_STARTS = [start for start, _, _ in SCRIPTS]


MOST_MEASURED = 1_000_000
"""Characters of all texts of a request that are measured whole when it is estimated."""
_PIECES, _PIECE = 64, 8_192
_SALT = os.urandom(16)


class Count(msgspec.Struct, frozen=True, gc=False):
    """What `measure` finds in a text, before it is made a number of tokens."""

    cost: float
    unfamiliar: int
    size: int
    """Bytes in UTF-8: a tokenizer that works on bytes makes no more tokens than that."""

    def __add__(self, other: object) -> Count:
        """Both texts together, each tokenized by itself."""
        if not isinstance(other, Count):
            return NotImplemented
        return Count(
            self.cost + other.cost, self.unfamiliar + other.unfamiliar, self.size + other.size
        )

    def tokens(self, factor: float = 1.0) -> int:
        """The likeliest number of tokens."""
        return min(self.size, math.ceil(self.cost * factor))

    def reserve(self, factor: float = 1.0) -> int:
        """A number that is hardly ever too low."""
        most = (self.cost * _MARGIN + self.unfamiliar * _MORE_UNFAMILIAR) * factor + _SPARE
        return min(self.size, math.ceil(most))


def measure(text: str) -> Count:
    """Count what the text is made of; takes any string, lone surrogates too."""
    cost, unfamiliar, size = 0.0, 0, 0
    for at in range(0, len(text), _SLICE):
        count = _measure(text[at : at + _SLICE])
        cost += count.cost
        unfamiliar += count.unfamiliar
        size += count.size
    return Count(cost, unfamiliar, size)


def sampled(texts: Sequence[str]) -> Count:
    """About what `measure` finds in all of the texts, in a time that has a limit.

    Of a very long text, pieces from all over it are measured. Where they stand differs from process
    to process, so no text can be made to look shorter than it is.
    """
    whole = "\n".join(texts)
    if len(whole) <= MOST_MEASURED:
        return measure(whole)
    stride = len(whole) // _PIECES
    spare = stride - _PIECE
    starts = [at * stride + hash((_SALT, at, len(whole))) % spare for at in range(_PIECES)]
    found = measure("".join([whole[start : start + _PIECE] for start in starts]))
    scale = len(whole) / (_PIECES * _PIECE)
    # Its bytes bound the tokens, so they are counted.
    size = len(whole) if whole.isascii() else len(whole.encode("utf-8", "surrogatepass"))
    return Count(found.cost * scale, math.ceil(found.unfamiliar * scale), size)


def _measure(text: str) -> Count:
    data = text.encode("utf-8", "surrogatepass")
    found = finds(data)
    cost = sum(COSTS[name] * number for name, number in found.items())
    if not data.isascii():
        foreign = data.translate(None, _ASCII).decode("utf-8", "surrogatepass")
        cost += sum(SCRIPTS[script(char)][2] * times for char, times in Counter(foreign).items())
    return Count(cost, found["unfamiliar words"], len(data))


def finds(data: bytes) -> dict[str, int]:
    """How often each key of `COSTS` is found in UTF-8 text."""
    shape = data.translate(_SHAPE, _CONTINUATION)
    plain = shape.translate(_PLAIN)
    # Each word and each run of marks takes the blank before it, and marks the line end after them.
    rest = plain.replace(b"sa", b"").replace(b"sU", b"").replace(b"s.", b".").replace(b".n", b".")
    words = _runs(plain.replace(b"aU", b"a U"), _WORDS)
    marks = _runs(plain, _MARKS)
    past = _past(marks, 4)
    spoken = plain.count(b"asa")
    common = sum(map(data.count, _COMMON))
    return {
        "word": words.total(),
        "letters past 5": _past(words, 5),
        "letters past 9": _past(words, 9),
        "capitals before a word": plain.count(b"UUa"),
        "words glued to others": plain.count(b"0U") + plain.count(b"0a") + plain.count(b"aU"),
        "four consonants in a row": shape.translate(_CONSONANTS).count(b"cccc"),
        "rare letters": shape.count(b"x"),
        "groups of digits": sum((n + 2) // 3 * m for n, m in _runs(plain, _DIGITS).items()),
        "runs of marks": marks.total(),
        "marks past the first": _past(marks, 1) - past,
        "marks past the fourth": max(0, past - _ruled(data)) if past else 0,
        "marks before a word": plain.count(b".a") + plain.count(b".U"),
        "line ends": _runs(rest, _LINES).total(),
        "runs of blanks": _runs(rest, _BLANKS).total(),
        "unfamiliar words": max(0, spoken - _WORDS_A_COMMON_ONE * common),
    }


def _ruled(data: bytes) -> int:
    """Marks that repeat one another, as in rulers and headlines; many of them are one token."""
    return sum(4 * data.count(mark * 4) for mark in _RULERS)


def script(char: str) -> int:
    """The row of `SCRIPTS` that a character beyond ASCII belongs to."""
    return bisect_right(_STARTS, ord(char)) - 1


def _runs(shape: bytes, table: bytes) -> Counter[int]:
    """How many runs of each length there are of the classes that the table leaves."""
    return Counter(map(len, shape.translate(table).split()))


def _past(runs: Counter[int], length: int) -> int:
    """How many members of the runs come after this many others."""
    return sum((n - length) * times for n, times in runs.items() if n > length)
