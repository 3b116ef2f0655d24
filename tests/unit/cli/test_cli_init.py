"""`penstock init`, and the file that it writes."""

import re
from pathlib import Path
from typing import get_args

import pytest

from penstock.config.load import parse
from penstock.config.settings import Config, Section
from penstock.config.template import template
from penstock.providers.registry import BUILT_IN
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal


def sections() -> dict[str, type[Section]]:
    """Every kind of table that the file may hold."""
    found: dict[str, type[Section]] = {}
    for name, field in Config.model_fields.items():
        kind = field.annotation
        section = kind if isinstance(kind, type) else get_args(kind)[1]
        assert issubclass(section, Section)
        found[name] = section
    return found


def test_the_file_loads_as_it_is_and_amounts_to_the_defaults() -> None:
    assert parse(template()) == Config.embedded()


def test_the_file_names_every_setting_with_its_description() -> None:
    flat = " ".join(template().replace("#", " ").split())
    for section in sections().values():
        for name, field in section.model_fields.items():
            assert name in flat
            assert field.description is not None
            assert " ".join(field.description.split()) in flat


def test_the_shown_defaults_are_the_defaults() -> None:
    tables = "|".join(name for name in sections() if name not in ("providers", "models"))
    live = ""
    for table in re.findall(rf"^\[(?:{tables})\]\n(?:.+\n)*", template(), re.MULTILINE):
        live += re.sub(r"^#(\w+ = (?!\"\"$))", r"\1", table, flags=re.MULTILINE) + "\n"
    assert re.search(r"^port = 8400$", live, re.MULTILINE)
    assert parse(live) == Config.embedded()


def test_the_examples_load_when_their_comment_signs_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEAM_API_KEY", "k")
    shown = (
        r"\[|url|kind|auth_token|model_path|targets|limit_usd|period|timezone|provider|hard"
        r"|hash|models|requests_per|tokens_per|budget"
    )
    examples = re.sub(rf"^#({shown})", r"\1", template(), flags=re.MULTILINE)
    config = parse(examples)
    assert {"openai-chat", "groq", "vllm", "team", "own", "embedded"} == set(config.providers)
    assert config.models["assistant"].targets[0].startswith("groq/")
    assert {name: budget.period for name, budget in config.budgets.items()} == {
        "total": "month",
        "groq": "week",
    }
    assert config.keys["ci"].budget is not None
    assert all((provider.kind or name) in BUILT_IN for name, provider in config.providers.items())


def test_init_writes_the_file_once(bare_folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("init")
    assert (finished.code, finished.out, finished.err) == (0, "wrote penstock.toml\n", "")
    assert Path("penstock.toml").read_text() == template()
    Path("penstock.toml").write_text("mine")
    assert penstock_here("init").code == 2
    assert Path("penstock.toml").read_text() == "mine"
    assert penstock_here("init", "--force").code == 0
    assert Path("penstock.toml").read_text() == template()


def test_init_takes_a_folder_a_file_or_a_dash(bare_folder: Path, penstock_here: Cli) -> None:
    Path("conf").mkdir()
    assert penstock_here("init", "conf").out == "wrote conf/penstock.toml\n"
    assert penstock_here("init", "conf/other.toml").code == 0
    assert penstock_here("init", "-").out == template()


def test_a_terminal_hears_what_to_do_next(bare_folder: Path) -> None:
    with at_terminal("init", cwd=bare_folder) as terminal:
        assert terminal.wait() == 0
    assert "Check it with: penstock doctor" in terminal.screen


def test_a_folder_that_is_not_there_yet_is_made(folder: Path, penstock_here: Cli) -> None:
    assert penstock_here("init", "new/home").code == 0
    assert parse((folder / "new" / "home" / "penstock.toml").read_text()) == Config.embedded()
