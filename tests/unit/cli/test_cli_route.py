"""`penstock route explain`."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal

CONFIG = """
[providers.big]
kind = "fake"
[providers.small]
kind = "fake"
[models.assistant]
targets = ["big/gpt-6-astra", "small/gpt-6-luna"]
routing = "learned"
prices."big/gpt-6-astra" = { input = 10.0, output = 50.0 }
prices."small/gpt-6-luna" = { input = 0.1, output = 0.5 }
[models.plain]
targets = ["small/gpt-6-luna"]
"""
WHY = ("route", "explain", "Why is the sky blue?", "--model", "assistant")


@pytest.fixture
def routed(folder: Path) -> Path:
    (folder / "penstock.toml").write_text(CONFIG)
    return folder


@pytest.mark.parametrize(
    ("options", "winner"),
    [
        (("--intelligence", "1"), "big/gpt-6-astra"),
        (("--cost", "1"), "small/gpt-6-luna"),
        (("--speed", "1"), "small/gpt-6-luna"),
        (("--cost", "1", "--hint", "nothing", "--hint", "astra"), "big/gpt-6-astra"),
        (("--cost", "1", "--hint", "opus"), "big/gpt-6-astra"),
        (("--intelligence", "1", "--provider", "small"), "small/gpt-6-luna"),
    ],
)
def test_the_winner_is_told_with_its_scores(
    routed: Path, penstock_here: Cli, options: tuple[str, ...], winner: str
) -> None:
    document = json.loads(penstock_here(*WHY, *options, "--json").out)
    assert document["winner"] == document["ranked"][0]["target"] == winner
    assert (document["strategy"], document["explored"]) == ("learned", False)
    assert document["reason"].startswith(f"{winner} is ")
    for each in document["ranked"]:
        assert each["cost_usd"] > 0
        assert each["latency_ms"] > 0
        assert 0 < each["quality"] < 1
        assert each["available"] is True
    told = {each["target"] for each in (*document["ranked"], *document["left_out"])}
    assert told == {"big/gpt-6-astra", "small/gpt-6-luna"}


def test_the_table_tells_every_column_and_the_sentence(routed: Path, penstock_here: Cli) -> None:
    lines = penstock_here(*WHY, "--cost", "1", "--hint", "luna").out.splitlines()
    titles = "TARGET QUALITY COST LATENCY HINT HEALTH UTILITY CHANCE"
    assert lines[0].split() == titles.split()
    assert lines[1].split()[0] == "small/gpt-6-luna"
    assert lines[-1].startswith(
        "small/gpt-6-luna is first of 2 targets (learned): it matches hint 1, 'luna' and has"
    )
    plain = penstock_here("route", "explain", "Hi", "--model", "plain").out.splitlines()
    assert plain[0].split() == ["TARGET", "QUALITY", "COST", "LATENCY", "HEALTH"]
    assert plain[-1] == "small/gpt-6-luna is the only target: it is target 1 of 'plain'."


def test_priorities_of_an_ordered_model_are_explained(folder: Path, penstock_here: Cli) -> None:
    def explain(setting: str) -> str:
        config = CONFIG.replace('routing = "learned"', setting)
        (folder / "penstock.toml").write_text(config)
        return penstock_here(*WHY, "--cost", "1").out.splitlines()[-1]

    assert explain("").startswith(
        "small/gpt-6-luna is first of 2 targets (priorities): it has the best utility of "
    )
    first = "big/gpt-6-astra is first of 2 targets (ordered): it is target 1 of 'assistant'."
    assert explain('priorities = "off"') == (
        f"{first} The request's priorities are not used: "
        "`priorities` is \"off\" for the model 'assistant'."
    )
    assert explain('routing = "cheapest"').endswith(
        "`routing` of the model 'assistant' is \"cheapest\"."
    )


def test_who_is_left_out_is_told(routed: Path, penstock_here: Cli) -> None:
    lines = penstock_here(*WHY, "--provider", "big").out.splitlines()
    assert lines[-1] == (
        "left out: small/gpt-6-luna: is not of the provider 'big'; target 2 of 'assistant'"
    )


def test_people_get_a_table_that_is_drawn(routed: Path) -> None:
    with at_terminal(*WHY, cwd=routed) as terminal:
        assert terminal.wait() == 0
    assert "───" in terminal.screen
    assert "(learned)" in terminal.screen


def test_a_provider_that_is_not_there_is_refused_with_the_nearest(
    routed: Path, penstock_here: Cli
) -> None:
    finished = penstock_here(*WHY, "--provider", "smal")
    assert finished.code == 2
    assert finished.error_line == (
        "penstock: error: metadata._provider: there is no provider 'smal'; did you mean 'small'?"
    )


def test_what_budgets_would_decide_is_shown(routed: Path, penstock_here: Cli) -> None:
    (routed / "penstock.toml").write_text(f"{CONFIG}[budgets.total]\nlimit_usd = 0.001\n")
    finished = penstock_here(*WHY, "--intelligence", "1")
    assert finished.code == 0, finished.err
    heading, big, small = finished.out.splitlines()[:3]
    assert heading.endswith("BUDGETS")
    assert big.startswith("big/gpt-6-astra")
    assert big.endswith("no room: total")
    assert small.endswith("fits")
    assert "does not fit: budget 'total' has $0.001 left of $0.001 (month)" in finished.out
    document = json.loads(penstock_here(*WHY, "--intelligence", "1", "--json").out)
    (verdict,) = document["ranked"][0]["budgets"]
    assert (verdict["budget"], verdict["fits"], verdict["hard"]) == ("total", False, True)
    assert verdict["asked_nanos"] > verdict["remaining_nanos"] == 1_000_000
