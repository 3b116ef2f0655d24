"""Join the delivered part of a broken answer and its continuation by another model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.messages import Content, Text

_LOOK_BACK = 2_000
"""Characters of the delivered text in which a repetition may begin."""
_RESTART = 60
"""So many characters from the beginning of the delivered text are a second answer, not chance."""
_INTRODUCTION = 200
"""The longest line in front of the repeated words, such as "Here is the rest:"."""
_SHORTEST = 3
"""Letters of a cut word that are recognised in the word that begins with them."""
_ANCHOR = 80
_ANCHOR_WORDS = 8
_WRAPPING = " \t\r\n\"'`“”«»„….>*-#"
_ENDS_A_WORD = frozenset(".,;:!?)]}\"'”»…%")


def continue_instruction(delivered: str) -> str:
    """Ask a model to go on exactly where `delivered`, its message before, was cut off."""
    return (
        "Your last message was cut off before its end. Its last words are:\n\n"
        f"{last_words(delivered)}\n\n"
        "Continue that message. Begin with exactly these words and write what follows them. "
        "Add no introduction and no comment."
    )


def last_words(delivered: str) -> str:
    """The words with which a continuation is asked to begin."""
    end = delivered.rstrip()[-_ANCHOR:]
    words = list(re.finditer(r"\S+", end))
    if len(end) == _ANCHOR and len(words) > 1:
        # The first may be the rest of a word.
        words = words[1:]
    return end[words[-_ANCHOR_WORDS:][0].start() :] if words else ""


class RestartDiffers(ValueError):
    """The continuation is an answer from the beginning, in which the last words do not occur."""


class TextJoin:
    """Removes from a continuation what repeats the delivered text.

    Models that are asked to go on repeat the last words, the last sentence or everything, or
    repeat nothing; some write a line of introduction. Text is held back until this is known.
    A model that writes the answer again with changes is joined where the last words occur.
    """

    def __init__(self, delivered: str) -> None:
        """`delivered` is all text that the caller has; it must hold more than white space."""
        self._delivered = delivered
        self._body = delivered.rstrip()
        self._space = delivered[len(self._body) :]
        self._recent = self._body[-_LOOK_BACK:]
        self._anchor = last_words(self._body)
        self._repeated = 0
        """Characters from the beginning of the delivered text that the continuation repeats."""
        self._restarts = True
        """Whether it repeats nothing but that so far."""
        self._lead = ""
        """White space in front of that."""
        self._may_repeat = self._anchor == self._body
        """Whether a paragraph may repeat all of the delivered text, which is short."""
        self._paragraph: str = ""
        """The beginning of a paragraph that may do so."""
        self._rewritten = ""
        """The beginning of an answer that repeats much and then has other words."""
        self._head = ""
        self._found = False
        """Whether all that is repeated has come, except for white space."""
        self.joined = False
        """Whether all further text is new."""

    def feed(self, text: str) -> str:
        """The part of the next piece, and of what was held back, that is new.

        Raises RestartDiffers for another answer.
        """
        if self._found:
            return self._new(text)
        if self._rewritten:
            return self._search(text)
        if self._restarts:
            if not self._repeated and len(self._lead) < _LOOK_BACK:
                stripped = text.lstrip()
                self._lead += text[: len(text) - len(stripped)]
                text = stripped
            if self._body.startswith(text, self._repeated):
                self._repeated += len(text)
                return ""
            if text.startswith(self._body[self._repeated :]):
                return self._new(text[len(self._body) - self._repeated :])
            if self._repeated >= _RESTART:
                self._rewritten = self._body[: self._repeated]
                return self._search(text)
            self._restarts = False
            self._head = self._lead + self._body[: self._repeated]
        self._head += text
        return "" if self._is_open() else self._decide()

    def finish(self) -> str:
        """What was held back, once there is no more text."""
        text = "" if self._found else self._undecided()
        return text + without_common_start(self._space, self._paragraph)[1]

    def _undecided(self) -> str:
        if self._rewritten or (self._restarts and _RESTART <= self._repeated < len(self._body)):
            raise RestartDiffers
        if self._restarts and self._repeated < len(self._body):
            self._restarts = False
            self._head = self._lead + self._body[: self._repeated]
        core = self._head.lstrip(_WRAPPING)
        # A repetition that reached its token limit, or nothing.
        if self._restarts or self._anchor.startswith(core) or self._body.startswith(core):
            return self._new("")
        return self._decide()

    def _search(self, text: str) -> str:
        """Wait for the last words in an answer that is written again with changes."""
        anchor = self._anchor
        known = max(0, len(self._rewritten) - len(anchor) + 1)
        self._rewritten += text
        if self._body.count(anchor) > 1:
            # They do not show the place.
            raise RestartDiffers
        at = self._rewritten.find(anchor, known)
        if at >= 0:
            return self._new(self._rewritten[at + len(anchor) :])
        if len(self._rewritten) > len(self._body) + _LOOK_BACK:
            raise RestartDiffers
        return ""

    def _is_open(self) -> bool:
        """Whether more text may show a repetition that cannot be seen yet."""
        if len(self._head) > 2 * _LOOK_BACK:
            return False
        core = self._head.lstrip(_WRAPPING)
        if not core or core in self._recent:
            return True
        if self._after_anchor(self._head) is not None:
            return False
        line, end, rest = self._head.lstrip().partition("\n")
        if not end:
            return len(line) <= _INTRODUCTION
        rest = rest.lstrip(_WRAPPING)
        return _introduces(line) and (not rest or rest in self._recent)

    def _decide(self) -> str:
        head = self._head
        rest = self._after_repetition(head)
        if rest is None:
            rest = self._after_anchor(head)
        if rest is None:
            line, _, below = head.lstrip().partition("\n")
            rest = self._after_anchor(below) if _introduces(line) else None
        if rest is None and self._space != " ":
            # White space that is not repeated on request may be meant, such as an empty line.
            self._space = ""
        if rest is None and _belong_apart(self._delivered, head):
            # Nothing shows whether the last word was whole; most are.
            head = f" {head}"
        return self._new(head if rest is None else rest)

    def _after_repetition(self, text: str) -> str | None:
        """What follows the longest end of the delivered text that the text begins with."""
        core = text.lstrip(_WRAPPING)
        recent = self._recent
        for candidate in (text, text.lstrip(), core):
            for start in range(max(0, len(recent) - len(candidate)), len(recent)):
                if not _starts_a_word(recent, start):
                    continue
                if candidate.startswith(recent[start:]):
                    rest = candidate[len(recent) - start :]
                    # One or two letters in a sentence may be the beginning of any word.
                    cut = len(recent) - start < _SHORTEST and rest[:1].isalnum()
                    if not cut or _starts_a_sentence(recent, start):
                        return rest
        return None

    def _after_anchor(self, text: str) -> str | None:
        rest = text.lstrip(_WRAPPING)
        anchor = self._anchor.lstrip(_WRAPPING)
        return rest[len(anchor) :] if anchor and rest.startswith(anchor) else None

    def _new(self, text: str) -> str:
        """The text behind the repetition, without white space that the caller has already."""
        self._found = True
        if self._may_repeat:
            text = self._without_repeated_paragraphs(text)
        self._space, text = without_common_start(self._space, text)
        if text:
            self._space = ""
        self.joined = not (self._space or self._may_repeat)
        return text

    def _without_repeated_paragraphs(self, text: str) -> str:
        """The text without the paragraphs at its beginning that are the delivered text again.

        Small models repeat a text of a few words line by line.
        """
        text = self._paragraph + text
        self._paragraph = ""
        while True:
            core = text.lstrip()
            new_line = "\n" in text[: len(text) - len(core)]
            if not core or (new_line and core != self._body and self._body.startswith(core)):
                self._paragraph = text
                return ""
            if not new_line or not core.startswith(self._body):
                self._may_repeat = False
                return text
            text = core[len(self._body) :]


def without_common_start(expected: str, text: str) -> tuple[str, str]:
    """Both texts without the characters that both begin with."""
    both = zip(expected, text, strict=False)
    count = next((at for at, (one, other) in enumerate(both) if one != other), None)
    count = min(len(expected), len(text)) if count is None else count
    return expected[count:], text[count:]


def only_texts(batch: Sequence[ProviderEvent]) -> list[str]:
    """The texts of a batch that is nothing else but the end; none when one of them is empty."""
    texts = [event.text for event in batch if type(event) is Chunk]
    others = len(batch) - len(texts)
    if others and not (others == 1 and isinstance(batch[-1], Finished)):
        return []
    return texts if all(texts) else []


def with_text(text: str, content: tuple[Content, ...]) -> tuple[Content, ...]:
    """The content with all its text as one part, where the first stood."""
    parts: list[Content] = []
    placed = False
    for part in content:
        if not isinstance(part, Text):
            parts.append(part)
        elif not placed:
            parts.append(Text(text))
            placed = True
    return tuple(parts if placed else [Text(text), *parts])


def _introduces(line: str) -> bool:
    return len(line) <= _INTRODUCTION and line.rstrip(" *_").endswith((":", "\uff1a"))


def _starts_a_word(text: str, start: int) -> bool:
    here = text[start]
    if not here.isalnum():
        # The mark of a list is a word of its own.
        return not here.isspace() and text[start - 1 : start] == "\n"
    return start == 0 or not text[start - 1].isalnum() or _is_wide(here)


def _starts_a_sentence(text: str, start: int) -> bool:
    before = text[:start].rstrip(" >*-#")
    return not before or before[-1] in ".!?\n"


def _belong_apart(left: str, right: str) -> bool:
    before, after = left[-1], right[0]
    if not after.isalnum() or _is_wide(before) or _is_wide(after):
        return False
    return before.isalnum() or before in _ENDS_A_WORD


def _is_wide(character: str) -> bool:
    """Whether it belongs to a script that writes words without spaces, such as Chinese."""
    return character >= "\u2e80"
