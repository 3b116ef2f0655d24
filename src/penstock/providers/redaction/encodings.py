"""Text reduced to its ASCII letters and digits, so that a secret is found in any encoding.

Escapes of JSON, HTML and URLs, however often they are applied, are decoded when they stand for a
letter or digit and left out when they stand for a mark. What remains is compared without regard to
case. Two rules keep ordinary text apart: letters may be separated only where the secret has a mark,
or by spaces and line breaks, as base64 is often wrapped.
"""

from __future__ import annotations

import base64
import html
import json
import re
import string
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, quote_plus

_HEAD = 8
"""Characters at the beginning or end of a secret that are searched for."""
_LEAST = 6
"""Letters and digits that these must have."""
_PIECE = re.compile(
    r"""
      (?P<plain> [a-z0-9]+ )
    | \\{1,64} (?: u(?P<u>[0-9a-f]{4}) | x(?P<x>[0-9a-f]{2}) )
    | % (?:25){0,8} (?P<percent>[0-9a-f]{2})
    | & (?:amp;){0,8}
      (?: \#(?P<decimal>[0-9]{1,6}) | \#x(?P<hexadecimal>[0-9a-f]{1,5}) | [a-z]{2,8} ) ;
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_MARKS = re.compile(r"[^A-Za-z0-9]")
_BLANK = re.compile(r"(?: \s | \\{1,64}[nrt]? | %0[ad] | %20 )*", re.VERBOSE | re.IGNORECASE)
_CUT_AFTER = re.compile(r"\W{0,2} (?: … | \.{2,} | \*{2,} | \Z )", re.VERBOSE)
_CUT_BEFORE = re.compile(r"(?: … | \.{2} | \*{2} ) \W{0,2} \Z", re.VERBOSE)


class Letters:
    """The letters and digits of a text, in lower case, and where they stand in it."""

    def __init__(self, text: str) -> None:
        """Escapes may be nested eight times."""
        self._text = text
        self._firsts: list[int] = []
        self._spans: list[tuple[int, int]] = []
        pieces: list[str] = []
        count = 0
        for found in _PIECE.finditer(text):
            piece = _decoded(found)
            if piece:
                self._firsts.append(count)
                self._spans.append(found.span())
                pieces.append(piece)
                count += len(piece)
        self._firsts.append(count)
        self.text = "".join(pieces)

    def find_all(self, part: str) -> Iterator[int]:
        """Every place of these letters; overlapping ones too."""
        at = self.text.find(part)
        while at >= 0:
            yield at
            at = self.text.find(part, at + 1)

    def common_after(self, at: int, form: Form) -> int:
        """How many letters from here on are those of the form from its beginning on."""
        count = 0
        for count, (mine, wanted) in enumerate(
            zip(self.text[at : at + len(form.text)], form.text, strict=False)
        ):
            if mine != wanted or (count and not self._may_follow(at + count, form, count)):
                return count
        return min(len(form.text), len(self.text) - at)

    def common_before(self, end: int, form: Form) -> int:
        """How many letters up to here are those of the form up to its end."""
        most = min(end, len(form.text))
        for count in range(most):
            mine, wanted = end - count - 1, len(form.text) - count - 1
            if self.text[mine] != form.text[wanted]:
                return count
            if count and not self._may_follow(mine + 1, form, wanted + 1):
                return count
        return most

    def gaps(self) -> frozenset[int]:
        """The places before which something was left out."""
        return frozenset(
            first
            for first, before, span in zip(
                self._firsts[1:], self._spans, self._spans[1:], strict=False
            )
            if before[1] != span[0]
        )

    def span(self, at: int, count: int, tail: str) -> tuple[int, int]:
        """Where so many letters stand in the text, with the marks that are to follow them."""
        end = self._place(at + count - 1)[1]
        for mark in tail:
            end += next((len(each) for each in _ways(mark) if self._text.startswith(each, end)), 0)
        return self._place(at)[0], end

    def is_cut_after(self, at: int) -> bool:
        """Whether the text ends before this letter, or says that it left something out."""
        end = self._place(at - 1)[1]
        return _CUT_AFTER.match(self._text, end) is not None

    def is_cut_before(self, at: int) -> bool:
        """The same for the beginning."""
        start = self._place(at)[0]
        before = self._text[max(start - 4, 0) : start]
        return start == 0 or _CUT_BEFORE.search(before) is not None

    def _may_follow(self, at: int, form: Form, count: int) -> bool:
        """Whether nothing stands between this letter and the one before it that may not."""
        piece = bisect_right(self._firsts, at) - 1
        if self._firsts[piece] != at or count in form.gaps:
            return True
        return (
            _BLANK.fullmatch(self._text, self._spans[piece - 1][1], self._spans[piece][0])
            is not None
        )

    def _place(self, at: int) -> tuple[int, int]:
        """Where one letter stands in the text."""
        piece = bisect_right(self._firsts, at) - 1
        start, end = self._spans[piece]
        if self._firsts[piece + 1] - self._firsts[piece] == 1:
            return start, end
        place = start + at - self._firsts[piece]
        return place, place + 1


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a secret, as letters and digits."""

    text: str
    gaps: frozenset[int]
    """The letters before which a mark stands."""
    head: str
    """The beginning that is searched for."""
    end: str
    tail: str = ""
    """The marks behind the last letter."""


@lru_cache(64)
def spellings_of(words: Sequence[str]) -> tuple[str, ...]:
    """The usual ways to write these secrets, character by character, the longest first."""
    found: set[str] = set()
    for word in words:
        found |= {word, *_ways(word), quote_plus(word)}
        found.add(base64.b64encode(word.encode(errors="replace")).decode().rstrip("="))
    return tuple(sorted(found, key=len, reverse=True))


@lru_cache(64)
def forms_of(words: Sequence[str]) -> tuple[Form, ...]:
    """These secrets as they are, as hexadecimal digits, and in base64 at each of its offsets."""
    found: dict[str, Form] = {}
    for word in words:
        raw = word.encode(errors="replace")
        tail = word[len(word.rstrip(string.punctuation)) :]
        # A secret may hold what looks like an escape, and is none once its marks are encoded.
        made = [_form(word, tail), _form(_MARKS.sub("-", word)), _form(raw.hex())]
        made += [_form(_inner_base64(raw, offset)) for offset in range(3)]
        found = {form.text: form for form in made if form is not None} | found
    return tuple(found.values())


def _form(text: str, tail: str = "") -> Form | None:
    letters = Letters(text)
    if len(letters.text) < _HEAD:
        return None
    head = max(_LEAST, len(_MARKS.sub("", text[:_HEAD])))
    end = max(_LEAST, len(_MARKS.sub("", text[-_HEAD:])))
    return Form(letters.text, letters.gaps(), letters.text[:head], letters.text[-end:], tail)


def _inner_base64(raw: bytes, offset: int) -> str:
    """What base64 makes of these bytes alone when `offset` bytes stand before the nearest group."""
    encoded = base64.b64encode(bytes(offset) + raw).decode().rstrip("=")
    whole = (offset + len(raw)) % 3 == 0
    return encoded[(0, 2, 3)[offset] : len(encoded) if whole else -1]


def _ways(text: str) -> tuple[str, ...]:
    """A text in the encodings of JSON, URLs and HTML, the text itself last."""
    in_json = json.dumps(text)[1:-1]
    in_url = quote(text, safe="", errors="replace")
    escaped = "".join(f"\\u{ord(each):04x}" for each in text)
    in_html = html.escape(text)
    further = (in_json.replace("/", "\\/"), json.dumps(text, ensure_ascii=False)[1:-1])
    return (escaped, in_json, *further, in_url, in_url.lower(), in_html, text)


def _decoded(found: re.Match[str]) -> str:
    """The letters and digits of a piece, in lower case."""
    if plain := found["plain"]:
        return plain.lower()
    digits = found["u"] or found["x"] or found["percent"] or found["hexadecimal"]
    code = int(digits, 16) if digits else int(found["decimal"] or 0)
    letter = chr(code) if code < 128 else ""
    return letter.lower() if letter.isalnum() else ""
