"""Finds stop sequences in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterable


class StopScanner:
    """Lets text through up to the first stop sequence; holds back what may be the start of one.

    The sequence that ends first wins, as it does while a model writes; of those that end at the
    same character, the longest. So the pieces in which the text comes make no difference. The time
    is linear in the text (Knuth, Morris and Pratt), however long the sequences are.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        """Empty sequences are left out."""
        self.hit: str | None = None
        """The stop sequence that was found; what is pushed afterwards is dropped."""
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(stops) if stop]
        self._known = 0
        """The first characters of what is held back that the reader has already."""

    @property
    def held(self) -> str:
        """What is held back and the reader does not have."""
        if not self._matchers:
            return ""
        stop, length = self._longest()
        return stop[self._known : length]

    def push(self, text: str) -> str:
        """The part of this piece, and of what was held back, that is no part of a sequence."""
        if self.hit is not None:
            return ""
        if not self._matchers or not text:
            return text
        stop, length = self._longest()
        found = [(end, matcher) for matcher in self._matchers if (end := matcher.feed(text)) >= 0]
        if found:
            end, matcher = min(found, key=lambda each: (each[0], -len(each[1].stop)))
            self.hit = matcher.stop
            count = length + end - len(matcher.stop)
        else:
            count = length + len(text) - self._longest()[1]
        if count <= 0:
            return ""
        known, self._known = self._known, max(0, self._known - count)
        if count <= length:
            return stop[known:count]
        return (stop[:length] + text[: count - length])[known:] if length else text[:count]

    def rest(self) -> str:
        """What was held back, at the end of the text or in front of another part."""
        held = self.held
        self._known = 0
        for matcher in self._matchers:
            matcher.matched = 0
        return held

    def follow(self, text: str) -> None:
        """Take note of text that the reader has, in front of the pieces to come."""
        longest = max((len(matcher.stop) for matcher in self._matchers), default=0)
        self.push(text[-longest:] if longest else "")
        if self.hit is not None:
            # Another one let it through; what follows is a text of its own.
            self.hit = None
            self.rest()
        self._known = len(self.held)

    def _longest(self) -> tuple[str, int]:
        """The sequence that the end of the text has most of, and how much that is."""
        longest = max(self._matchers, key=lambda each: each.matched)
        return longest.stop, longest.matched


class _Matcher:
    """One sequence, and how much of it the end of the text has."""

    __slots__ = ("_borders", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._borders = _borders(stop)

    def feed(self, text: str) -> int:
        """The place behind the sequence in this piece, or -1."""
        stop, borders, matched = self.stop, self._borders, self.matched
        at = 0
        while at < len(text):
            if not matched:
                # Most of a text has nothing in common with a sequence.
                at = text.find(stop[0], at)
                if at < 0:
                    break
            character = text[at]
            while matched and stop[matched] != character:
                matched = borders[matched - 1]
            matched += stop[matched] == character
            at += 1
            if matched == len(stop):
                self.matched = 0
                return at
        self.matched = matched
        return -1


def _borders(stop: str) -> list[int]:
    """For each end of a beginning: the length of the longest shorter beginning that ends there."""
    borders = [0] * len(stop)
    length = 0
    for at in range(1, len(stop)):
        while length and stop[at] != stop[length]:
            length = borders[length - 1]
        length += stop[at] == stop[length]
        borders[at] = length
    return borders
