"""What each command prints in 80 columns without colour, kept as files that people look at.

`UPDATE_SNAPSHOTS=1 make test ARGS="-k cli_snapshots"` writes `snapshots/NAME.txt` again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from penstock.cli.commands import ask, chat, doctor, embed, init, models, providers, serve, trust
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal

FOLDER = Path(__file__).with_name("snapshots")
UPDATE = "UPDATE_SNAPSHOTS"
COLUMNS = 80
# Fixed in length, for where a line is folded depends on it.
ROOT = "/tmp/penstock-snapshot-"
SCRUBBED = (
    (re.compile(r"\b(req|chatcmpl|dec)_[0-9a-f]{8,}"), r"\1_ID"),
    (re.compile(r'"(latency_ms|first_token_ms)":( ?)\d+(\.\d+)?'), r'"\1":\g<2>0'),
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), r"0 \2"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?"), "TIME"),
    (re.compile(r"^ok +python .*\n( {20}.*\n)*", re.MULTILINE), ""),
    (re.compile(r"^penstock \d\S*$", re.MULTILINE), "penstock VERSION"),
    # As wide as the times in the table were.
    (re.compile(r"^─{20,}$", re.MULTILINE), "─" * 20),
    (re.compile(r"127\.0\.0\.1:\d{5}\b"), "127.0.0.1:PORT"),
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] \w[\w ]*?(?=\n|[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]|$)"), ""),
)
TWO_MODELS = """\
[providers.fake]
[providers.spare]
kind = "fake"
[models.default]
targets = ["fake/echo"]
[models.words]
targets = ["fake/words-60", "spare/echo"]
routing = "cheapest"
"""
WRONG = """\
[server]
port = "x"
[models.default]
targets = "openai/gpt-6-luna"
[pool]
retrys = 3
"""
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Case(NamedTuple):
    """A command line, its input and its configuration."""

    arguments: str
    stdin: str = ""
    config: str = TWO_MODELS


CASES: dict[str, Case] = {
    "ask-help": Case("ask --help"),
    "version": Case("--version"),
    "unknown-command": Case("asks"),
    "ask": Case("ask two words"),
    "ask-json": Case("ask --json two words"),
    "ask-schema": Case("ask --schema schema.json number"),
    "ask-piped": Case("ask Summarise:", stdin="some text"),
    "ask-empty": Case("ask"),
    "ask-unknown-option": Case("ask --modl x hi"),
    "ask-unknown-model": Case("ask -m gpt-6-luna hi"),
    "ask-unknown-provider": Case("ask -m opnai/gpt-6-luna hi"),
    "ask-bad-number": Case("ask --max-tokens many hi"),
    "ask-zero-tokens": Case("ask --max-tokens 0 hi"),
    "ask-missing-schema": Case("ask --schema nowhere.json hi"),
    "ask-wrong-config": Case("ask hi", config=WRONG),
    "ask-no-config": Case("ask -c nowhere.toml hi"),
    "ask-no-key": Case("ask -m groq/llama hi"),
    "chat": Case("chat", stdin="one\ntwo\n"),
    "chat-json": Case("chat --json", stdin="one\n"),
    "embed": Case("embed some text -m fake/echo -d 4"),
    "embed-json": Case("embed --json some text -m fake/echo -d 2"),
    "embed-empty": Case("embed"),
    "models": Case("models"),
    "models-json": Case("models --json"),
    "models-of-provider": Case("models --provider fake"),
    "models-of-unknown-provider": Case("models --provider fak"),
    "providers": Case("providers"),
    "providers-all": Case("providers --all"),
    "providers-check": Case("providers --check"),
    "providers-json": Case("providers --json"),
    "usage-none": Case("usage"),
    "doctor-wrong-config": Case("doctor", config=WRONG),
    "init": Case("init other.toml"),
    "init-again": Case("init"),
    "init-unknown-model": Case("init other.toml --model olama/x"),
    "trust-list-none": Case("trust --list"),
    "trust": Case("trust penstock.toml"),
    "trust-missing": Case("trust nowhere.toml"),
    "health-not-running": Case("health"),
    "serve-open-host": Case("serve --host 0.0.0.0 --port 0"),
    "serve-bad-port": Case("serve --port 99999"),
    "route": Case("route explain -m words prompt"),
    "route-json": Case("route explain -m words --json prompt"),
    "route-forget-nothing": Case("route forget --yes"),
    "route-feedback-unknown": Case("route feedback req_none 1"),
    "budget-list-none": Case("budget list"),
    "keys-revoke-unknown": Case("keys revoke ci"),
    "storage-accept": Case("storage accept"),
    "mcp-tools-no-server": Case("mcp tools"),
    "mcp-tools-bad-server": Case("mcp tools http://127.0.0.1:1/mcp"),
    "route-two-prompts": Case("route explain two prompts"),
    "serve-port-no-number": Case("serve --port http"),
}
AT_TERMINAL = (
    *("ask", "ask-json", "ask-wrong-config", "ask-unknown-model", "models", "providers"),
    *("providers-check", "route", "doctor-wrong-config", "init", "ask-help"),
)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A working folder and a home whose paths are always of the same length."""
    root = Path(tempfile.mkdtemp(prefix=ROOT))
    work = root / "work"
    work.mkdir()
    (work / "schema.json").write_text(json.dumps(SCHEMA))
    monkeypatch.chdir(work)
    monkeypatch.setenv("PENSTOCK_HOME", str(root / "home"))
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("GROQ_API_KEY", "OPENAI_API_KEY", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield root
    shutil.rmtree(root)


def scrubbed(text: str, root: Path) -> str:
    for pattern, stand_in in SCRUBBED:
        text = pattern.sub(stand_in, text)
    for place in {str(root), str(root.resolve())}:
        text = text.replace(place, f"{ROOT}........")
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def check(name: str, text: str) -> None:
    file = FOLDER / f"{name}.txt"
    if os.environ.get(UPDATE):
        file.write_text(text, encoding="utf-8")
    hint = f"if it is meant: {UPDATE}=1 make test ARGS='-k cli_snapshots', and look at the file"
    assert file.read_text(encoding="utf-8") == text, hint


def with_colours(text: str) -> bool:
    # Bold and dim are no colours.
    return bool(re.search(r"\x1b\[(?:\d+;)*(?:[349][0-8]|10[0-7])(?:;\d+)*m", text))


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_was_looked_at(name: str, place: Path, penstock_here: Cli) -> None:
    case = CASES[name]
    Path("penstock.toml").write_text(case.config)
    finished = penstock_here(*case.arguments.split(), stdin=case.stdin)
    assert "\x1b" not in finished.out + finished.err
    assert "Traceback" not in finished.err
    shown = (
        f"$ penstock {case.arguments}\n{finished.out}"
        f"--- stderr\n{finished.err}--- exit {finished.code}\n"
    )
    if "--json" in case.arguments and not finished.code:
        for line in finished.out.splitlines():
            json.loads(line)
    check(name, scrubbed(shown, place))


@pytest.mark.parametrize("name", AT_TERMINAL)
def test_a_command_at_a_terminal_keeps_to_its_80_columns(name: str, place: Path) -> None:
    case = CASES[name]
    Path("penstock.toml").write_text(case.config)
    env = {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    arguments = case.arguments.split()
    with at_terminal(*arguments, cwd=Path.cwd(), env=env, columns=COLUMNS) as terminal:
        code = terminal.wait()
    assert not with_colours(terminal.raw)
    screen = scrubbed(terminal.screen, place)
    check(f"{name}-at-terminal", f"$ penstock {case.arguments}\n{screen}--- exit {code}\n")


@pytest.mark.parametrize(
    "module", [ask, chat, doctor, embed, init, models, providers, serve, trust]
)
def test_examples_fit_into_80_columns(module: ModuleType) -> None:
    # At a terminal, help keeps the lines as they are written.
    assert [line for line in module.EXAMPLES.splitlines() if len(line) > COLUMNS - 2] == []


def test_every_snapshot_has_its_case() -> None:
    names = {*CASES, *(f"{name}-at-terminal" for name in AT_TERMINAL)}
    assert {file.stem for file in FOLDER.iterdir()} == names
