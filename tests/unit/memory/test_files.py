"""Outcomes from files and to files: three forms, bad rows, and all or nothing."""

import csv
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.contract.errors import ConfigurationError, InvalidRequest
from penstock.contract.ports import Target
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.outcomes.export import export
from penstock.routing.outcomes.outcome import Source
from penstock.routing.outcomes.ports import Counts
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from penstock.routing.outcomes.training import Trained, TrainedTarget, train
from tests.unit.memory.support import halved, label, served

LARGE, SMALL = Target("one", "large"), Target("two", "meta/small")
MODELS = {"m": (LARGE, SMALL), "other": (LARGE,)}
PROMPTS = [
    {"prompt_id": "p1", "prompt": "Why is the sky blue?", "group": "physics"},
    {"prompt_id": "p2", "prompt": "Add, 2 and 3\nplease", "group": "sums"},
]
OUTCOMES: list[dict[str, Any]] = [
    {"prompt_id": "p1", "model": "one/large", "score": 1.0, "cost_usd": 0.01},
    {"prompt_id": "p1", "model": "meta/small", "score": 0.25, "cost_usd": 0.001},
    {"prompt_id": "p2", "model": "large", "score": 0.5, "cost_usd": None},
]
FORMS = ["csv", "jsonl", "parquet"]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_bytes(msgspec.json.Encoder().encode_lines(rows))
    else:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(list(rows)), path)
    return path


def trained(folder: Path, file: Path, **options: Any) -> Trained:
    known: dict[str, Any] = {"models": MODELS, "features": FeatureMaker()}
    return train(folder / "x.db", file, **{**known, **options})


def memory(folder: Path) -> SqliteOutcomes:
    return SqliteOutcomes(folder / "x.db")


@pytest.mark.parametrize("form", FORMS)
def test_outcomes_and_the_prompts_beside_them(tmp_path: Path, form: str) -> None:
    write(tmp_path / f"set_prompts.{form}", PROMPTS)
    file = write(tmp_path / f"set_outcomes.{form}", OUTCOMES)
    told = trained(tmp_path, file)
    # The target `one/large` is one of two models, and both learn.
    assert told == Trained(
        prompts=2,
        outcomes=5,
        labels=5,
        replaced=0,
        known=0,
        targets=(TrainedTarget("one/large", 4, 0.75), TrainedTarget("two/meta/small", 1, 0.25)),
    )
    store = memory(tmp_path)
    assert store.counts() == Counts(outcomes=5, labels=5, features=2, prompts=0)
    page = store.events(made_by=FeatureMaker().name)
    labels = [event for event in page.found if event.outcome.quality is not None]
    first = labels[0].outcome
    assert first.quality is not None
    assert (first.target, first.quality.score) == (LARGE, 1.0)
    assert (first.features == halved(FeatureMaker().vector("Why is the sky blue?"))).all()
    assert first.prompt_tokens > 0
    assert all(event.outcome.given for event in labels)
    assert page.found[0].outcome.cost_usd == 0.01
    assert not any(event.own for event in page.found)


@pytest.mark.parametrize("form", FORMS)
def test_one_file_with_everything(tmp_path: Path, form: str) -> None:
    rows = [
        {"prompt": text, "model": "one/large", "score": score, "cost_usd": 0.5}
        for text, score in (("One?", 1), ("Two?", 0))
    ]
    told = trained(tmp_path, write(tmp_path / f"all.{form}", rows), models={"m": (LARGE,)})
    assert (told.prompts, told.outcomes) == (2, 2)
    assert told.targets == (TrainedTarget("one/large", 2, 0.5),)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_exported_can_be_trained_from_without_prompts(tmp_path: Path, form: str) -> None:
    store = memory(tmp_path)
    made_by = FeatureMaker().name
    vector = FeatureMaker().vector("Why?")
    store.served(served("r1", features=vector, made_by=made_by, target=LARGE))
    store.served(served("r2", features=vector, made_by=made_by, target=SMALL, prompt="Why?"))
    store.served(served("r3", features=vector, made_by=made_by))
    store.labelled(label("r1", 0.75))
    store.labelled(label("r1", 1.0, source=Source.VALIDATION))
    store.labelled(label("r2", 0.0))
    store.close()
    file = tmp_path / f"out.{form}"
    assert export(tmp_path / "x.db", file) == 3
    elsewhere = tmp_path / "new"
    told = trained(elsewhere, file, models={"m": (LARGE, SMALL)})
    assert (told.prompts, told.outcomes, told.labels) == (2, 2, 3)
    (found,) = memory(elsewhere).find("r1")
    assert found.served.features is not None
    assert (found.served.features == halved(vector)).all()
    assert (found.served.cost_nanos, found.served.prompt_tokens) == (5_000_000, 12)
    assert {each.quality.source: each.quality.score for each in found.labels} == {
        Source.FEEDBACK: 0.75,
        Source.VALIDATION: 1.0,
    }
    # Where the requests were served, they are known already and are not counted twice.
    again = trained(tmp_path, file, models={"m": (LARGE, SMALL)})
    assert (again.known, again.outcomes) == (2, 0)


def test_an_export_of_two_models_with_the_same_target_can_be_trained_from(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", PROMPTS)
    trained(tmp_path, write(tmp_path / "o.jsonl", OUTCOMES), prompts=prompts)
    file = tmp_path / "out.jsonl"
    assert export(tmp_path / "x.db", file) == 5
    told = trained(tmp_path / "new", file)
    assert (told.prompts, told.outcomes, told.labels) == (2, 5, 5)
    assert memory(tmp_path / "new").counts() == memory(tmp_path).counts()


def test_export_chooses_by_model_and_time(tmp_path: Path) -> None:
    store = memory(tmp_path)
    for number in range(4):
        store.served(served(f"r{number}", model=f"m{number % 2}", at=float(number)))
        store.labelled(label(f"r{number}"))
    store.close()
    file = tmp_path / "out.jsonl"
    assert export(tmp_path / "x.db", file, model="m1", since=2.0) == 1
    assert msgspec.json.decode(file.read_bytes())["prompt_id"] == "r3"
    assert export(tmp_path / "none.db", file) == 0
    assert file.read_bytes() == b""


def test_the_same_file_twice_counts_once(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", PROMPTS)
    file = write(tmp_path / "o.jsonl", OUTCOMES)
    trained(tmp_path, file, prompts=prompts)
    before = memory(tmp_path).events()
    told = trained(tmp_path, file, prompts=prompts)
    assert (told.replaced, told.outcomes) == (5, 5)
    assert memory(tmp_path).counts() == Counts(outcomes=5, labels=5, features=2)
    after = memory(tmp_path).events()
    assert after.generation > before.generation
    assert after.found[0].seq > before.found[-1].seq


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": 1.5}, "o.jsonl row 2, score: 1.5 is not a number from 0 to 1"),
        ({"score": None}, "row 2, score: None is not a number from 0 to 1"),
        ({"score": "good"}, "row 2, score: 'good' is not a number from 0 to 1"),
        ({"cost_usd": -1}, "row 2, cost_usd: -1 is not a number from 0 to 1e+06"),
        (
            {"model": "nope"},
            "row 2, model: 'nope' is not a configured target: write one of one/large",
        ),
        ({"model": None}, "row 2, model: is missing: give provider/model"),
        ({"model": ["large"]}, "row 2, model: ['large'] is not a text: give provider/model"),
        ({"cost_usd": 10**400}, f"row 2, cost_usd: 1{99 * '0'}... is not a number"),
        ({"prompt_id": {"a": 1}}, "row 2, prompt_id: {'a': 1} is not a text"),
        ({"prompt_id": "", "prompt": {"a": 1}}, "row 2, prompt: {'a': 1} is not a text"),
        ({"prompt_id": "p9", "prompt": 7}, "row 2, prompt: 7 is not a text: give what the user"),
        ({"prompt_id": "p9"}, "row 2, prompt_id: 'p9' is the id of no prompt: add its row"),
        ({"prompt_id": None}, "row 2, prompt: is missing: give prompt_id or prompt"),
        ({"source": "oracle"}, "row 2, source: 'oracle' is none; give feedback, validation"),
        (
            {"prompt_id": "p1", "model": "large"},
            "row 2, score: prompt 'p1' has a feedback score of one/large already, 1, and here 0.5",
        ),
        (
            {"prompt_id": "p9", "features": "AAAA", "features_by": "2:old"},
            "row 2, features_by: '2:old' has made them, and this configuration compares",
        ),
        (
            {"prompt_id": "p9", "features": "%", "features_by": FeatureMaker().name},
            "row 2, features: are no floats in Base64",
        ),
        (
            {"prompt_id": "p9", "features": "ADwAPAA8", "features_by": FeatureMaker().name},
            "row 2, features: are 3 numbers",
        ),
        (
            {"prompt_id": "p9", "features": "fgAA" * 356, "features_by": FeatureMaker().name},
            "all finite: give the row as it was exported",
        ),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_brought_in(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    prompts = write(tmp_path / "p.jsonl", PROMPTS)
    rows = [OUTCOMES[0], {**OUTCOMES[2], **change}, OUTCOMES[1]]
    file = write(tmp_path / "o.jsonl", rows)
    with pytest.raises(InvalidRequest, match=re.escape(said)) as caught:
        trained(tmp_path, file, prompts=prompts)
    assert str(caught.value).endswith("nothing was brought in")
    assert memory(tmp_path).counts() == Counts()


def test_a_model_of_two_providers_must_be_told_apart(tmp_path: Path) -> None:
    file = write(tmp_path / "o.csv", [{"prompt": "a", "model": "x", "score": 1}])
    models = {"m": (Target("a", "x"), Target("b", "x"))}
    with pytest.raises(InvalidRequest, match="'x' may be a/x and b/x: write one of them"):
        trained(tmp_path, file, models=models)


def test_of_many_bad_rows_the_first_are_told(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "model": "large", "score": 2}] * 25
    with pytest.raises(InvalidRequest) as caught:
        trained(tmp_path, write(tmp_path / "o.csv", rows))
    assert len(caught.value.problems) == 12
    assert "and 15 more rows" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("o.csv", b"", "has no rows"),
        ("o.jsonl", b'{"prompt": "a"', "o.jsonl line 1: is not a JSON object"),
        ("o.jsonl", b"[1]\n", "o.jsonl line 1: is not a JSON object"),
        ("o.csv", b"prompt,model\n\xff\xfe,large\n", "is no .csv file"),
        ("o.parquet", b"PAR1 no PAR1", "is not a Parquet file"),
        ("o.txt", b"", "'o.txt' does not say its form: end its name with .parquet"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises((InvalidRequest, ConfigurationError), match=re.escape(said)):
        trained(tmp_path, tmp_path / name)


def test_a_missing_file_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file"):
        trained(tmp_path, tmp_path / "o.csv")
    with pytest.raises(ConfigurationError, match=r"cannot write .*; give another path"):
        export(tmp_path / "x.db", tmp_path / "no" / "o.csv")


def test_lines_of_json_may_have_a_mark_and_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "o.jsonl"
    row = b'{"prompt":"Why?","model":"one/large","score":1}'
    other = b'{"prompt":"How?","model":"one/large","score":0}'
    file.write_bytes(b"\xef\xbb\xbf" + row + b"\r\n\n" + other + b"\n \n")
    assert trained(tmp_path, file).prompts == 2


@pytest.mark.parametrize(
    "line", [b"{oops", b"[1]", b'{"prompt":"\xff"}', b'{"a":' + b"[" * 100_000]
)
def test_a_line_that_is_no_json_object_is_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "o.jsonl"
    file.write_bytes(b'{"prompt":"Why?","model":"one/large","score":1}\n' + line + b"\n")
    with pytest.raises(InvalidRequest, match=r"o\.jsonl line 2: is not a JSON object: .*mend it"):
        trained(tmp_path, file)
    assert memory(tmp_path).counts() == Counts()


def test_rows_with_an_empty_id_are_told_apart_by_their_prompts(tmp_path: Path) -> None:
    rows = [{"prompt_id": "", "prompt": text, "model": "large", "score": 1} for text in "ab"]
    assert trained(tmp_path, write(tmp_path / "o.jsonl", rows)).prompts == 2
