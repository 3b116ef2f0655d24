"""What is asked of the memory: events to learn from, single requests, numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.contract.ports import Target
from penstock.routing.outcomes.outcome import Outcome
from penstock.routing.outcomes.ports import Counts, Event, Events, Remembered
from penstock.routing.outcomes.rows import (
    IMPORTED,
    LABEL,
    NANOS,
    OUTCOME,
    is_sound,
    read_label,
    read_logged,
    read_quality,
    read_served,
    unpacked,
)
from penstock.routing.outcomes.schema import META, generation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floors = Mapping[str, int]
"""Of each model that has more events than are replayed, the number of the last one left out."""
_KNOWN = ", ".join(f"o.{name}" for name in OUTCOME.split(", ")) + ", p.made_by, p.features, p.text"
_WITH_PROMPT = "routing_outcomes o LEFT JOIN routing_prompts p ON p.id = o.prompt"


def read_floors(connection: sqlite3.Connection, replayed: int) -> Floors:
    """Where the replay of each model begins."""
    query = f"SELECT value FROM {META} WHERE name = 'sequence'"
    row = connection.execute(query).fetchone()
    if row is None or row[0] <= replayed:
        return {}
    floors: dict[str, int] = {}
    models = connection.execute("SELECT DISTINCT model FROM routing_outcomes").fetchall()
    query = (
        "SELECT seq FROM (SELECT seq FROM routing_outcomes WHERE model = ?1 UNION ALL "
        "SELECT seq FROM routing_labels WHERE model = ?1) ORDER BY seq DESC LIMIT 1 OFFSET ?2"
    )
    for (model,) in models:
        row = connection.execute(query, (model, replayed)).fetchone()
        if row is not None:
            floors[model] = row[0]
    return floors


def read_events(
    connection: sqlite3.Connection,
    after: int,
    most: int,
    *,
    made_by: str | None,
    floors: Floors,
    worker: str,
) -> Events:
    """The events after this number, as far as they lie above the floor of their model."""
    # One more than asked for tells whether that is all.
    answers = _answers(connection, after, most + 1, floors)
    labels = _labels(connection, after, most + 1, floors)
    rows = sorted([*answers, *labels], key=lambda row: row[0])
    more = len(rows) > most
    rows = rows[:most]
    nothing = unpacked(b"")
    found = [_event(row, made_by, worker, nothing) for row in rows]
    return Events(
        tuple(event for event in found if event is not None),
        rows[-1][0] if rows else after,
        more,
        generation(connection),
    )


def _after(alias: str, floors: Floors) -> tuple[str, list[object]]:
    """The clause for events after a number, and after the floor of their model."""
    if not floors:
        return f"{alias}.seq > ?", []
    rows = ", ".join(["(?, ?)"] * len(floors))
    clause = (
        f"{alias}.seq > ? AND {alias}.seq > coalesce("
        f"(WITH floors (model, floor) AS (VALUES {rows}) SELECT floor FROM floors "
        f"WHERE floors.model = {alias}.model), 0)"
    )
    return clause, [value for pair in floors.items() for value in pair]


def _answers(
    connection: sqlite3.Connection, after: int, most: int, floors: Floors
) -> list[tuple[Any, ...]]:
    clause, values = _after("o", floors)
    query = (
        "SELECT o.seq, o.model, o.worker, o.provider, o.upstream, o.key, o.prompt_tokens, "
        "o.output_tokens, o.cost_nanos, o.latency_ms, o.first_token_ms "
        f"FROM routing_outcomes o WHERE {clause} ORDER BY o.seq LIMIT ?"
    )
    return connection.execute(query, (after, *values, most)).fetchall()


def _labels(
    connection: sqlite3.Connection, after: int, most: int, floors: Floors
) -> list[tuple[Any, ...]]:
    clause, values = _after("l", floors)
    query = (
        "SELECT l.seq, l.model, l.worker, o.provider, o.upstream, o.key, o.prompt_tokens, "
        "l.outcome, o.worker, l.source, l.score, o.logged, p.made_by, p.features "
        "FROM routing_labels l JOIN routing_outcomes o ON o.seq = l.outcome "
        f"LEFT JOIN routing_prompts p ON p.id = o.prompt WHERE {clause} ORDER BY l.seq LIMIT ?"
    )
    return connection.execute(query, (after, *values, most)).fetchall()


def _event(
    row: tuple[Any, ...], made_by: str | None, worker: str, nothing: NDArray[np.float32]
) -> Event | None:
    seq, model, writer, provider, upstream, key, prompt_tokens, *rest = row
    target, own = Target(provider, upstream), writer == worker
    if len(rest) == 4:
        output_tokens, cost_nanos, latency_ms, first_token_ms = rest
        outcome = Outcome(
            target=target,
            # Time and cost are learnt by target and size, not by what a prompt is about.
            features=nothing,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cost_usd=None if cost_nanos is None else cost_nanos / NANOS,
            latency_ms=latency_ms,
            first_token_ms=first_token_ms,
            given=writer == IMPORTED,
            key=key,
        )
        return Event(seq, model, outcome, own)
    labelled, served_by, source, score, logged, by, features = rest
    quality = read_quality(source, score)
    if quality is None or features is None or (made_by is not None and by != made_by):
        return None
    vector = unpacked(features)
    if not is_sound(vector):
        # Whatever has spoilt it, one prompt less is no harm; one that is no vector would be.
        return None
    outcome = Outcome(
        target=target,
        features=vector,
        prompt_tokens=prompt_tokens,
        quality=quality,
        logged=None if logged is None else read_logged(logged),
        given=served_by == IMPORTED,
        key=key,
        label=(labelled, source),
    )
    return Event(seq, model, outcome, own)


def read_request(connection: sqlite3.Connection, request_id: str) -> Sequence[Remembered]:
    """Its outcomes in their order, with their labels."""
    query = f"SELECT {_KNOWN} FROM {_WITH_PROMPT} WHERE o.request_id = ? ORDER BY o.seq"
    rows = connection.execute(query, (request_id,)).fetchall()
    return [_remembered(connection, row) for row in rows]


def labelled_outcomes(
    connection: sqlite3.Connection, model: str | None, since: float | None
) -> Iterator[Remembered]:
    """The outcomes that have a label, oldest first."""
    clauses = ["EXISTS (SELECT 1 FROM routing_labels WHERE outcome = o.seq)"]
    values: list[object] = []
    for clause, value in (("o.model = ?", model), ("o.at >= ?", since)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    where = " AND ".join(clauses)
    query = f"SELECT {_KNOWN} FROM {_WITH_PROMPT} WHERE {where} ORDER BY o.seq"
    for row in connection.execute(query, values):
        yield _remembered(connection, row)


def _remembered(connection: sqlite3.Connection, row: tuple[Any, ...]) -> Remembered:
    served = read_served(row)
    query = f"SELECT {LABEL} FROM routing_labels WHERE outcome = ? ORDER BY seq"
    labels = [read_label(each, served) for each in connection.execute(query, (row[0],))]
    return Remembered(row[0], served, tuple(each for each in labels if each is not None))


def read_counts(connection: sqlite3.Connection) -> Counts:
    """How much there is."""
    query = (
        "SELECT (SELECT count(*) FROM routing_outcomes), (SELECT count(*) FROM routing_labels), "
        "count(features), count(text) FROM routing_prompts"
    )
    return Counts(*connection.execute(query).fetchone())
