"""Outcomes and labels as rows: how they are written, and how they are read back."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.contract.ports import Target
from penstock.routing.outcomes.outcome import Logged, Quality, Source
from penstock.routing.outcomes.ports import Label, Served
from penstock.routing.outcomes.schema import take_numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NANOS = 1_000_000_000
IMPORTED = "import"
"""Who wrote what was brought in from a file; workers have random names."""
OUTCOME = (
    "seq, at, worker, request_id, model, provider, upstream, key, prompt, prompt_tokens, "
    "output_tokens, cost_nanos, latency_ms, first_token_ms, ok, error, logged"
)
"""The columns of an outcome, in the order of its table."""
LABEL = "seq, outcome, model, source, score, weight, at, key, worker"
_LOGGED = msgspec.json.Decoder(Logged)

Written = Literal["written", "unknown", "refused"]


def write_served(connection: sqlite3.Connection, served: Served, worker: str) -> None:
    """Add an outcome, and what is known of its prompt."""
    known = served.features is not None or served.prompt is not None
    seq = take_numbers(connection, 1)
    if known:
        connection.execute(
            "INSERT INTO routing_prompts VALUES (?, ?, ?, ?)",
            (
                seq,
                served.made_by,
                None if served.features is None else packed(served.features),
                served.prompt,
            ),
        )
    connection.execute(
        f"INSERT INTO routing_outcomes VALUES (?{', ?' * 16})",
        (
            seq,
            served.at,
            worker,
            served.request_id,
            served.model,
            served.target.provider,
            served.target.model,
            served.key,
            seq if known else None,
            served.prompt_tokens,
            served.output_tokens,
            served.cost_nanos,
            served.latency_ms,
            served.first_token_ms,
            served.ok,
            served.error,
            None if served.logged is None else msgspec.json.encode(served.logged).decode(),
        ),
    )


def write_label(
    connection: sqlite3.Connection, label: Label, worker: str, *, isolated: bool
) -> Written:
    """Add a label to the answer that it is about, in the place of an earlier one of its source."""
    query = "SELECT seq, model, key FROM routing_outcomes WHERE request_id = ? AND ok"
    values: list[object] = [label.request_id]
    if label.target is not None:
        query += " AND provider = ? AND upstream = ?"
        values += [label.target.provider, label.target.model]
    # Callers choose ids, so that several keys may have the same one: a key's own goes first.
    query += " ORDER BY key IS ? DESC, seq DESC LIMIT 1"
    row = connection.execute(query, [*values, label.key]).fetchone()
    if row is None:
        return "unknown"
    outcome, model, owner = row
    if isolated and owner != label.key:
        return "refused"
    source = label.quality.source
    same = "FROM routing_labels WHERE outcome = ? AND source = ?"
    said = connection.execute(f"SELECT score {same}", (outcome, source.value)).fetchone()
    if said is not None and said[0] == label.quality.score:
        # In its place: whoever has learnt it has nothing more to learn.
        renew = "UPDATE routing_labels SET at = ?, key = ? WHERE outcome = ? AND source = ?"
        connection.execute(renew, (label.at, label.key, outcome, source.value))
        return "written"
    connection.execute(f"DELETE {same}", (outcome, source.value))
    connection.execute(
        "INSERT INTO routing_labels VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            take_numbers(connection, 1),
            outcome,
            model,
            source.value,
            label.quality.score,
            label.quality.weight,
            label.at,
            label.key,
            worker,
        ),
    )
    return "written"


def read_served(row: Sequence[Any]) -> Served:
    """From the columns of `OUTCOME`, and then made_by, features and text of its prompt."""
    made_by, features, text = row[17:20]
    return Served(
        at=row[1],
        request_id=row[3],
        model=row[4],
        target=Target(row[5], row[6]),
        key=row[7],
        prompt_tokens=row[9],
        output_tokens=row[10],
        cost_nanos=row[11],
        latency_ms=row[12],
        first_token_ms=row[13],
        ok=bool(row[14]),
        error=row[15],
        logged=None if row[16] is None else read_logged(row[16]),
        features=None if features is None else unpacked(features),
        made_by=made_by,
        prompt=text,
    )


def read_label(row: Sequence[Any], served: Served) -> Label | None:
    """From the columns of `LABEL`; None when a newer Penstock knows more sources."""
    quality = read_quality(row[3], row[4])
    if quality is None:
        return None
    return Label(
        request_id=served.request_id,
        quality=quality,
        at=row[6],
        key=row[7],
        target=served.target,
    )


def read_quality(source: str, score: float) -> Quality | None:
    """None when a newer Penstock knows more sources, or the score is spoilt."""
    try:
        return Quality(score, Source(source)) if 0 <= score <= 1 else None
    except ValueError:
        return None


def read_logged(text: str) -> Logged | None:
    """What was thought of a decision; None when another version has written it."""
    try:
        return _LOGGED.decode(text)
    except msgspec.DecodeError:
        return None


def packed(features: NDArray[np.float32]) -> bytes:
    """The numbers as bytes, the same on every machine.

    In half precision: similarities change in their fourth digit, and three prompts fit a page of
    the file where one did.
    """
    return features.astype("<f2").tobytes()


def unpacked(data: bytes) -> NDArray[np.float32]:
    """The numbers again; half a number at the end is left out."""
    import numpy as np

    return np.frombuffer(data, "<f2", len(data) // 2).astype(np.float32)


def is_sound(features: NDArray[np.float32]) -> bool:
    """Whether there are as many numbers as there must be, and all are numbers."""
    import numpy as np

    from penstock.routing.learning.features import SIZE

    return len(features) == SIZE and bool(np.isfinite(features).all())
