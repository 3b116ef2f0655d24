"""Which names may become the value of a label: a metric must not grow with what callers write."""

from __future__ import annotations

from collections.abc import Iterable

OTHER = "other"
OVERFLOW = "_other"
"""The same for names of keys and budgets, of which one may be `other`; none begins with `_`."""


class Names:
    """Keeps names that are known, or have proven to exist, up to a limit; the rest is `other`.

    Anybody may ask for a model that does not exist. Only an answer makes an unknown name known, so
    that nonsense neither becomes a series nor uses up the places.
    """

    def __init__(self, known: Iterable[str] = (), limit: int = 100, overflow: str = OTHER) -> None:
        """`known` are the names of the configuration, which always have a place.

        All that have none are `overflow`.
        """
        self._names = set(known)
        self._free = limit
        self._overflow = overflow

    def know(self, names: Iterable[str]) -> None:
        """These are in the configuration, too."""
        self._names.update(names)

    def label(self, name: str, *, proven: bool) -> str:
        """The name itself, or `other`."""
        if name in self._names:
            return name
        if not proven or self._free <= 0:
            return self._overflow
        self._free -= 1
        self._names.add(name)
        return name
