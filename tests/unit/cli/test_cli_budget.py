"""`penstock budget`: limits that hold for the next command, and errors that say what to write."""

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.budget.ledger import Ledger
from penstock.contract.ports import Target
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import run_penstock, started_penstock
from tests.unit.cli.money import ONE_ANSWER, PAID, database, spend

DECLARED = PAID + "[budgets.total]\nlimit_usd = 5\n"


@pytest.fixture
def paid(folder: Path) -> Path:
    """A folder in which answers cost something."""
    (folder / "penstock.toml").write_text(PAID)
    return folder


def budgets(penstock_here: Cli, *arguments: str) -> dict[str, dict[str, Any]]:
    """All of them by name."""
    finished = penstock_here("budget", "list", "--json", *arguments)
    assert (finished.code, finished.err) == (0, "")
    return {each["name"]: each for each in json.loads(finished.out)["budgets"]}


def test_without_any_budget_it_says_how_to_set_one(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("budget", "list")
    assert (finished.code, finished.out) == (0, "")
    assert finished.error_line == "there are no budgets; try: penstock budget set total 100"
    assert budgets(penstock_here) == {}


def test_a_budget_is_set_with_everything_that_it_can_have(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here(
        *("budget", "set", "team", "100.5", "--period", "week", "--timezone", "Europe/Berlin"),
        *("--provider", "fake", "--model", "echo", "--key", "ci", "--tag", "team=blue"),
        *("--soft", "--warn-at", "0.5", "--warn-at", "0.9"),
    )
    assert (finished.code, finished.err) == (0, "")
    assert finished.out == (
        "team: $100.50 a week for provider fake, model echo, key ci, team=blue, soft; "
        "$0.00 used, $100.50 left\n"
    )
    found = budgets(penstock_here)["team"]
    assert found.pop("period_start") < time.time() < found.pop("resets_at")
    assert found == {
        "name": "team",
        "limit_nanos": 100_500_000_000,
        "limit_usd": 100.5,
        "period": "week",
        "timezone": "Europe/Berlin",
        "provider": "fake",
        "model": "echo",
        "key": "ci",
        "tags": {"team": "blue"},
        "hard": False,
        "warn_at": [0.5, 0.9],
        "used_nanos": 0,
        "held_nanos": 0,
        "remaining_nanos": 100_500_000_000,
        "overdrawn": False,
        "declared_by": [],
        "overrides": [],
        "in_force": True,
    }
    heading, row = penstock_here("budget", "list").out.splitlines()
    assert heading.split("  ")[0] == "BUDGET"
    assert "week, soft" in row
    assert row.endswith("00:00 Europe/Berlin")


def test_a_budget_that_is_spent_refuses_the_next_question(paid: Path, penstock_here: Cli) -> None:
    assert penstock_here("ask", "Count.", "--max-tokens", "60").code == 0
    finished = penstock_here("budget", "set", "total", "0.0021", "--json")
    # What was spent before counts.
    assert json.loads(finished.out)["used_nanos"] == ONE_ANSWER
    assert penstock_here("ask", "Count.", "--max-tokens", "60").code == 0
    refused = penstock_here("ask", "Count.", "--max-tokens", "60")
    assert (refused.code, refused.out) == (1, "")
    assert "budget 'total' has $0.000294 left of $0.0021 (month)" in refused.err
    assert budgets(penstock_here)["total"]["used_nanos"] == 2 * ONE_ANSWER
    assert "$0.00 used, $0.0021 left" in penstock_here("budget", "reset", "total").out
    assert penstock_here("ask", "Count.", "--max-tokens", "60").code == 0
    assert penstock_here("budget", "remove", "total").out == "removed total\n"
    assert penstock_here("ask", "Count.").code == 0
    assert penstock_here("budget", "verify").out == "10 entries: everything adds up\n"


def test_a_soft_budget_warns_once_and_refuses_nothing(paid: Path) -> None:
    run_penstock("budget", "set", "soft", "0.0015", "--soft", "--warn-at", "0.5", cwd=paid)
    first = run_penstock("ask", "Count.", cwd=paid)
    assert (first.code, first.out.count(" ")) == (0, 59)
    assert "budget 'soft': $0.000903 of $0.0015 are spent" in first.error_line
    second = run_penstock("ask", "Count.", cwd=paid)
    assert second.code == 0
    assert "above the $0.0015 to warn at" in second.err
    third = run_penstock("ask", "Count.", cwd=paid)
    assert (third.code, "warn" in third.err) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["-5"],
            "USD: -5 is not a valid limit: give US dollars from 0 to 1,000,000,000; 0 refuses",
        ),
        (["-0.5"], "USD: -0.5 is not a valid limit: give"),
        (["1e12"], "USD: 1e12 is not a valid limit: give US dollars"),
        (["1e-10"], "give an amount of at most nine decimals"),
        (["nan"], "limit_usd: NaN USD"),
        (["1e999999999"], "USD: 1e999999999 is not a valid limit"),
        (["much"], "USD: 'much' is not a number: give US dollars such as 100 or 0.50"),
        (["5", "--period", "year"], "period 'year' is not known: give hour, day, week, month"),
        (["5", "--timezone", "Mars/Base"], "budget 'x': timezone 'Mars/Base' is not known: give"),
        (["5", "--timezone", ""], "timezone '' is not known"),
        (["5", "--provider", ""], "provider is empty: give a name, or leave it out to cover all"),
        (["5", "--warn-at", "-1"], "warn_at has -1.0: give shares of the limit above 0"),
        (["5", "--tag", "blue"], "--tag: 'blue': give NAME=VALUE, such as team=blue"),
        (["5", "--perod", "day"], "unexpected extra argument"),
        ([], "missing argument 'USD'"),
    ],
)
def test_nonsense_is_refused_with_the_remedy(
    folder: Path, penstock_here: Cli, arguments: list[str], said: str
) -> None:
    finished = penstock_here("budget", "set", "x", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.error_line
    assert budgets(penstock_here) == {}


def test_an_unknown_option_is_taken_for_no_name(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("budget", "set", "--perod", "5")
    assert (finished.code, finished.out) == (2, "")
    assert "NAME: '--perod' is neither an option of this command" in finished.error_line


def test_a_budget_that_is_not_there_is_named_with_those_that_are(
    folder: Path, penstock_here: Cli
) -> None:
    penstock_here("budget", "set", "total", "5")
    for command in ("reset", "remove"):
        finished = penstock_here("budget", command, "totl")
        assert (finished.code, finished.out) == (2, "")
        assert finished.error_line.endswith("there is no budget 'totl'; there are: total")


def test_a_provider_that_nobody_knows_is_pointed_out(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("budget", "set", "x", "5", "--provider", "faek")
    assert finished.code == 0
    assert "there is no provider 'faek'" in finished.error_line


def in_ledger(path: Path) -> list[tuple[Any, ...]]:
    """The budgets in the file: names, limits, and whether they are declared."""
    with sqlite3.connect(path) as connection:
        query = "SELECT name, definition ->> 'limit_nanos', declared FROM ledger_budgets"
        found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_a_budget_of_the_file_is_overridden_by_hand_and_restored(
    folder: Path, penstock_here: Cli
) -> None:
    (folder / "penstock.toml").write_text(DECLARED)
    file = folder / "penstock.toml"
    assert penstock_here("ask", "Hello", "--max-tokens", "9").code == 0
    assert budgets(penstock_here)["total"]["limit_usd"] == 5
    refused = penstock_here("budget", "remove", "total")
    assert refused.code == 2
    assert "is in the configuration: take [budgets.total] out of it" in refused.error_line
    finished = penstock_here("budget", "set", "total", "7")
    assert f"note: it overrides [budgets.total] of {file} ($5.00 a month)" in finished.error_line
    listed = penstock_here("budget", "list")
    assert "set by hand and overrides [budgets.total]" in listed.error_line
    assert json.loads(penstock_here("budget", "list", "--json").out)["budgets"][0]["overrides"] == [
        {"source": str(file), "limit_usd": 5.0}
    ]
    removed = penstock_here("budget", "remove", "total")
    assert removed.out == f"removed total; [budgets.total] of {file} holds again: $5.00 a month\n"
    assert in_ledger(database()) == [("total", 5_000_000_000, 1)]


READING = (
    ("budget", "list"),
    ("budget", "verify"),
    ("usage",),
    ("usage", "--entries"),
    ("keys", "list"),
    ("models",),
    ("models", "--prices"),
    ("providers",),
    ("route", "explain", "Hello"),
    ("doctor",),
)


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_command_that_reads_declares_no_budgets(
    folder: Path, penstock_here: Cli, command: tuple[str, ...]
) -> None:
    (folder / "gateway.toml").write_text(DECLARED)
    assert penstock_here("ask", "Hello", "-c", "gateway.toml").code == 0
    before = in_ledger(database())
    assert before == [("total", 5_000_000_000, 1)]
    (folder / "other.toml").write_text(
        DECLARED.replace("= 5", "= 50") + "[budgets.more]\nlimit_usd = 1\n"
    )
    assert penstock_here(*command, "-c", "other.toml").code == 0
    assert in_ledger(database()) == before


def test_what_is_declared_and_not_in_force_is_listed_as_that(
    folder: Path, penstock_here: Cli
) -> None:
    (folder / "penstock.toml").write_text(PAID)
    assert penstock_here("ask", "Count.", "--max-tokens", "60").code == 0
    (folder / "penstock.toml").write_text(DECLARED)
    (found,) = json.loads(penstock_here("budget", "list", "--json").out)["budgets"]
    assert (found["in_force"], found["used_nanos"]) == (False, ONE_ANSWER)
    assert "is not in force yet" in penstock_here("budget", "list").error_line
    assert in_ledger(database()) == []
    for command in ("reset", "remove"):
        assert "is in the configuration" in penstock_here("budget", command, "total").error_line


@pytest.mark.parametrize("command", [("ask", "Hi"), ("embed", "Hi"), ("serve", "--port", "0")])
def test_two_projects_on_the_default_ledger_do_not_share_budgets_by_accident(
    folder: Path, penstock_here: Cli, command: tuple[str, ...]
) -> None:
    one, two = folder / "one.toml", folder / "two.toml"
    one.write_text(DECLARED)
    two.write_text(DECLARED.replace("total", "other"))
    assert penstock_here("ask", "Hello", "-c", str(one)).code == 0
    refused = penstock_here(*command, "-c", str(two))
    assert refused.code != 0
    assert f"has budgets of {one} (total), and {two} declares budgets too" in refused.err
    assert in_ledger(database()) == [("total", 5_000_000_000, 1)]
    # A ledger of its own; or the same one, on purpose.
    two.write_text(two.read_text() + '[storage]\nurl = "sqlite:///two.db"\n')
    assert penstock_here("ask", "Hello", "-c", str(two)).code == 0
    two.write_text(two.read_text().replace("two.db", "penstock.db"))
    assert penstock_here("ask", "Hello", "-c", str(two)).code == 0
    assert [name for name, _, _ in in_ledger(database())] == ["total", "other"]


def test_two_projects_that_share_a_ledger_do_not_overwrite_each_other(
    folder: Path, penstock_here: Cli
) -> None:
    shared = '[storage]\nurl = "sqlite:///penstock.db"\n'
    one, two = folder / "one.toml", folder / "two.toml"
    one.write_text(DECLARED + shared)
    two.write_text(DECLARED.replace("= 5", "= 50") + shared)
    assert penstock_here("ask", "Hello", "-c", str(one)).code == 0
    refused = penstock_here("ask", "Hello", "-c", str(two))
    assert (refused.code, refused.out) == (2, "")
    assert f"$5.00 a month by {one}, and $50.00 a month by {two}" in refused.error_line
    assert in_ledger(database()) == [("total", 5_000_000_000, 1)]
    # The project has moved: its earlier file is not there any more.
    one.unlink()
    moved = penstock_here("ask", "Hello", "-c", str(two))
    assert moved.code == 0
    assert in_ledger(database()) == [("total", 50_000_000_000, 1)]


async def _abandoned(at: float) -> None:
    ledger = await Ledger.open(database(), clock=lambda: at)
    await ledger.reserve("lost", [(Target("fake", "words-60"), 5_000)])
    await ledger.aclose()


def test_what_a_killed_command_held_blocks_nobody_for_long(paid: Path, penstock_here: Cli) -> None:
    penstock_here("budget", "set", "total", "5")
    now = time.time()
    asyncio.run(_abandoned(now))
    assert budgets(penstock_here)["total"]["held_nanos"] == 5_000
    asyncio.run(_abandoned(now - 1_000))
    found = budgets_after_warning(penstock_here)
    assert (found["held_nanos"], found["used_nanos"]) == (5_000, 5_000)


def budgets_after_warning(penstock_here: Cli) -> dict[str, Any]:
    """The one budget; that something was swept may be in the log."""
    (found,) = json.loads(penstock_here("budget", "list", "--json").out)["budgets"]
    return found


def test_verify_shows_what_does_not_add_up(folder: Path, penstock_here: Cli) -> None:
    penstock_here("budget", "set", "total", "5")
    spend((time.time(), "fake/echo", 700))
    assert json.loads(penstock_here("budget", "verify", "--json").out) == {
        "ok": True,
        "entries": 2,
        "differences": [],
    }
    with sqlite3.connect(database()) as connection:
        connection.execute("UPDATE ledger_balances SET used = 600")
    connection.close()
    finished = penstock_here("budget", "verify")
    assert finished.code == 1
    assert "budget total in its period from" in finished.out
    assert "used 600, held 0" in finished.out
    assert "used 700, held 0" in finished.out
    assert "1 difference" in finished.err
    found = penstock_here("budget", "verify", "--json")
    assert found.code == 1
    assert json.loads(found.out)["ok"] is False
    doctor = json.loads(penstock_here("doctor", "--json").out)
    (ledger,) = [each for each in doctor["findings"] if each["check"] == "ledger"]
    assert ledger["status"] == "problem"
    assert "1 difference between balances and entries" in ledger["says"]
    assert ledger["do"] == "see them with: penstock budget verify"


def test_a_gateway_says_at_its_start_what_was_overridden(folder: Path, penstock_here: Cli) -> None:
    (folder / "penstock.toml").write_text(DECLARED)
    assert penstock_here("ask", "Hello", "--max-tokens", "9").code == 0
    penstock_here("budget", "set", "total", "7")
    with started_penstock("serve", "--port", "0", cwd=folder) as gateway:
        assert gateway.stderr is not None
        said = next(line for line in gateway.stderr if b"budget 'total'" in line).decode()
        gateway.terminate()
    assert "($7.00 a month) was set by hand and overrides [budgets.total]" in said
