"""`penstock usage`: what commands have spent, and what a past holds."""

import csv
import importlib
import json
import signal
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import LIMIT_S, at_terminal, started_penstock
from tests.unit.cli.money import ONE_ANSWER, PAID, database, spend
from tests.unit.cli.trickle import TrickleServer

MAY = datetime(2026, 5, 4, 12, 30).astimezone()
HOUR, DAY = 3600.0, 86400.0
IN_MAY = ("--since", "2026-05-01", "--until", "2026-06-01")


@pytest.fixture
def paid(folder: Path) -> Path:
    """A folder in which answers cost something."""
    (folder / "penstock.toml").write_text(PAID)
    return folder


def report(penstock_here: Cli, *arguments: str) -> dict[str, Any]:
    finished = penstock_here("usage", "--json", *arguments)
    assert (finished.code, finished.err) == (0, "")
    return json.loads(finished.out)


def test_without_any_use_it_says_what_will_be_shown(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("usage", "--since", "2026-05-01")
    assert (finished.code, finished.out) == (0, "")
    assert finished.error_line.startswith("nothing was used since 2026-05-01 00:00; ")
    document = report(penstock_here)
    assert (document["total"]["requests"], document["rows"], document["slices"]) == (0, [], [])
    assert report(penstock_here, "--since", "all")["total"]["amount_nanos"] == 0
    assert penstock_here("usage", "--entries").error_line.startswith("the ledger has no entries")


def test_what_commands_ask_is_in_it(paid: Path, penstock_here: Cli) -> None:
    assert penstock_here("ask", "Count.").code == 0
    assert penstock_here("ask", "Hello", "--model", "free").code == 0
    assert penstock_here("chat", "--model", "free", stdin="one\ntwo\n").code == 0
    assert penstock_here("embed", "a", "--model", "fake/words").code == 0
    document = report(penstock_here)
    assert document["total"]["requests"] == 5
    assert document["total"]["amount_nanos"] == ONE_ANSWER
    assert document["total"]["cost_usd"] == ONE_ANSWER / 1e9
    rows = {row["model"]: row for row in document["rows"]}
    assert {name: row["requests"] for name, row in rows.items()} == {
        "words-60": 1,
        "echo": 3,
        "words": 1,
    }
    assert rows["words-60"]["output_tokens"] == 60
    assert rows["echo"]["amount_nanos"] == 0
    (provider,) = report(penstock_here, "--by", "provider")["rows"]
    assert (provider["provider"], provider["requests"]) == ("fake", 5)


def test_rows_bars_and_totals_of_a_month(folder: Path, penstock_here: Cli) -> None:
    at = MAY.timestamp()
    spend((at, "a/m", 2 * 10**9), (at + DAY, "a/m", 10**9), key="ci")
    spend((at + DAY + 5, "b/n", 500_000), estimated=True)
    spend((at - 10 * DAY, "a/m", 10**9), (at + 40 * DAY, "a/m", 10**9))
    lines = penstock_here("usage", *IN_MAY).out.splitlines()
    assert lines == [
        "Since 2026-05-01 00:00: 3 requests, 300 tokens in, 60 out, "
        "$3.00 ($0.0005 of it estimated)",
        "",
        "MODEL  REQUESTS  TOKENS IN  CACHED  TOKENS OUT  COST     ESTIMATED",
        "m      2         200        60      40            $3.00",
        "n      1         100        30      20          $0.0005  $0.0005",
        "",
        "COST BY DAY",
        "Mon 04 May  $2.00  " + "█" * 61,
        "Tue 05 May  $1.00  " + "█" * 31,
        *(f"{MAY.replace(day=day):%a %d %b}  $0.00" for day in range(6, 32)),
    ]
    document = report(penstock_here, *IN_MAY, "--by", "key")
    assert [(row["key"], row["amount_nanos"]) for row in document["rows"]] == [
        ("ci", 3 * 10**9),
        (None, 500_000),
    ]
    assert document["unit"] == "day"
    assert [each["amount_nanos"] for each in document["slices"]] == [2 * 10**9, 1_000_500_000]
    assert document["total"]["estimated_nanos"] == 500_000
    assert "no key" in penstock_here("usage", *IN_MAY, "--by", "key").out


def test_all_of_the_past_and_short_times_have_bars_of_their_own(
    folder: Path, penstock_here: Cli
) -> None:
    at = MAY.timestamp()
    spend((at, "a/m", 7), (at + 2 * HOUR, "a/m", 7), (at + 100 * DAY, "a/m", 7))
    hours = ("--since", "2026-05-04", "--until", "2026-05-04T20:00")
    slices = report(penstock_here, *hours)["slices"]
    assert [each["from"][11:16] for each in slices] == ["12:00", "14:00"]
    days = report(penstock_here, "--since", "all", "--until", "2026-05-09")
    assert (days["unit"], len(days["slices"])) == ("day", 1)
    weeks = report(penstock_here, "--since", "all", "--until", "2026-12-01")
    assert (weeks["unit"], len(weeks["slices"])) == ("week", 2)
    months = report(penstock_here, "--since", "2024-01-01", "--until", "2026-12-01")
    assert (months["unit"], len(months["slices"])) == ("month", 2)
    for document in (days, weeks, months):
        assert (
            sum(each["amount_nanos"] for each in document["slices"])
            == (document["total"]["amount_nanos"])
        )


def test_free_use_has_bars_of_tokens(folder: Path, penstock_here: Cli) -> None:
    spend((MAY.timestamp(), "a/m", 0))
    lines = penstock_here("usage", *IN_MAY).out.splitlines()
    assert "TOKENS BY DAY" in lines
    assert lines[lines.index("TOKENS BY DAY") + 1].startswith("Mon 04 May  120  ██")


def test_the_time_is_that_of_this_machine(
    folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 29 March 2026 Berlin has no two o'clock, and on 25 October two of them."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        spring, autumn = 1_774_738_800.0, 1_792_879_200.0
        spend(*((spring + hour * HOUR, "a/m", 1) for hour in range(23)))
        spend(*((autumn + hour * HOUR, "a/m", 1) for hour in range(25)))
        for first, last, hours in (
            ("2026-03-29", "2026-03-30", 23),
            ("2026-10-25", "2026-10-26", 25),
        ):
            document = report(penstock_here, "--since", first, "--until", last)
            assert document["total"]["requests"] == hours
            assert [each["requests"] for each in document["slices"]] == [1] * hours
        week = report(penstock_here, "--since", "2026-03-27", "--until", "2026-04-02")
        assert [each["requests"] for each in week["slices"]] == [23]
        assert week["slices"][0]["from"] == "2026-03-29T00:00:00+01:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_entries_come_page_by_page(folder: Path, penstock_here: Cli) -> None:
    spend(*((MAY.timestamp() + number, "a/m", 7) for number in range(3)), key="ci")
    first = penstock_here("usage", "--entries", "--limit", "4", *IN_MAY)
    lines = first.out.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "6", "5", "4", "3"]
    assert lines[1].split()[3:] == ["settle", "r", "ci", "a/m", "100", "20", "$0.000000007"]
    assert first.err.strip() == "there are more: add --before 3, or --export FILE for all"
    document = json.loads(
        penstock_here("usage", "--entries", "--json", "--before", "3", *IN_MAY).out
    )
    assert [entry["id"] for entry in document["entries"]] == [2, 1]
    assert document["next"] is None
    assert document["entries"][0]["price_source"] == "test"
    assert datetime.fromisoformat(document["entries"][0]["time"]) == MAY


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "X.NDJSON"])
def test_entries_are_written_to_a_file(folder: Path, penstock_here: Cli, name: str) -> None:
    spend((MAY.timestamp(), "a/m", 7), (MAY.timestamp() + 100 * DAY, "a/m", 7))
    finished = penstock_here("usage", "--export", name, *IN_MAY)
    assert (finished.code, finished.out) == (0, f"wrote 2 entries to {name}\n")
    text = (folder / name).read_text()
    if name.endswith("csv"):
        kinds = [row["kind"] for row in csv.DictReader(text.splitlines())]
    else:
        kinds = [json.loads(line)["kind"] for line in text.splitlines()]
    assert kinds == ["hold", "settle"]
    document = json.loads(penstock_here("usage", "--export", name, "--json", "--since", "all").out)
    assert document["entries"] == 4


def test_entries_are_written_as_parquet(folder: Path, penstock_here: Cli) -> None:
    spend((MAY.timestamp(), "a/m", 10**15 + 7), (MAY.timestamp() + 100 * DAY, "a/m", 7))
    finished = penstock_here("usage", "--export", "x.parquet", *IN_MAY)
    assert (finished.code, finished.err) == (0, "")
    assert finished.out == "wrote 2 entries to x.parquet\n"
    parquet: Any = importlib.import_module("pyarrow.parquet")
    held, settled = parquet.read_table(folder / "x.parquet").to_pylist()
    assert (held["kind"], settled["kind"]) == ("hold", "settle")
    assert (settled["amount_nanos"], settled["model"]) == (10**15 + 7, "m")
    assert settled["at"] == MAY.timestamp()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "--since: 'yesterday' is not known: give today, week, month"),
        (["--until", "soon"], "--until: 'soon' is not known: give a date such as 20"),
        (["--since", "0001-01-01"], "--since: '0001-01-01' is not known"),
        (["--by", "colour"], "--by: 'colour' is not known: give provider, model, key"),
        (["--export", "x.doc"], "--export: 'x.doc' does not say in which form: end its name with"),
        (["--export", "nowhere/x.csv"], "cannot write nowhere/x.csv: No such file or directory"),
        (["--entries", "--limit", "0"], "'--limit': must be at least 1"),
    ],
)
def test_what_is_wrong_is_named(
    folder: Path, penstock_here: Cli, arguments: list[str], said: str
) -> None:
    finished = penstock_here("usage", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.error_line


def test_calls_without_a_price_are_pointed_out(folder: Path, penstock_here: Cli) -> None:
    spend((MAY.timestamp(), "a/m", 0))
    with sqlite3.connect(database()) as connection:
        connection.execute("UPDATE ledger_entries SET price_source = 'unknown'")
    connection.close()
    finished = penstock_here("usage", *IN_MAY)
    assert finished.err.strip().startswith("1 call had no known price and counted as nothing")
    assert report(penstock_here, *IN_MAY)["total"]["unpriced"] == 1


def test_a_terminal_gets_a_drawn_table_and_coloured_bars(folder: Path) -> None:
    spend((MAY.timestamp(), "a/m", 10**9))
    with at_terminal("usage", *IN_MAY, cwd=folder, env={"COLUMNS": "110"}) as terminal:
        assert terminal.wait() == 0
    assert "───" in terminal.screen
    assert "\x1b[36m████" in terminal.raw
    widest = max(terminal.screen.splitlines(), key=len)
    assert "█" in widest
    assert 100 < len(widest) <= 110


@pytest.mark.parametrize("command", [("ask", "Go"), ("chat",)])
def test_an_interrupted_answer_is_settled_for_what_was_said(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli, command: tuple[str, ...]
) -> None:
    config = trickle_server.config() + 'prices."slow/m" = { input = 1, output = 1000 }\n'
    (folder / "slow.toml").write_text(config)
    with started_penstock(*command, "-c", "slow.toml", cwd=folder, stdin=b"Go\n") as process:
        assert process.stdout is not None
        assert process.stdout.read(8) == b"one two "
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
    total = report(penstock_here)["total"]
    assert (total["requests"], total["amount_nanos"]) == (1, total["estimated_nanos"])
    # Two short words, a thousand dollars a million.
    assert 2_000_000 <= total["amount_nanos"] < 10_000_000
    assert penstock_here("budget", "verify").code == 0


def test_a_killed_answer_is_in_the_ledger(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    with started_penstock("ask", "Go", "-c", "slow.toml", cwd=folder) as process:
        assert process.stdout is not None
        assert process.stdout.read(8) == b"one two "
        process.kill()
    (entry,) = json.loads(penstock_here("usage", "--entries", "--json").out)["entries"]
    assert (entry["kind"], entry["provider"], entry["model"]) == ("hold", "slow", "m")
    assert penstock_here("budget", "verify").code == 0
