"""An upper bound of the tokens of a text, for any text.

A byte-level tokenizer makes no more tokens than the text has bytes in UTF-8; that is the bound of
what is nowhere in `vocabulary.json`. The tighter bounds rest on how byte pair encoding ends: no
neighbouring tokens are left that together are a token. The text is cut into runs of letters,
digits, marks and blanks, and each run bounds the tokens that begin in it:

- A run of `n` letters. If `k` tokens begin in it, the lengths of all neighbouring tokens add up to
  at most `2n - 2`, and two neighbours are longer than any sequence of letters that is known to be a
  token. With `p` pairs and `t` triples of letters that are no token, `3(k - 1) - p <= 2n - 2` and
  `4(k - 1) - 2p - t <= 2n - 2`. The first holds for any tokenizer of this kind, the second for
  those that merge whatever makes a token, as tiktoken does.
- A word of the list has at most the tokens of the list: counted with every tokenizer, after a
  blank, at a start, after each mark and before the endings that tokenizers keep with a word.
- Digits: one token for three in o200k, one for each in others.
- Marks and blanks: a token a byte, or fewer for the runs of the list.
- A character beyond ASCII: its bytes; one token for those of the list in o200k.

`docs/decisions/0019-token-bounds.md` names the tokenizers and says how the list is made.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import filterfalse, pairwise
from pathlib import Path

import msgspec

_SHARED = 32
"""Two counts in one integer: o200k's in the lower bits, that of all tokenizers above."""
_LOW = (1 << _SHARED) - 1
_SLICE = 1 << 20
"""Characters that are looked at together, so that little memory is needed."""
_SEAM = 64
"""What a cut between two slices may hide: no word or run of the list is longer."""
_LONGEST = 1 << 22
"""Characters beyond which the bytes have to do: no model reads as much, and work stays bounded."""
_MOST_STRANGE = 1 << 19
"""Work on words that are not listed, in about the time of a letter; the rest counts by bytes."""
_WORK_A_WORD = 24
_LONG_WORD = 64
_REMEMBERED = 8192
_START = b"\x01"
"""Stands at the start of a word for the blank before it."""


class Upper(msgspec.Struct, frozen=True, gc=False):
    """The most tokens that a text can have."""

    o200k: int
    """OpenAI's tokenizer since GPT-4o."""
    shared: int
    """All measured tokenizers."""
    others: int
    """Any other tokenizer that has a token for each byte."""

    def __add__(self, other: object) -> Upper:
        """Both texts together, each tokenized by itself."""
        if not isinstance(other, Upper):
            return NotImplemented
        return Upper(
            self.o200k + other.o200k, self.shared + other.shared, self.others + other.others
        )


class _Listed(msgspec.Struct):
    spaced: dict[str, str]
    """Words after a blank, by their two counts of one digit each."""
    bare: dict[str, str]
    pairs: str
    shared_pairs: str
    triples: str
    characters: str
    marks: dict[str, str]
    runs: list[tuple[str, str, str, str]]
    """A start, a mark or blank that is repeated after it, and both counts for each length."""


class _Vocabulary(msgspec.Struct, gc=False):
    words: dict[bytes, int]
    runs: dict[bytes, int]
    pairs: frozenset[tuple[str, ...]]
    shared_pairs: frozenset[tuple[str, ...]]
    triples: frozenset[tuple[str, ...]]
    plain: frozenset[str]
    """ASCII, and the characters that are one token in o200k."""


def _table(letters: str, digits: str, marks: str, blank: str, beyond: str) -> bytes:
    """What becomes of each byte; an empty string leaves it as it is."""
    table = bytearray(range(256))
    for byte in range(256):
        char = chr(byte)
        if byte >= 0x80:
            kind = beyond
        elif char.isalpha():
            kind = letters
        elif char.isdigit():
            kind = digits
        else:
            kind = blank if char in " \t\n\r\v\f" else marks
        if kind:
            table[byte] = ord(kind)
    return bytes(table)


_WORDS = bytearray(_table("", "\n", "\n", "\n", ""))
_WORDS[0x20] = 0x20
_MARKS = _table("\n", "\n", "", "\n", "\n")
_DIGITS = _table("\n", "", "\n", "\n", "\n")
_SHAPE = bytearray(_table("a", "0", ".", "n", "x"))
_SHAPE[0x20] = 0x20
_BLANKS = re.compile(rb"[ \t\n\r\v\f]{2,}|[\t\n\r\v\f]")
_TORN = (
    *(b"\xa3\xe1\x83", b"\x80\xe0\xb8", b"\x82\xe0\xb0", b"\xa0\xe1\x83"),
    *(b"\xa1\xd5", b"\x9a\xe1\x9e", b"\x99\xe0\xa7\x8d\xe0\xa6", b"\x81\xef\xbd"),
)
"""Tokens of o200k that begin within one character and end within another: each tears both apart."""
_CONTRACTED = re.compile(
    rb"'(?<=[A-Za-z\x80-\xff]')(?:[stmdSTMD]|[rRvV][eE]|[lL][lL])[A-Za-z\x80-\xff]+"
)
"""What a tokenizer cuts in two: `it'default` into `it'd` and `efault`."""
_CAMEL = re.compile("(?<=[a-z])(?=[A-Z])")


def upper(text: str) -> Upper:
    """The most tokens that this text has for any tokenizer that `vocabulary.json` was made from."""
    if len(text) > _LONGEST:
        return upper_of_bytes(text)
    found = _upper(text[:_SLICE])
    for at in range(_SLICE, len(text), _SLICE):
        found += _upper(text[at : at + _SLICE]) + Upper(_SEAM, _SEAM, 0)
    return found


def upper_of_bytes(text: str) -> Upper:
    """The same by the bytes alone, which takes next to no time."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    most = size + _grown(text) + 1
    return Upper(size, most, most)


def _upper(text: str) -> Upper:
    data = text.encode("utf-8", "surrogatepass")
    listed = _vocabulary()
    shape = data.translate(_SHAPE)
    total = _letters(data, listed)
    runs = Counter(data.translate(_MARKS).split())
    # The blank before marks may be a token of its own.
    total += sum(listed.runs.get(run, _both(len(run) + 1)) * n for run, n in runs.items())
    blanks = Counter(_BLANKS.findall(data))
    total += sum(listed.runs.get(run, _both(len(run))) * n for run, n in blanks.items())
    for length, times in Counter(map(len, data.translate(_DIGITS).split())).items():
        total += ((length + 2) // 3 + (length << _SHARED)) * times
    # A blank before digits or at the end, and digits of other scripts that shift groups of three.
    total += _both(shape.count(b" 0") + shape.count(b"x0") + 1)
    total += _both(sum(map(len, _CONTRACTED.findall(data))))
    # After marks, a line end and a slash go with them, and the marks behind the slash do not.
    total += _both(data.count(b"\n/") + data.count(b"\r/"))
    if not data.isascii():
        total += sum(map(data.count, _TORN))
    # SentencePiece begins with a blank of its own.
    total += 1 << _SHARED
    most = len(data) + _grown(text) + 1
    return Upper(min(total & _LOW, len(data)), min(total >> _SHARED, most), most)


def _grown(text: str) -> int:
    """How many bytes a text gains when its compatibility characters are replaced.

    Some tokenizers do that first (NFKC): one character of Arabic becomes eighteen.
    """
    if text.isascii():
        return 0
    replaced = unicodedata.normalize("NFKC", text).encode("utf-8", "surrogatepass")
    return max(0, len(replaced) - len(text.encode("utf-8", "surrogatepass")))


def _letters(data: bytes, listed: _Vocabulary) -> int:
    words = Counter(data.translate(_WORDS).replace(b" ", b" " + _START).split())
    total = work = 0
    for word, times in words.items():
        count = listed.words.get(word)
        if count is None:
            work += len(word) + _WORK_A_WORD
            if work > _MOST_STRANGE:
                count = _by_bytes(word)
            else:
                count = _remembered(word) if len(word) <= _LONG_WORD else _strange(word)
        total += count * times
    return total


def _by_bytes(word: bytes) -> int:
    # What a tokenizer makes of compatibility characters, at its worst: 18 characters of one.
    return _both(len(word)) + (0 if word.isascii() else 11 * len(word) << _SHARED)


def _strange(word: bytes) -> int:
    """Both counts of a word that is not in the list."""
    listed = _vocabulary()
    text = word.decode("utf-8", "surrogatepass")
    if word[:1] == _START:
        text = " " + text[1:]
    length = len(text)
    pairs = length - 1 - sum(map(listed.shared_pairs.__contains__, pairwise(text)))
    shared = min(length, (2 * length + 1 + pairs) // 3) + len(word) - length + _grown(text)
    parts = [text] if length > _LONG_WORD or text[1:].islower() else _CAMEL.split(text)
    if len(parts) == 1:
        return _o200k(text) + (shared << _SHARED)
    o200k = 0
    for part in parts:
        count = listed.words.get(part.encode("utf-8", "surrogatepass").replace(b" ", _START))
        o200k += _o200k(part) if count is None else count & _LOW
    return o200k + (shared << _SHARED)


_remembered = lru_cache(_REMEMBERED)(_strange)


def _o200k(text: str) -> int:
    listed = _vocabulary()
    length = len(text)
    pairs = length - 1 - sum(map(listed.pairs.__contains__, pairwise(text)))
    three = zip(text, text[1:], text[2:], strict=False)
    triples = length - 2 - sum(map(listed.triples.__contains__, three))
    found = min(length, (2 * length + 2 + max(0, triples) + 2 * pairs) // 4)
    if text.isascii():
        return found
    rare = "".join(filterfalse(listed.plain.__contains__, text))
    return found + len(rare.encode("utf-8", "surrogatepass")) - len(rare)


def _both(count: int) -> int:
    return count + (count << _SHARED)


def _packed(counts: str) -> int:
    return int(counts[0]) + (int(counts[1]) << _SHARED)


def _sequences(joined: str) -> frozenset[tuple[str, ...]]:
    return frozenset(map(tuple, joined.split("|")))


@cache
def _vocabulary() -> _Vocabulary:
    """Read when the first text is measured, which takes some hundredths of a second."""
    data = Path(__file__).with_name("vocabulary.json").read_bytes()
    listed = msgspec.json.decode(data, type=_Listed)
    words = {_START: 0}
    for start, groups in ((b"", listed.bare), (_START, listed.spaced)):
        for counts, found in groups.items():
            packed = _packed(counts)
            words.update((start + word, packed) for word in found.encode().split())
    runs: dict[bytes, int] = {}
    for counts, found in listed.marks.items():
        runs.update(dict.fromkeys(found.encode().split(), _packed(counts)))
    for start, repeated, first, second in listed.runs:
        runs.update(_repeated(start, repeated, first.split(), second.split()))
    plain = frozenset(listed.characters).union(map(chr, range(128)))
    pairs, shared, triples = map(_sequences, (listed.pairs, listed.shared_pairs, listed.triples))
    return _Vocabulary(words, runs, pairs, shared, triples, plain)


def _repeated(
    start: str, repeated: str, first: Iterable[str], second: Iterable[str]
) -> dict[bytes, int]:
    counts = zip(first, second, strict=True)
    return {
        (start + repeated * times).encode(): int(o200k) + (int(shared) << _SHARED)
        for times, (o200k, shared) in enumerate(counts, 1)
    }
