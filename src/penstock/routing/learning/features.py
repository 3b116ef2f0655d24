"""What the router knows of a prompt: numbers of a fixed size, and never the text itself.

Three views in one vector, each of about length one, so that none drowns the others:

- what it is about: the vector of an `Embedder`, by default wordllama's static table;
- which words it uses: words and pairs of words, hashed with signs into a fixed number of buckets;
- what it looks like: sizes, digits, symbols, lists, questions; on a fixed scale.

Everything is computed from this one text: no vocabulary, no statistics of earlier prompts. So a
vector stays comparable for ever, may be stored instead of the prompt, and is the same everywhere.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from penstock.contract.errors import PenstockError

Vector: TypeAlias = NDArray[np.float32]

logger = logging.getLogger(__name__)

MOST_CHARACTERS = 4_000
"""Of a longer text the first three quarters and the last quarter of so much are looked at."""
MOST_MEANING = 1_000
"""The same for what a text is about, which its tokenizer makes the dearest to know."""
MEANING = 256
"""Dimensions of the view of what a text is about; a longer embedding is folded into them."""
WORDS = 256
"""Buckets of the view of which words it uses."""

_WORD = re.compile(r"[a-z]+|\d|[^\sa-z\d]")
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\(?[A-Za-z0-9]{1,2}[.)])[ \t]", re.MULTILINE)
_NEGATION = re.compile(r"\b(?:not|no|never|except|least|cannot|n't)\b")
_CODE = re.compile(r"```|[{};]\s*$|\b(?:def|class|function|return|import|SELECT)\b", re.MULTILINE)

# Centre and scale of each number of `_looks`: what prompts of all kinds usually have, rounded.
_SCALES: tuple[tuple[float, float], ...] = (
    (6.0, 0.8),  # characters, log
    (4.2, 0.7),  # words, log
    (5.8, 0.9),  # characters a word
    (0.04, 0.06),  # share of digits
    (0.045, 0.035),  # share of capitals
    (0.06, 0.05),  # share of other signs
    (2.0, 0.5),  # lines, log
    (1.9, 0.6),  # items of lists, log
    (0.6, 0.5),  # question marks
    (0.5, 0.9),  # signs of formulas, log
    (1.5, 1.5),  # digits, log
    (3.2, 1.1),  # mean length of the lines after the first, log
    (3.5, 1.3),  # longest of them, log
    (5.0, 0.9),  # length of the first line, log
    (0.75, 0.17),  # share of distinct words
    (0.15, 0.5),  # underscores, log
    (0.25, 0.6),  # dollar signs, log
    (1.0, 1.0),  # commas, log
    (0.2, 0.4),  # negations, log
    (1.7, 1.0),  # long words, log
    (0.1, 0.4),  # marks of code, log
    (0.01, 0.05),  # share of what is not ASCII
)
LOOKS = len(_SCALES)
_CENTRES, _WIDTHS = np.asarray(_SCALES).T
SIZE = MEANING + WORDS + LOOKS
SUMMARISED = 64
"""Of the meaning, the linear model takes the first so many dimensions: they hold the most."""
SUMMARY = slice(MEANING - SUMMARISED, SIZE)
"""Where they stand, and with them the other two views, which it takes whole."""


class Embedder(Protocol):
    """Turns texts into vectors in which what means the same lies near."""

    @property
    def name(self) -> str:
        """What distinguishes its vectors from those of others: they do not compare."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float] | Vector]:
        """A vector for each text; raises a PenstockError when it cannot."""
        ...


class FeatureMaker:
    """Makes the vector of a text; what the embedder needs is loaded with the first."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        """Without an embedder, or when it fails, hashed letters stand in for the meaning."""
        self._embedder = embedder
        self._warned = False
        self._classes: NDArray[np.intp] | None = None

    @property
    def name(self) -> str:
        """What distinguishes these vectors from others: a memory of others must be made anew."""
        return features_name("letters" if self._embedder is None else self._embedder.name)

    def vector(self, text: str, embedding: Sequence[float] | Vector | None = None) -> Vector:
        """The three views of a text, each of about length one, side by side.

        An `embedding` of the text that is there already is not asked for; if it is empty, nothing
        is known of what the text is about.
        """
        text = shortened(text, MOST_CHARACTERS)
        lower = text.lower()
        out = np.empty(SIZE, np.float32)
        about = self._meaning(text) if embedding is None else _about(embedding)
        out[: MEANING - SUMMARISED] = about[SUMMARISED:]
        out[MEANING - SUMMARISED : MEANING] = about[:SUMMARISED]
        out[MEANING : MEANING + WORDS] = _hashed(_grams(lower), WORDS)
        out[MEANING + WORDS :] = self._looks(text, lower)
        return out

    def _meaning(self, text: str) -> Vector:
        if self._embedder is not None:
            try:
                found = self._embedder.embed([shortened(text, MOST_MEANING)])[0]
            except PenstockError as error:
                # Falls back for good: vectors of two kinds would not compare.
                self._embedder = None
                if not self._warned:
                    self._warned = True
                    logger.warning("routing looks at letters instead of meaning: %s", error)
            else:
                return _about(found)
        return _hashed(_letters(text), MEANING)

    def _looks(self, text: str, lower: str) -> Vector:
        counts = self._counts(text)
        size, words = max(1, len(text)), text.split()
        first, _, rest = text.partition("\n")
        lines = [len(line) for line in rest.split("\n")] if rest else [0]
        number = max(1, len(words))
        log = math.log1p
        seen = (
            log(size),
            log(number),
            min(size / number, 20.0),
            counts[_DIGIT] / size,
            counts[_CAPITAL] / size,
            (size - counts[_LETTER] - counts[_DIGIT] - counts[_CAPITAL] - counts[_BLANK]) / size,
            log(len(lines)),
            log(len(_ITEM.findall(text))),
            min(text.count("?"), 3),
            log(counts[_FORMULA]),
            log(counts[_DIGIT]),
            log(sum(lines) / len(lines)),
            log(max(lines)),
            log(len(first)),
            len(set(words)) / number,
            log(text.count("_")),
            log(text.count("$")),
            log(text.count(",")),
            log(len(_NEGATION.findall(lower))),
            log(sum(len(word) > 9 for word in words)),
            log(len(_CODE.findall(text))),
            counts[_FOREIGN] / size,
        )
        placed = (np.asarray(seen) - _CENTRES) / _WIDTHS
        return (np.clip(placed, -3, 3) / np.sqrt(LOOKS)).astype(np.float32)

    def _counts(self, text: str) -> Sequence[int]:
        if self._classes is None:
            self._classes = np.asarray([_class_of(chr(code)) for code in range(256)])
        codes = np.frombuffer(text.encode("utf-16-le", "replace"), np.uint16)
        known = self._classes[np.minimum(codes, 255)]
        counts: list[int] = np.bincount(known, minlength=_FOREIGN + 1).tolist()
        counts[_FOREIGN] = int((codes > 127).sum())
        return counts


def features_name(embedder: str) -> str:
    """What vectors are called whose meaning comes from this embedder."""
    return f"1:{embedder}:{MEANING}+{WORDS}+{LOOKS}"


def shortened(text: str, most: int) -> str:
    """The part of a long text that is looked at: its beginning and its end."""
    if len(text) <= most:
        return text
    return text[: most - most // 4] + text[-(most // 4) :]


def unit(vector: Vector) -> Vector:
    """The vector at length one; one without a direction stays as it is."""
    norm = float(np.sqrt(vector @ vector))
    return vector / np.float32(norm) if norm > 0 else vector


def folded(vector: Vector, size: int) -> Vector:
    """The vector in so many dimensions: longer ones are added up, shorter ones padded."""
    if len(vector) == size:
        return vector
    out = np.zeros(size, np.float32)
    for number, start in enumerate(range(0, len(vector), size)):
        part = vector[start : start + size]
        # Alternating signs, a different pattern in each part, keep inner products on average.
        signs = np.where((np.arange(len(part)) * (2 * number + 1) // 2 + number) % 2, -1.0, 1.0)
        out[: len(part)] += part * signs.astype(np.float32) if number else part
    return out


def _about(embedding: Sequence[float] | Vector) -> Vector:
    return unit(folded(np.asarray(embedding, np.float32), MEANING))


_DIGIT, _CAPITAL, _LETTER, _BLANK, _FORMULA, _OTHER, _FOREIGN = range(7)


def _class_of(character: str) -> int:
    if character.isdigit():
        return _DIGIT
    if character.isupper():
        return _CAPITAL
    if character.isalpha():
        return _LETTER
    if character.isspace():
        return _BLANK
    return _FORMULA if character in "=+*/^<>\\" else _OTHER


def _grams(lower: str) -> list[int]:
    """Codes of the words, and of the pairs of words."""
    words = [word.encode("utf-8", "replace") for word in _WORD.findall(lower)]
    alone = list(map(crc32, words))
    # The code of a longer text goes on from that of its beginning.
    return alone + [crc32(b" " + two, one) for one, two in zip(alone, words[1:], strict=False)]


def _letters(text: str) -> list[int]:
    plain = " ".join(_WORD.findall(text.lower()))
    pieces = (plain[start : start + 4] for start in range(len(plain) - 3))
    return [crc32(piece.encode("utf-8", "replace")) for piece in pieces]


def _hashed(grams: Sequence[int], size: int) -> Vector:
    """Counts of the grams' codes, dampened, in buckets with signs, at length one."""
    counts = Counter(grams)
    if not counts:
        return np.zeros(size, np.float32)
    codes = np.fromiter(counts, np.uint64, len(counts))
    weights = 1 + np.log(np.fromiter(counts.values(), np.float64, len(counts)))
    # CRC is linear: multiplied and shifted, its bits tell buckets and signs apart.
    mixed = (codes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    signs = np.where(mixed & np.uint64(1), 1.0, -1.0)
    buckets = ((mixed >> np.uint64(1)) % np.uint64(size)).astype(np.intp)
    return unit(np.bincount(buckets, weights * signs, size).astype(np.float32))
