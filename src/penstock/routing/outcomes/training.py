"""A warm start: outcomes from files become outcomes of the memory, all of them or none.

Rows are checked and their features made in temporary tables first, so that the file is locked only
for the moment in which they are copied. Features for which a provider is asked are made when every
row is known to be right: nobody pays for a file that is refused.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.ports import Target
from penstock.routing.learning.features import Embedder
from penstock.routing.outcomes.embed_batches import (
    STAGED_TEXTS,
    Progress,
    make_features,
    stage_text,
    unheeded,
)
from penstock.routing.outcomes.formats import Row, read_rows
from penstock.routing.outcomes.retention import delete_outcomes
from penstock.routing.outcomes.row_checks import Checked, Checker, Features, Prompt
from penstock.routing.outcomes.rows import IMPORTED
from penstock.routing.outcomes.schema import (
    begin_generation,
    in_transaction,
    open_to_write,
    take_numbers,
)

_MOST_PROBLEMS = 10
_STAGED = (
    """CREATE TEMP TABLE staged_prompts (
        n INTEGER PRIMARY KEY, prompt_id TEXT UNIQUE, tokens INTEGER, made_by TEXT, features BLOB,
        text INTEGER
    )""",
    STAGED_TEXTS,
    """CREATE TEMP TABLE staged_outcomes (
        n INTEGER PRIMARY KEY, model TEXT, prompt_id TEXT, provider TEXT, upstream TEXT,
        cost_nanos INTEGER, UNIQUE (prompt_id, model, provider, upstream)
    )""",
    """CREATE TEMP TABLE staged_labels (
        n INTEGER PRIMARY KEY, outcome INTEGER, source TEXT, score REAL, weight REAL,
        UNIQUE (outcome, source)
    )""",
)
_SAME = (
    "s.prompt_id = o.request_id AND s.model = o.model AND s.provider = o.provider "
    "AND s.upstream = o.upstream"
)


class TrainedTarget(msgspec.Struct, frozen=True):
    """What was brought in for one target."""

    target: str
    labels: int
    mean_score: float


class Trained(msgspec.Struct, frozen=True):
    """What was brought in."""

    prompts: int
    outcomes: int
    labels: int
    replaced: int
    """Outcomes that had been brought in before, and are now these."""
    known: int
    """Outcomes that were left out, for the requests were served here and are kept anyway."""
    targets: tuple[TrainedTarget, ...]


def train(
    database: Path,
    file: Path,
    *,
    models: Mapping[str, Sequence[Target]],
    features: Features,
    embedder: Embedder | None = None,
    prompts: Path | None = None,
    progress: Progress = unheeded,
) -> Trained:
    """Bring in the outcomes of a file, for each of these models that has their target.

    With an `embedder`, it is asked what prompts are about, many at once. Raises InvalidRequest with
    the rows that are wrong, and the embedder's error; then nothing was brought in.
    """
    prompts = prompts or beside(file)
    connection = open_to_write(database)
    try:
        for statement in _STAGED:
            connection.execute(statement)
        # Of temporary tables alone: nobody waits for it, and each row by itself would be slow.
        connection.execute("BEGIN")
        staging = _Staging(connection, Checker(models, features, later=embedder is not None))
        if prompts is not None:
            staging.read(prompts, staging.add_prompt, progress)
        staging.read(file, staging.add_outcome, progress)
        if embedder is not None:
            make_features(connection, features, embedder, progress)
        connection.execute("COMMIT")
        return in_transaction(connection, database, _bring_in)
    finally:
        connection.close()


def beside(file: Path) -> Path | None:
    """`X_prompts.csv` beside `X_outcomes.csv`, if it is there."""
    stem, separator, _ = file.stem.rpartition("_outcomes")
    if not separator or not file.stem.endswith("_outcomes"):
        return None
    found = file.with_name(f"{stem}_prompts{file.suffix}")
    return found if found.is_file() else None


class _Staging:
    """Checks rows and puts them aside."""

    def __init__(self, connection: sqlite3.Connection, checker: Checker) -> None:
        self._connection = connection
        self._checker = checker

    def read(self, path: Path, add: Callable[[Row], None], progress: Progress) -> None:
        problems: list[Problem] = []
        wrong = 0
        number = 0
        for number, row in read_rows(path):
            try:
                add(row)
            except InvalidRequest as error:
                wrong += 1
                if len(problems) < _MOST_PROBLEMS:
                    place = f"{path.name} row {number}"
                    problems += [Problem(f"{place}, {p.path}", p.message) for p in error.problems]
            if number % 100 == 0:
                progress(path, number)
        progress(path, number)
        if wrong > _MOST_PROBLEMS:
            problems.append(Problem("", f"and {wrong - _MOST_PROBLEMS} more rows"))
        if wrong:
            problems.append(Problem("", "nothing was brought in"))
            raise InvalidRequest.of(problems)
        if not number:
            raise InvalidRequest.of([Problem(str(path), "has no rows: nothing was brought in")])

    def add_prompt(self, row: Row) -> None:
        prompt_id = self._checker.text(row, "prompt_id", "each prompt has an id of its own")
        prompt = self._checker.prompt(row)
        try:
            self._stage_prompt(prompt_id, prompt)
        except sqlite3.IntegrityError:
            said = f"{prompt_id!r} comes a second time: each prompt has an id of its own"
            raise InvalidRequest.of([Problem("prompt_id", said)]) from None

    def add_outcome(self, row: Row) -> None:
        checked = self._checker.outcome(row)
        prompt_id = self._prompt_of(row)
        for model in checked.models:
            self._stage_outcome(model, prompt_id, checked)

    def _prompt_of(self, row: Row) -> str:
        """The id of the row's prompt, which is put aside with the first row that has it."""
        if row.get("prompt_id") not in (None, ""):
            prompt_id = self._checker.text(row, "prompt_id", "give a text or a number")
        else:
            text = self._checker.text(row, "prompt", "give prompt_id or prompt")
            prompt_id = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]
        query = "SELECT 1 FROM staged_prompts WHERE prompt_id = ?"
        if self._connection.execute(query, (prompt_id,)).fetchone() is None:
            if row.get("prompt") is None and row.get("features") is None:
                said = (
                    f"{prompt_id!r} is the id of no prompt: add its row to the file of prompts, or "
                    "give that file as --prompts FILE"
                )
                raise InvalidRequest.of([Problem("prompt_id", said)])
            self._stage_prompt(prompt_id, self._checker.prompt(row))
        return prompt_id

    def _stage_prompt(self, prompt_id: str, prompt: Prompt) -> None:
        text = None if prompt.features is not None else stage_text(self._connection, prompt.text)
        self._connection.execute(
            "INSERT INTO staged_prompts VALUES (NULL, ?, ?, ?, ?, ?)",
            (prompt_id, prompt.tokens, prompt.made_by, prompt.features, text),
        )

    def _stage_outcome(self, model: str, prompt_id: str, checked: Checked) -> None:
        place = (model, prompt_id, checked.target.provider, checked.target.model)
        execute = self._connection.execute
        execute(
            "INSERT INTO staged_outcomes VALUES (NULL, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*place, checked.cost_nanos),
        )
        query = (
            "SELECT n FROM staged_outcomes WHERE model = ? AND prompt_id = ? AND provider = ? "
            "AND upstream = ?"
        )
        (outcome,) = execute(query, place).fetchone()
        quality = checked.quality
        try:
            execute(
                "INSERT INTO staged_labels VALUES (NULL, ?, ?, ?, ?)",
                (outcome, quality.source.value, quality.score, quality.weight),
            )
        except sqlite3.IntegrityError:
            query = "SELECT score FROM staged_labels WHERE outcome = ? AND source = ?"
            (score,) = execute(query, (outcome, quality.source.value)).fetchone()
            if score == quality.score:
                # An export has a row for each model that has this target.
                return
            said = (
                f"prompt {prompt_id!r} has a {quality.source.value} score of {checked.target} "
                f"already, {score:g}, and here {quality.score:g}: keep one, or their mean"
            )
            raise InvalidRequest.of([Problem("score", said)]) from None


def _bring_in(connection: sqlite3.Connection) -> Trained:
    """Copy what was put aside; within a transaction."""
    execute = connection.execute
    kept = f"SELECT s.n FROM staged_outcomes s JOIN routing_outcomes o ON {_SAME}"
    served = f"{kept} WHERE o.worker != '{IMPORTED}'"
    execute(f"DELETE FROM staged_labels WHERE outcome IN ({served})")
    known = execute(f"DELETE FROM staged_outcomes WHERE n IN ({served})").rowcount
    execute(
        "DELETE FROM staged_prompts WHERE prompt_id NOT IN (SELECT prompt_id FROM staged_outcomes)"
    )
    earlier = f"SELECT DISTINCT o.seq FROM routing_outcomes o JOIN staged_outcomes s ON {_SAME}"
    replaced = delete_outcomes(connection, earlier, ())[0]
    if replaced:
        begin_generation(connection)
    highest = "SELECT coalesce(max(n), 0) FROM"
    (prompts,), (outcomes,), (labels,) = (
        execute(f"{highest} staged_{name}").fetchone() for name in ("prompts", "outcomes", "labels")
    )
    first = take_numbers(connection, prompts + outcomes + labels)
    values = {
        "prompt": first - 1,
        "outcome": first - 1 + prompts,
        "label": first - 1 + prompts + outcomes,
        "at": time.time(),
        "worker": IMPORTED,
    }
    number = execute(
        "INSERT INTO routing_prompts SELECT :prompt + n, made_by, features, NULL "
        "FROM staged_prompts ORDER BY n",
        values,
    ).rowcount
    added = execute(
        "INSERT INTO routing_outcomes SELECT :outcome + s.n, :at, :worker, s.prompt_id, s.model, "
        "s.provider, s.upstream, NULL, :prompt + p.n, p.tokens, NULL, s.cost_nanos, NULL, NULL, 1, "
        "NULL, NULL FROM staged_outcomes s JOIN staged_prompts p USING (prompt_id) ORDER BY s.n",
        values,
    ).rowcount
    labelled = execute(
        "INSERT INTO routing_labels SELECT :label + l.n, :outcome + l.outcome, s.model, l.source, "
        "l.score, l.weight, :at, NULL, :worker FROM staged_labels l "
        "JOIN staged_outcomes s ON s.n = l.outcome ORDER BY l.n",
        values,
    ).rowcount
    summary = execute(
        "SELECT provider || '/' || upstream, count(*), avg(score) FROM staged_labels l "
        "JOIN staged_outcomes s ON s.n = l.outcome GROUP BY 1 ORDER BY 3 DESC, 1"
    )
    targets = tuple(TrainedTarget(*row) for row in summary)
    return Trained(number, added, labelled, replaced, known, targets)
