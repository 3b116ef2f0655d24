"""`penstock models` and `penstock providers`."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.providers.registry import BUILT_IN
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal
from tests.unit.cli.trickle import TrickleServer

SECRET = "sk-do-not-show-this"


@pytest.fixture
def many_providers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration with every way to give a key."""
    monkeypatch.setenv("GROQ_API_KEY", SECRET)
    (folder / "many.toml").write_text(
        f"""
        [providers.fake]
        [providers.groq]
        [providers.mistral]
        [providers.team]
        kind = "openai-chat"
        auth_token = "{SECRET}"
        [providers.own]
        kind = "openai-chat"
        url = "http://user:{SECRET}@127.0.0.1:9/v1"
        """
    )
    return "many.toml"


def test_models_are_listed_with_their_targets(penstock_process: Cli) -> None:
    finished = penstock_process("models")
    assert finished.out.splitlines() == [
        "MODEL    DEFAULT  TARGETS, IN ORDER",
        "default  yes      fake/echo",
        "words             fake/words-60",
    ]
    assert finished.err == ""


def test_models_as_json(folder: Path, penstock_here: Cli) -> None:
    document = json.loads(penstock_here("models", "--json").out)
    assert document["models"][0] == {
        "name": "default",
        "default": True,
        "routing": "ordered",
        "targets": ["fake/echo"],
    }


def test_a_provider_is_asked_for_its_models(
    trickle_server: TrickleServer, penstock_here: Cli
) -> None:
    finished = penstock_here("models", "--provider", "slow", "-c", "slow.toml")
    assert finished.out == "MODEL\nslow/m\n"
    document = json.loads(penstock_here("models", "-p", "slow", "-c", "slow.toml", "--json").out)
    assert document == {"provider": "slow", "models": [{"id": "m"}]}


PRICES = """
[providers.claude]
kind = "anthropic"
auth_token = "k"
[providers.own]
kind = "vllm"
url = "https://llm.example.com/v1"
[models.assistant]
targets = ["claude/claude-haiku-5-5", "ollama/qwen3", "own/a", "own/b", "openai/whisper-1"]
prices."own/a" = { input = 0.1, output = 0.4 }
[models.again]
targets = ["own/b"]
"""


def test_prices_are_listed_with_their_source(folder: Path, penstock_here: Cli) -> None:
    (folder / "prices.toml").write_text(PRICES)
    finished = penstock_here("models", "--prices", "-c", "prices.toml")
    listed = f"genai-prices {version('genai-prices')}"
    assert [re.split(r"  +", line) for line in finished.out.splitlines()] == [
        ["TARGET", "INPUT", "CACHED", "OUTPUT", "PRICE FROM"],
        [
            "claude/claude-haiku-5-5",
            "0.1",
            "0.01",
            "0.5",
            f"{listed}; other prices above 100,000 tokens",
        ],
        ["ollama/qwen3", "0", "0", "local"],
        ["own/a", "0.1", "0.4", "configuration"],
        ["own/b", "no price is known"],
        ["openai/whisper-1", f"{listed}; 0.006 for a minute of sound"],
    ]
    assert finished.err == ""


def test_prices_as_json(folder: Path, penstock_here: Cli) -> None:
    (folder / "prices.toml").write_text(PRICES)
    document = json.loads(penstock_here("models", "--prices", "--json", "-c", "prices.toml").out)
    rows = {row["target"]: row for row in document["prices"]}
    haiku = rows["claude/claude-haiku-5-5"]
    assert (haiku["input"], haiku["cached_input"], haiku["thresholds"]) == (0.1, 0.01, [100_000])
    assert haiku["entry"] == "anthropic/claude-haiku-5-5"
    assert rows["own/b"] == {"target": "own/b", "known": False}
    assert rows["own/a"]["source"] == "configuration"


def test_a_provider_s_own_offers_have_prices_too(
    trickle_server: TrickleServer, penstock_here: Cli
) -> None:
    finished = penstock_here("models", "--prices", "--provider", "slow", "-c", "slow.toml")
    assert finished.out.splitlines()[1].split() == ["slow/m", "0", "0", "local"]


def test_a_configuration_without_models_says_so(folder: Path, penstock_here: Cli) -> None:
    (folder / "none.toml").write_text("[providers.fake]\n")
    finished = penstock_here("models", "-c", "none.toml")
    assert (finished.code, finished.out) == (0, "")
    assert "write provider/model" in finished.err


def test_providers_tell_whether_their_key_is_set_and_never_the_key(
    many_providers: str, penstock_here: Cli
) -> None:
    finished = penstock_here("providers", "-c", many_providers)
    rows = {line.split()[0]: line for line in finished.out.splitlines()}
    assert rows["groq"].endswith("GROQ_API_KEY     yes")
    assert rows["mistral"].endswith("MISTRAL_API_KEY  no")
    assert rows["team"].endswith("configuration    yes")
    assert "http://127.0.0.1:9/v1" in rows["own"]
    assert SECRET not in finished.out
    as_json = penstock_here("providers", "-c", many_providers, "--json").out
    assert SECRET not in as_json
    found = {row["name"]: row for row in json.loads(as_json)["providers"]}
    assert found["mistral"]["key_missing"] is True
    assert "key_missing" not in found["own"]
    assert found["groq"]["key_from"] == "GROQ_API_KEY"


def test_all_kinds_can_be_listed(folder: Path, penstock_here: Cli) -> None:
    document = json.loads(penstock_here("providers", "--all", "--json").out)
    assert {row["name"] for row in document["providers"]} == set(BUILT_IN)
    assert [row["name"] for row in document["providers"] if row["configured"]] == ["fake"]


def test_check_asks_the_configured_ones(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    (folder / "both.toml").write_text(
        trickle_server.config() + '[providers.gone]\nkind = "vllm"\nurl = "http://127.0.0.1:9/v1"\n'
    )
    command = ("providers", "--check", "--all", "-c", "both.toml")
    found = {
        row["name"]: row for row in json.loads(penstock_here(*command, "--json").out)["providers"]
    }
    assert found["slow"]["status"] == "up"
    assert isinstance(found["slow"]["latency_ms"], int)
    assert found["gone"]["status"] == "down"
    assert "cannot connect" in found["gone"]["error"]
    assert "status" not in found["groq"]
    table, _, reasons = penstock_here(*command).out.partition("\n\n")
    rows = {line.split()[0]: line for line in table.splitlines()}
    assert "up, " in rows["slow"]
    assert rows["gone"].endswith("down")
    assert reasons.startswith("gone: cannot connect")
    assert rows["groq"].endswith("not configured")


def test_a_terminal_gets_a_drawn_table(folder: Path) -> None:
    with at_terminal("providers", "--check", cwd=folder) as terminal:
        assert terminal.wait() == 0
    assert "───" in terminal.screen
    assert "\x1b[1mfake" in terminal.raw
    assert "up, " in terminal.screen


def test_no_color_is_respected(folder: Path) -> None:
    with at_terminal("providers", cwd=folder, env={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait() == 0
    assert "\x1b[3" not in terminal.raw
