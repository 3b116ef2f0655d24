"""Rows that wait to be written, and go out with few statements.

Between any two statements Python may hand the interpreter to another thread, and have it back much
later. So rows of one form go out together, in parts of few different lengths: SQLite prepares a
statement for each length once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

_NOTHING: Mapping[str, str] = {}
_LENGTHS = (64, 32, 16, 8, 4, 2, 1)
NULL = bytearray()
"""None in a row. The module sqlite3 looks for an adapter for each None, which takes longer than to
bind anything else; it needs none for an empty blob, which no column has."""


class Form:
    """A statement for any number of rows."""

    __slots__ = ("_head", "_one", "_statements", "_tail", "width")

    def __init__(self, head: str, one: str, tail: str = "") -> None:
        """`one` stands for a row, with a `?` for each of its values."""
        self._head = head
        self._one = one
        self._tail = tail
        self._statements: dict[int, str] = {}
        self.width = one.count("?")

    @classmethod
    def inserting(
        cls,
        table: str,
        columns: Sequence[str],
        nullable: Sequence[str] = (),
        same: Mapping[str, str] = _NOTHING,
        tail: str = "",
    ) -> Form:
        """INSERT rows of these columns, and then of those that may be NULL.

        `same` are those that every row has alike, as SQL writes them.
        """
        values = [*same.values(), *["?"] * len(columns), *["nullif(?, x'')"] * len(nullable)]
        head = f"INSERT INTO {table} ({', '.join((*same, *columns, *nullable))}) VALUES "
        return cls(head, f"({', '.join(values)})", tail)

    def statement(self, rows: int) -> str:
        """The one for so many rows."""
        found = self._statements.get(rows)
        if found is None:
            many = ", ".join([self._one] * rows)
            found = self._statements[rows] = f"{self._head}{many}{self._tail}"
        return found


class Rows:
    """What waits to be written in one form."""

    __slots__ = ("_form", "_values")

    def __init__(self, form: Form) -> None:
        """None wait."""
        self._form = form
        self._values: list[object] = []

    def add(self, row: Sequence[object]) -> None:
        """It has as many values as the form."""
        self._values += row

    def write(self, execute: Callable[[str, Sequence[object]], object]) -> None:
        """Write all of them."""
        values, form = self._values, self._form
        start, left = 0, len(values) // form.width
        for length in _LENGTHS:
            while left >= length:
                end = start + length * form.width
                execute(form.statement(length), values[start:end])
                start, left = end, left - length


def or_null(*values: object) -> list[object]:
    """These values as they are bound."""
    return [NULL if value is None else value for value in values]
