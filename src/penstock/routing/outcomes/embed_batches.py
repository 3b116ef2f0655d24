"""Features for which an embedder elsewhere is asked: each text once, as many at a time as it takes.

The texts wait in a temporary table, which goes with the connection.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from penstock.contract.errors import PenstockError
from penstock.routing.learning.features import MOST_MEANING, Embedder, shortened
from penstock.routing.outcomes.row_checks import Features
from penstock.routing.outcomes.rows import packed

MOST_TEXTS = 2048
"""So many texts are asked for at once; where a provider takes fewer, several calls are made."""
MOST_BYTES = 300_000
"""And so many bytes: OpenAI takes 300,000 tokens in one call, and no token is less than a byte."""

STAGED_TEXTS = """CREATE TEMP TABLE staged_texts (
    n INTEGER PRIMARY KEY, text TEXT UNIQUE, features BLOB
)"""


class Progress(Protocol):
    """Hears how far it is: with rows of a file, or with the prompts of an embedder."""

    def __call__(self, what: Path | str, done: int, total: int | None = None, /) -> object:
        """`total` is known of prompts only."""
        ...


def unheeded(what: Path | str, done: int, total: int | None = None, /) -> None:
    """Nobody looks on."""


def stage_text(connection: sqlite3.Connection, text: str) -> int:
    """Put a text aside; returns its number, which is the same when it comes again."""
    insert = "INSERT INTO staged_texts (text) VALUES (?) ON CONFLICT DO NOTHING"
    connection.execute(insert, (text,))
    ((number,),) = connection.execute("SELECT n FROM staged_texts WHERE text = ?", (text,))
    return int(number)


def make_features(
    connection: sqlite3.Connection, features: Features, embedder: Embedder, progress: Progress
) -> None:
    """Give the staged prompts that have an outcome their features.

    Raises the embedder's error, which then says how far it was.
    """
    connection.execute(
        "DELETE FROM staged_texts WHERE n NOT IN (SELECT p.text FROM staged_prompts p "
        "JOIN staged_outcomes USING (prompt_id) WHERE p.text IS NOT NULL)"
    )
    ((total,),) = connection.execute("SELECT count(*) FROM staged_texts")
    done = 0
    progress(embedder.name, done, total)
    for batch in _batches(connection):
        try:
            vectors = embedder.embed([shortened(text, MOST_MEANING) for _, text in batch])
        except PenstockError as error:
            raise _stopped(error, embedder.name, done, total) from error
        made = (
            (packed(features.vector(text, vector)), number)
            for (number, text), vector in zip(batch, vectors, strict=True)
        )
        connection.executemany("UPDATE staged_texts SET features = ? WHERE n = ?", made)
        done += len(batch)
        progress(embedder.name, done, total)
    connection.execute(
        "UPDATE staged_prompts SET features = (SELECT t.features FROM staged_texts t "
        "WHERE t.n = staged_prompts.text) WHERE text IS NOT NULL"
    )


def _batches(connection: sqlite3.Connection) -> Iterator[list[tuple[int, str]]]:
    last = 0
    query = f"SELECT n, text FROM staged_texts WHERE n > ? ORDER BY n LIMIT {MOST_TEXTS}"
    while rows := connection.execute(query, (last,)).fetchall():
        size = fitting = 0
        for _, text in rows:
            size += len(shortened(text, MOST_MEANING).encode())
            if size > MOST_BYTES:
                break
            fitting += 1
        yield rows[:fitting]
        last = rows[fitting - 1][0]


def _stopped(error: PenstockError, embedder: str, done: int, total: int) -> PenstockError:
    """The same error with what it means here."""
    told = copy.copy(error)
    told.message = (
        f"{embedder} has embedded {done:,} of {total:,} prompts, and then failed: {error}; nothing "
        "was brought in: put that right and train again, or train from the file in parts, of which "
        "each is kept"
    )
    told.args = (told.message,)
    return told
