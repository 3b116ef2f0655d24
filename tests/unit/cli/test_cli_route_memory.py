"""`penstock route`: teaching, taking along and forgetting."""

import asyncio
import json
from pathlib import Path
from uuid import uuid4

import asyncpg
import numpy as np
import pytest

import penstock
from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.ports import Target
from penstock.engine.build.learning import features_of, outcomes_of
from penstock.routing.index.pgvector_setup import table_of
from penstock.routing.learning.features import SIZE
from penstock.routing.outcomes.outcome import Quality
from penstock.routing.outcomes.ports import Label, Served
from tests.support.services import Service, free_port
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal, run_penstock, started_with

ROWS = "prompt,model,score,cost_usd\nWhy?,echo,1,0.01\nHow?,fake/echo,0.5,0.02\n"


def remember(*keys: str, at: float = 1000.0) -> None:
    store = outcomes_of(load())
    for number, key in enumerate(keys):
        request_id = f"{key}-{number}"
        target = Target("fake", "echo")
        store.served(Served(request_id=request_id, model="default", target=target, at=at, key=key))
        store.labelled(Label(request_id=request_id, quality=Quality(1.0), at=at, key=key))
    store.close()


def kept() -> int:
    return outcomes_of(load()).counts().outcomes


def test_trained_exported_and_trained_again(folder: Path, penstock_process: Cli) -> None:
    (folder / "o.csv").write_text(ROWS)
    finished = penstock_process("route", "train", "o.csv")
    assert finished.code == 0
    assert finished.error_line == (
        'note: no effect until one of default, words sets routing = "learned"'
    )
    assert "fake/echo  2       0.750" in finished.out
    assert "learnt from 2 prompts, 2 outcomes" in finished.out
    assert kept() == 2
    written = penstock_process("route", "export", "out.jsonl")
    assert written.out == "wrote 2 scores to out.jsonl\n"
    assert "Why?" not in (folder / "out.jsonl").read_text()
    again = json.loads(penstock_process("route", "train", "out.jsonl", "--json").out)
    assert (again["prompts"], again["outcomes"], again["replaced"]) == (2, 2, 2)
    assert again["targets"] == [{"target": "fake/echo", "labels": 2, "mean_score": 0.75}]


def test_only_the_model_that_is_named_learns(folder: Path, penstock_here: Cli) -> None:
    (folder / "o.csv").write_text(ROWS)
    finished = penstock_here("route", "train", "o.csv", "--model", "words")
    assert finished.code == 2
    assert "o.csv row 1, model: 'echo' is not a configured target: write one of fake/words-60" in (
        finished.error_line
    )
    assert kept() == 0


def test_a_bar_shows_people_how_far_it_is(folder: Path) -> None:
    (folder / "o.csv").write_text(ROWS)
    with at_terminal("route", "train", "o.csv", cwd=folder) as terminal:
        terminal.expect("o.csv")
        terminal.expect("learnt from 2 prompts")
        assert terminal.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "o.csv", "--model", "nope"), "--model: there is no model 'nope'"),
        (("train", "missing.csv"), "cannot read missing.csv: No such file or directory"),
        (("train", "o.txt"), "'o.txt' does not say its form"),
        (("export", "o.txt"), "'o.txt' does not say its form"),
        (("export", "o.csv", "--since", "soon"), "--since: 'soon' is not known"),
        (("forget",), "say what to forget: --key NAME"),
        (
            ("forget", "--older-than", "long"),
            "--older-than: 'long' is not a valid duration; write 30s",
        ),
        (("forget", "--key", "ci"), "--yes: there is no terminal to ask at"),
    ],
)
def test_bad_input_is_named(
    folder: Path, penstock_here: Cli, arguments: tuple[str, ...], said: str
) -> None:
    (folder / "o.txt").touch()
    finished = penstock_here("route", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.error_line


def test_forgetting_by_key_and_by_age(folder: Path, penstock_here: Cli) -> None:
    remember("a", "a", "b")
    finished = penstock_here("route", "forget", "--key", "a", "--yes")
    assert finished.out == "forgot 2 outcomes, 2 scores, no prompts\n"
    assert kept() == 1
    told = json.loads(penstock_here("route", "forget", "--older-than", "1d", "--yes", "--json").out)
    assert (told["outcomes"], told["labels"], told["erased"]) == (1, 1, True)
    assert kept() == 0


def share(folder: Path, url: str, model: str) -> None:
    """Have a model learn, and its memory be searched in a database."""
    (folder / "penstock.toml").write_text(
        f'[providers.fake]\n[models.{model}]\ntargets = ["fake/echo"]\nrouting = "learned"\n'
        f'[routing]\nindex = "pgvector"\nindex_url = "{url}"\n'
    )
    features = np.eye(SIZE, dtype=np.float32)
    store, target = outcomes_of(load()), Target("fake", "echo")
    for number, key in enumerate("aab"):
        served = Served(
            request_id=f"r{number}",
            model=model,
            target=target,
            at=1000.0,
            key=key,
            features=features[number],
            made_by=features_of(load()).name,
        )
        store.served(served)
        store.labelled(Label(request_id=f"r{number}", quality=Quality(1.0), at=1000.0, key=key))
    store.close()


async def shared(url: str, model: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        query = f"SELECT count(*) FROM {table_of(SIZE)} WHERE memory = $1"
        return await connection.fetchval(query, model)
    finally:
        await connection.close()


async def written(config: Config) -> None:
    async with penstock.open(config) as engine:
        assert engine.learning is not None
        assert await engine.learning.share()


def test_what_is_forgotten_goes_from_a_shared_index_too(
    folder: Path, penstock_here: Cli, pgvector_server: Service
) -> None:
    url, model = pgvector_server.url, f"m{uuid4().hex}"
    share(folder, url, model)
    asyncio.run(written(load()))
    assert asyncio.run(shared(url, model)) == 3
    finished = penstock_here("route", "forget", "--key", "a", "--yes")
    assert (finished.code, finished.err) == (0, "")
    assert finished.out == "forgot 2 outcomes, 2 scores, no prompts\n"
    assert asyncio.run(shared(url, model)) == 1


def test_a_shared_index_that_cannot_be_told_is_named(folder: Path, penstock_here: Cli) -> None:
    share(folder, f"postgresql://me:Qx7-secret@127.0.0.1:{free_port()}/x", "m")
    finished = penstock_here("route", "forget", "--key", "a", "--yes")
    assert finished.code == 0
    assert finished.out == "forgot 2 outcomes, 2 scores, no prompts\n"
    assert "note: the database at [routing] index_url was not reached" in finished.err
    assert "Qx7-secret" not in finished.err
    assert kept() == 1


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("y", 0)])
def test_a_person_is_asked_before_anything_is_deleted(folder: Path, answer: str, left: int) -> None:
    remember("a")
    with at_terminal("route", "forget", "--key", "a", cwd=folder) as terminal:
        terminal.expect("Delete all outcomes of the key 'a' in")
        terminal.line(answer)
        assert terminal.wait() == left
    assert kept() == left


def test_a_damaged_file_is_one_line(folder: Path, penstock_here: Cli) -> None:
    path = load().storage.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database" * 999)
    finished = penstock_here("route", "forget", "--key", "a", "--yes")
    assert finished.code == 2
    assert f"the memory of routing {path} is damaged" in finished.error_line


@pytest.mark.parametrize(
    ("missing", "file", "said"),
    [
        ("numpy", "o.csv", 'takes numpy, which is not installed; run: pip install "penstock[r'),
        ("pyarrow", "o.parquet", "Parquet needs pyarrow: `pip install pyarrow`, or use .csv"),
    ],
)
def test_a_missing_package_is_named(
    folder: Path, tmp_path: Path, missing: str, file: str, said: str
) -> None:
    (folder / file).write_text(ROWS)
    hook = started_with(tmp_path, f"import sys\nsys.modules[{missing!r}] = None\n")
    finished = run_penstock("route", "train", file, cwd=folder, env=hook)
    assert finished.code == 2
    assert said in finished.error_line


def test_without_the_table_letters_stand_in_with_one_warning(folder: Path, tmp_path: Path) -> None:
    (folder / "o.csv").write_text(ROWS)
    hook = started_with(tmp_path, "import sys\nsys.modules['tokenizers'] = None\n")
    finished = run_penstock("route", "train", "o.csv", cwd=folder, env=hook)
    assert finished.code == 0
    assert finished.err.count("routing looks at letters instead of meaning") == 1
    # Its export is by the letters, too, and they are what is compared here.
    assert run_penstock("route", "export", "e.jsonl", cwd=folder, env=hook).code == 0
    again = run_penstock("route", "train", "e.jsonl", "--json", cwd=folder, env=hook)
    assert json.loads(again.out)["replaced"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("feedback", "ci-0", "0.5"), 0, "ci-0 was worth 0.5"),
        (("feedback", "ci-0", "0.5", "--json"), 0, '{"request_id":"ci-0","score":0.5,'),
        (("feedback", "ci-0", "2"), 2, "must be at most 1"),
        (("feedback", "nobody", "1"), 2, "'nobody' is not a remembered request"),
        (("feedback", "ci-0", "1", "--source", "rumour"), 2, "it must be one of feedback, valid"),
        (("feedback", "ci-0", "1", "--key", "other"), 2, "'ci-0' is not a remembered request"),
    ],
)
def test_feedback_from_the_command_line(
    folder: Path, penstock_process: Cli, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (folder / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\nrouting = "learned"\n'
        "[routing]\nisolate_keys = true\n"
    )
    remember("ci")
    key = () if "--key" in arguments else ("--key", "ci")
    finished = penstock_process("route", *arguments, *key)
    assert finished.code == code, finished.err
    assert said in (finished.error_line if code else finished.out)


def test_feedback_where_nothing_learns(folder: Path, penstock_process: Cli) -> None:
    finished = penstock_process("route", "feedback", "r", "1")
    assert finished.code == 2
    assert 'no model of the configuration has routing = "learned"' in finished.error_line
