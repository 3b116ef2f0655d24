"""Reads a set of outcomes from two Parquet files; what cannot be used is refused in one line."""

from __future__ import annotations

import math
import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _routing_data import Outcomes
from numpy.typing import NDArray

from penstock.contract.ports import Target

LEAST = 2
"""Prompts: one to learn from, and one to judge by."""
DEAREST = 1e6
"""USD; no answer costs so much, and sums of such costs are still numbers."""


class _Column(NamedTuple):
    take: Callable[[Any], Any]
    """Gives the value as it is used, None or NaN where there is none; raises for a wrong one."""
    remedy: str


def _name(value: object) -> str:
    if not isinstance(value, str | int):
        raise TypeError
    return str(value)


def _text(value: object) -> str | None:
    if not isinstance(value, str | None):
        raise TypeError
    return value


def _up_to(most: float) -> Callable[[Any], float]:
    def take(value: Any) -> float:
        number = math.nan if value is None else float(value)
        if number < 0 or number > most:
            raise ValueError
        return number

    return take


ID = _Column(_name, "give every row the id of its prompt, a text or a whole number")
PROMPTS = {
    "prompt_id": ID,
    "prompt": _Column(_text, "give a text"),
}
OUTCOMES = {
    "prompt_id": ID,
    "model": _Column(_name, "give every row the name of its model"),
    "score": _Column(_up_to(1), "give a number from 0 to 1, or null where it is not known"),
    "cost_usd": _Column(
        _up_to(DEAREST),
        f"give dollars from 0 to {DEAREST:,.0f}, or null where they are not known",
    ),
}


def read(folder: Path, name: str) -> Outcomes:
    """`NAME_prompts.parquet` and `NAME_outcomes.parquet`; the groups of prompts are not read.

    Prompts that lack something are left out, and standard error says how many.
    """
    asked, answered = (folder / f"{name}_{table}.parquet" for table in ("prompts", "outcomes"))
    prompts, outcomes = _columns(asked, PROMPTS), _columns(answered, OUTCOMES)
    pairs = list(zip(outcomes["prompt_id"], outcomes["model"], strict=True))
    _check_once(asked, "prompt_id", prompts["prompt_id"])
    _check_once(answered, "prompt_id and model", pairs)

    text_of = dict(zip(prompts["prompt_id"], prompts["prompt"], strict=True))
    ids = list(dict.fromkeys([*text_of, *outcomes["prompt_id"]]))
    models = sorted(set(outcomes["model"]))
    row_of = {prompt_id: row for row, prompt_id in enumerate(ids)}
    column_of = {model: column for column, model in enumerate(models)}
    scores = np.full((len(ids), len(models)), np.nan)
    costs = np.full_like(scores, np.nan)
    there = np.zeros_like(scores, bool)
    for (prompt_id, model), score, cost in zip(
        pairs, outcomes["score"], outcomes["cost_usd"], strict=True
    ):
        place = row_of[prompt_id], column_of[model]
        scores[place], costs[place], there[place] = score, cost, True
    whole = _whole(
        answered,
        {
            "a text": np.asarray([text_of.get(each) is None for each in ids], bool),
            "an outcome": np.all(~there, axis=1),
            "an outcome of every model": np.any(~there, axis=1),
            "a score of every model": np.any(np.isnan(scores), axis=1),
            "a cost_usd of every model": np.any(np.isnan(costs), axis=1),
        },
    )
    texts: list[str] = [text_of[ids[row]] for row in whole]
    targets = [Target("bench", model) for model in models]
    return Outcomes(name, texts, targets, scores[whole], costs[whole])


def _whole(path: Path, lacking: dict[str, NDArray[np.bool_]]) -> list[int]:
    """The rows of prompts that lack nothing; says how many others there are, and what they lack."""
    lacks_any = np.zeros_like(next(iter(lacking.values())))
    reasons: list[str] = []
    for what, lacks in lacking.items():
        if number := int((lacks & ~lacks_any).sum()):
            reasons.append(f"{number} without {what}")
        lacks_any |= lacks
    whole: list[int] = np.flatnonzero(~lacks_any).tolist()
    left_out = f"left out of {len(lacks_any)} prompts: {', '.join(reasons) or 'none'}"
    if len(whole) < LEAST:
        sys.exit(f"{path}: {LEAST} whole prompts are needed, {len(whole)} found; {left_out}")
    if reasons:
        print(f"{path}: {left_out}", file=sys.stderr)
    return whole


def _columns(path: Path, wanted: dict[str, _Column]) -> dict[str, list[Any]]:
    raw = _raw_columns(path, list(wanted))
    found: dict[str, list[Any]] = {}
    for name, (take, remedy) in wanted.items():
        found[name] = []
        for row, value in enumerate(raw[name], 1):
            try:
                found[name].append(take(value))
            except (TypeError, ValueError):
                sys.exit(f"{path}: {name} is {reprlib.repr(value)} in row {row}: {remedy}")
    return found


def _raw_columns(path: Path, wanted: list[str]) -> dict[str, list[Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        sys.exit("reading Parquet takes pyarrow: pip install pyarrow")
    arrow: Any = pyarrow
    reader: Any = parquet
    ending = "_outcomes.parquet"
    try:
        if not path.parent.is_dir():
            sys.exit(f"--data {path.parent}: there is no such folder")
        if not path.is_file():
            sets = sorted(each.name.removesuffix(ending) for each in path.parent.glob(f"*{ending}"))
            sys.exit(f"there is no file {path}; sets in that folder: {', '.join(sets) or 'none'}")
        missing = sorted(set(wanted) - set(reader.read_schema(path).names))
        if missing:
            sys.exit(f"{path}: there is no column {missing[0]}; it needs {', '.join(wanted)}")
        return reader.read_table(path, columns=wanted).to_pydict()
    except (OSError, ValueError, arrow.ArrowException) as error:
        reason, *_ = str(error).splitlines() or ["it is spoilt"]
        sys.exit(f"{path} cannot be read: {reason}")


def _check_once(path: Path, what: str, values: Sequence[object]) -> None:
    for value, times in Counter(values).most_common(1):
        if times > 1:
            sys.exit(f"{path}: {what} {value!r} is in {times} rows: keep one of them")
