"""Another spelling of a model has no other price, and passes none of the budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import BudgetExceeded, Config, Engine, InvalidRequest
from penstock.config.load import parse
from penstock.contract.ports import Target
from penstock.providers.registry import model_name

CONFIG = """
[providers.gem]
kind = "gemini"
auth_token = "none"
url = "http://127.0.0.1:9"
[providers.oll]
kind = "ollama"
url = "http://127.0.0.1:9"
[models.priced]
targets = ["gem/gemini-2.5-flash", "oll/qwen3"]
prices."gem/gemini-2.5-flash" = {{ input = 1000.0, output = 1000.0 }}
prices."oll/qwen3" = {{ input = 1000.0, output = 1000.0 }}
[storage]
url = "sqlite:///{folder}/ledger.db"
[budgets.pro]
limit_usd = 0.0001
model = "gemini-2.5-pro"
[budgets.all]
limit_usd = 1.0
"""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(parse(CONFIG.format(folder=tmp_path)))


def test_one_model_has_one_name() -> None:
    assert model_name("gemini", "models/gemini-2.5-pro") == "gemini-2.5-pro"
    assert model_name("ollama", "qwen3:latest") == "qwen3"
    assert model_name("ollama", "qwen3:8b") == "qwen3:8b"
    assert model_name("gemini", "models/") == "models/"
    assert model_name("openai", "models/x:latest") == "models/x:latest"


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("gem/models/gemini-2.5-flash", "gem/gemini-2.5-flash"),
        ("gem/Gemini-2.5-Flash", "gem/gemini-2.5-flash"),
        ("oll/qwen3:latest", "oll/qwen3"),
        ("oll/QWEN3:latest", "oll/qwen3"),
        ("oll/qwen3:8b", "oll/qwen3:8b"),
        ("gem/models/gemini-x", "gem/gemini-x"),
    ],
)
async def test_all_spellings_are_one_target(engine: Engine, spelled: str, meant: str) -> None:
    assert [str(target) for target in engine.targets(spelled)] == [meant]
    decision = await engine.route("Hello", model=spelled)
    assert [str(each.target) for each in decision.ranked] == [meant]
    await engine.aclose()


@pytest.mark.parametrize(
    "spelled",
    [
        "gem/gemini-2.5-pro",
        "gem/models/gemini-2.5-pro",
        "gem/GEMINI-2.5-pro",
        "gem/models/gemini-2.5-flash",
        "oll/qwen3:latest",
    ],
)
async def test_a_budget_or_a_price_holds_for_every_spelling(engine: Engine, spelled: str) -> None:
    # The port of the provider is closed: a request that were admitted would fail otherwise.
    with pytest.raises(BudgetExceeded):
        await engine.create_message("Hello", model=spelled, max_tokens=2_000)
    await engine.aclose()


@pytest.mark.parametrize(
    "name", ["oll/qwen3 ", " oll/qwen3", "oll/qw\u200ben3", "oll/q\n", "oll/\x1b[2J"]
)
async def test_blanks_and_invisible_characters_are_no_part_of_a_name(
    engine: Engine, name: str
) -> None:
    with pytest.raises(InvalidRequest, match="no invisible characters"):
        await engine.create_message("Hello", model=name, max_tokens=9)
    await engine.aclose()


def test_a_configured_spelling_stays_as_it_is() -> None:
    config = Config.model_validate(
        {
            "providers": {"gem": {"kind": "gemini", "auth_token": "none"}},
            "models": {"m": {"targets": ["gem/models/gemini-x"]}},
        }
    )
    engine = Engine(config)
    assert engine.targets("m") == (Target("gem", "models/gemini-x"),)
    assert engine.targets("gem/gemini-x") == (Target("gem", "models/gemini-x"),)
