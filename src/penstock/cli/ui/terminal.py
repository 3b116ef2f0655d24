"""What goes to the terminal: tables and colours for people, plain text for pipes.

Rich is imported only where people look on.
"""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 80
_GAP = 2
"""Blanks between the columns of a table."""
_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They change the direction of what follows, and so what is read."""
_CONTROLS = {
    code: None
    for code in (*range(32), *range(127, 160), *_TURNING)
    if chr(code) not in ("\n", "\t")
}

Cell = str | tuple[str, str]
"""A text, or a text and the style that it has in a terminal."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at, or types into, this stream."""
    return stream is not None and not stream.closed and stream.isatty()


def visible(text: str) -> str:
    """The text without control characters, which could make a terminal lie."""
    return text.translate(_CONTROLS)


def print_json(document: object) -> None:
    """One JSON document: a single line for pipes, indented for people."""
    data = msgspec.json.encode(document)
    if is_terminal(sys.stdout):
        data = msgspec.json.format(data, indent=2)
    print(data.decode())


def note(message: str) -> None:
    """A remark beside the output, for people only."""
    if is_terminal(sys.stderr):
        console(stderr=True).print(
            folded(visible(message)), style="dim", markup=False, highlight=False, soft_wrap=True
        )


def folded(text: str, indent: str = "", *, margin: int = 0) -> str:
    """The text for stderr: at a terminal in lines that fit and end between words.

    The lines after the first begin with `indent`; all leave `margin` columns free. A command in a
    line of its own, which begins with blanks, stays whole: it is there to be copied.
    """
    if not is_terminal(sys.stderr):
        return text
    width = max(20, console(stderr=True).width - margin)
    lines = (
        [line]
        if line.startswith(" ")
        else textwrap.wrap(
            line,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )
    return "\n".join("\n".join(each) for each in lines)


def say(message: str) -> None:
    """A remark beside the output, for people and logs."""
    if is_terminal(sys.stderr):
        note(message)
    else:
        print(visible(message), file=sys.stderr, flush=True)


def waiting(message: str) -> contextlib.AbstractContextManager[Any]:
    """A spinner on stderr while a person waits; nothing when nobody looks."""
    if not is_terminal(sys.stderr):
        return contextlib.nullcontext()
    return console(stderr=True).status(f"[dim]{message}", spinner_style="dim")


def console(*, stderr: bool = False) -> Console:
    """Rich's console; it knows about NO_COLOR, dumb terminals and widths."""
    from rich.console import Console

    return Console(stderr=stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Columns with a heading; never cut off when the output is piped."""
    if is_terminal(sys.stdout):
        _print_rich(columns, rows)
        return
    texts = [tuple(_text(cell) for cell in row) for row in rows]
    lines = [tuple(column.upper() for column in columns), *texts]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def print_facts(facts: Mapping[str, str]) -> None:
    """Names and values, one pair a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.ljust(width)}  {visible(value)}")


def wrapped(text: str, indent: int = 0) -> str:
    """The text in lines that fit the terminal, or 80 columns when the output is piped."""
    width = console().width if is_terminal(sys.stdout) else _PIPED_WIDTH
    lines = textwrap.wrap(visible(" ".join(text.split())), max(20, width - indent))
    return textwrap.indent("\n".join(lines), " " * indent)


def count(number: int, what: str) -> str:
    """`no problems`, `1 problem`, `2 problems`."""
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _print_rich(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows, screen = list(rows), console()
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    texts = [[column, *(_text(row[index]) for row in rows)] for index, column in enumerate(columns)]
    whole = _unbroken(texts, screen.width - _GAP * (len(columns) - 1))
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index in whole)
    for row in rows:
        table.add_row(*(Text(_text(cell), _style(cell)) for cell in row))
    screen.print(table)


def _unbroken(columns: Sequence[Sequence[str]], width: int) -> set[int]:
    """The columns of single words, which Rich would break, where the others can give way."""
    single = {index for index, cells in enumerate(columns) if not any(" " in x for x in cells[1:])}
    least = sum(
        max(map(len, cells if index in single else " ".join(cells).split()), default=0)
        for index, cells in enumerate(columns)
    )
    return single if least <= width else set()


def _text(cell: Cell) -> str:
    return " ".join(visible(cell if isinstance(cell, str) else cell[0]).split("\n"))


def _style(cell: Cell) -> str:
    return "" if isinstance(cell, str) else cell[1]
