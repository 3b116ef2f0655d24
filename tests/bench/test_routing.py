"""The routing bench on data that is odd or spoilt: figures, or one line that helps."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.unmeasured import unmeasured_environment

BENCH = Path(__file__).parents[2] / "bench"
Table = dict[str, list[Any]]
Change = Callable[[Table, Table], object]


def prompts_of(number: int) -> Table:
    return {
        "prompt_id": [f"p{row}" for row in range(number)],
        "prompt": [f"What is {row} times {row * 7 % 5}?" for row in range(number)],
    }


def outcomes_of(number: int, models: tuple[str, ...] = ("large", "small")) -> Table:
    """The earlier a model is named, the more it costs and the more often it is right."""
    rows = [(row, column) for row in range(number) for column in range(len(models))]
    return {
        "prompt_id": [f"p{row}" for row, _ in rows],
        "model": [models[column] for _, column in rows],
        "score": [float(row % (column + 1) == 0) for row, column in rows],
        "cost_usd": [0.001 * (len(models) - column) for _, column in rows],
    }


def write(folder: Path, name: str, prompts: Table, outcomes: Table) -> None:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.table(prompts), folder / f"{name}_prompts.parquet")
    parquet.write_table(arrow.table(outcomes), folder / f"{name}_outcomes.parquet")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=BENCH,
        env=unmeasured_environment(),
    )


def bench(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("routing.py", "--data", str(folder), "--set", name, "--quick", *arguments)


def read_all(folder: Path, names: list[str]) -> list[str]:
    """Of each set, how many prompts and which models, or the refusal; then what was said aside."""
    done = run(
        "-c",
        "import sys\nfrom pathlib import Path\nfrom _routing_read import read\n"
        "for name in sys.argv[2:]:\n"
        "    try:\n"
        "        data = read(Path(sys.argv[1]), name)\n"
        "        print(len(data.prompts), *(each.model for each in data.targets))\n"
        "    except SystemExit as refusal:\n"
        "        print(refusal.code)",
        str(folder),
        *names,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def put(column: str, value: Any) -> Change:
    """Into the second row of the prompts or of the outcomes, whichever has the column."""

    def change(prompts: Table, outcomes: Table) -> None:
        table = prompts if column in prompts else outcomes
        table[column][1] = value

    return change


def put_all(column: str, value: Any) -> Change:
    return lambda _, outcomes: outcomes.update({column: [value] * len(outcomes[column])})


SCORE = "give a number from 0 to 1, or null where it is not known"
COST = "give dollars from 0 to 1,000,000, or null where they are not known"
ID = "give every row the id of its prompt, a text or a whole number"
REFUSED: dict[str, tuple[Change, str]] = {
    "high": (put("score", 85.0), f"outcomes: score is 85.0 in row 2: {SCORE}"),
    "low": (put("score", -0.1), f"outcomes: score is -0.1 in row 2: {SCORE}"),
    "word": (put_all("score", "good"), f"outcomes: score is 'good' in row 1: {SCORE}"),
    "infinite": (put("cost_usd", float("inf")), f"outcomes: cost_usd is inf in row 2: {COST}"),
    "negative": (put("cost_usd", -1.0), f"outcomes: cost_usd is -1.0 in row 2: {COST}"),
    "nameless": (
        put("model", None),
        "outcomes: model is None in row 2: give every row the name of its model",
    ),
    "no id": (put("prompt_id", None), f"prompts: prompt_id is None in row 2: {ID}"),
    "chat": (
        lambda prompts, _: prompts.update(prompt=[["Hi"]] * 4),
        "prompts: prompt is ['Hi'] in row 1: give a text",
    ),
    "twice": (put("prompt_id", "p0"), "prompts: prompt_id 'p0' is in 2 rows: keep one of them"),
    "pair twice": (
        put("model", "large"),
        "outcomes: prompt_id and model ('p0', 'large') is in 2 rows: keep one of them",
    ),
    "no prompt": (
        lambda prompts, _: prompts.pop("prompt"),
        "prompts: there is no column prompt; it needs prompt_id, prompt",
    ),
    "no cost": (
        lambda _, outcomes: outcomes.pop("cost_usd"),
        "outcomes: there is no column cost_usd; it needs prompt_id, model, score, cost_usd",
    ),
    "empty": (
        lambda prompts, outcomes: [
            each.clear() for each in (*prompts.values(), *outcomes.values())
        ],
        "outcomes: 2 whole prompts are needed, 0 found; left out of 0 prompts: none",
    ),
    "strangers": (
        lambda prompts, _: prompts.update(prompt_id=[0, 1, 2, 3]),
        "outcomes: 2 whole prompts are needed, 0 found; left out of 8 prompts: "
        "4 without a text, 4 without an outcome",
    ),
    "unscored": (
        put_all("score", None),
        "outcomes: 2 whole prompts are needed, 0 found; left out of 4 prompts: "
        "4 without a score of every model",
    ),
}


def test_what_cannot_be_used_is_refused_by_its_file_column_and_value(tmp_path: Path) -> None:
    expected: list[str] = []
    for name, (change, said) in REFUSED.items():
        prompts, outcomes = prompts_of(4), outcomes_of(4)
        change(prompts, outcomes)
        write(tmp_path, name, prompts, outcomes)
        table, _, rest = said.partition(":")
        expected.append(f"{tmp_path / name}_{table}.parquet:{rest}")
    assert read_all(tmp_path, list(REFUSED)) == expected


LEFT_OUT: dict[str, tuple[Change, str]] = {
    "no score": (put("score", None), "1 without a score of every model"),
    "NaN": (put("score", float("nan")), "1 without a score of every model"),
    "no cost": (put("cost_usd", None), "1 without a cost_usd of every model"),
    "no text": (put("prompt", None), "1 without a text"),
    "no row": (
        lambda _, outcomes: [each.pop() for each in outcomes.values()],
        "1 without an outcome of every model",
    ),
    "nothing": (
        lambda _, outcomes: [each.pop() for _ in "12" for each in outcomes.values()],
        "1 without an outcome",
    ),
}


def test_prompts_that_lack_something_are_left_out_and_counted(tmp_path: Path) -> None:
    for name, (change, _) in LEFT_OUT.items():
        prompts, outcomes = prompts_of(4), outcomes_of(4)
        change(prompts, outcomes)
        write(tmp_path, name, prompts, outcomes)
    found = read_all(tmp_path, list(LEFT_OUT))
    assert found == [
        *(["3 large small"] * len(LEFT_OUT)),
        *(
            f"{tmp_path / name}_outcomes.parquet: left out of 4 prompts: {said}"
            for name, (_, said) in LEFT_OUT.items()
        ),
    ]


def test_numbers_of_any_kind_and_numbered_models_are_taken(tmp_path: Path) -> None:
    outcomes = outcomes_of(4)
    outcomes["prompt_id"] = [row // 2 for row in range(8)]
    outcomes["model"] = [row % 2 for row in range(8)]
    outcomes["score"] = [True] * 8
    outcomes["cost_usd"] = ["0.5"] * 8
    write(tmp_path, "numbers", {**prompts_of(4), "prompt_id": ["0", "1", "2", "3"]}, outcomes)
    assert read_all(tmp_path, ["numbers"]) == ["4 0 1"]


def test_a_folder_or_file_that_is_not_there_or_no_parquet_is_named(tmp_path: Path) -> None:
    write(tmp_path, "known", prompts_of(2), outcomes_of(2))
    (tmp_path / "junk_prompts.parquet").write_text("hi", encoding="utf-8")
    assert read_all(tmp_path / "gone", ["any"]) == [
        f"--data {tmp_path / 'gone'}: there is no such folder"
    ]
    missing, junk = read_all(tmp_path, ["typo", "junk"])
    file = tmp_path / "typo_prompts.parquet"
    assert missing == f"there is no file {file}; sets in that folder: known"
    assert junk.startswith(f"{tmp_path / 'junk_prompts.parquet'} cannot be read: ")


ODD: dict[str, tuple[Table, set[str]]] = {
    # A set, and the figures that it cannot have.
    "free": ({**outcomes_of(24), "cost_usd": [0.0] * 48}, {"online_share_of_full_gain"}),
    "alike": (
        {**outcomes_of(24), "score": [0.7] * 48},
        {"apgr", "cpt50", "cpt80", "apgr_1500", "online_share_of_full_gain"},
    ),
    "alone": (outcomes_of(24, ("only",)), {"online_share_of_full_gain"}),
    "two prompts": (outcomes_of(2, ("a", "b", "c")), {"online_share_of_full_gain"}),
}
EVERY = {"aiq", "aiq_no_routing", "online_quality", "online_no_routing", "online_cost"}
PAIRS = {"apgr", "cpt50", "cpt80", "apgr_1500"}


@pytest.mark.parametrize("name", ODD)
def test_odd_outcomes_are_evaluated_and_drawn(name: str, tmp_path: Path) -> None:
    outcomes, undefined = ODD[name]
    write(tmp_path, name, prompts_of(len(set(outcomes["prompt_id"]))), outcomes)
    plot = tmp_path / "plot.svg"
    done = bench(tmp_path, name, "--json", "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert EVERY | (PAIRS if len(set(outcomes["model"])) == 2 else set()) <= set(found)
    assert {key for key, value in found.items() if value is None} == undefined
    assert "<polyline" in plot.read_text(encoding="utf-8")


def test_a_figure_that_is_undefined_is_a_dash_and_a_gain_that_is_none_is_said(
    tmp_path: Path,
) -> None:
    write(tmp_path, "alike", prompts_of(24), ODD["alike"][0])
    done = bench(tmp_path, "alike")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("penstock"))
    assert row.split() == ["penstock", "-", "-", "-", "0.7000", "+0.0000", "0.0000"]
    assert "APGR -\n" in done.stdout
    assert "; no gain with full information (0.7000 against 0.7000); " in done.stdout


def test_a_plot_that_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    write(tmp_path, "set", prompts_of(4), outcomes_of(4))
    plot = tmp_path / "gone" / "plot.svg"
    done = bench(tmp_path, "set", "--plot", str(plot))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"--plot {plot}: No such file or directory; give another path\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_the_figures_are_printed_even_when_the_plot_fails(tmp_path: Path) -> None:
    write(tmp_path, "set", prompts_of(4), outcomes_of(4))
    done = bench(tmp_path, "set", "--json", "--plot", "/dev/full")
    assert done.returncode == 1
    assert json.loads(done.stdout)["prompts"] == 4
    assert done.stderr.splitlines()[-1].startswith("--plot /dev/full: No space left on device")


def test_at_equal_costs_only_the_best_model_counts_as_no_routing() -> None:
    done = run("-c", "from _routing_measures import hull\nprint(hull([(1, 0.2), (1, 0.5)]))")
    assert done.stdout == "[(1, 0.5)]\n", done.stderr


def test_of_models_without_a_gap_no_share_of_it_is_told() -> None:
    done = run(
        "-c",
        "import numpy as np\nfrom _routing_measures import two_models\n"
        "less, more = np.asarray([0.1, 0.2]), np.asarray([0.3, 0.4])\n"
        "for weak, strong in ((less, more), (less, less), (more, less)):\n"
        "    print(two_models(less, weak, strong) is None)",
    )
    assert done.stdout.split() == ["False", "True", "True"], done.stderr
