"""What each command prints in 80 columns without colour, kept as files that people look at.

`UPDATE_SNAPSHOTS=1 make test ARGS="-k cli_snapshots"` writes `snapshots/NAME.txt` again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import httpx
import pytest
from typer.main import get_command

from penstock.cli.app import build
from penstock.cli.commands import ask, chat, doctor, embed, init, models, providers, serve, trust
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import LIMIT_S, at_terminal, run_penstock, started_penstock

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
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b[A-Z][a-z]{2} \d\d [A-Z][a-z]{2}\b"), "DAY"),
    (re.compile(r'"(at|period_start|resets_at)":( ?)\d+(\.\d+)?'), r'"\1":\g<2>0'),
    (re.compile(r"^ok +python .*\n( {20}.*\n)*", re.MULTILINE), ""),
    (re.compile(r"^penstock \d\S*$", re.MULTILINE), "penstock VERSION"),
    # As wide as the times in the table were.
    (re.compile(r"^─{20,}$", re.MULTILINE), "─" * 20),
    (re.compile(r"^Penstock \d\S*", re.MULTILINE), "Penstock VERSION"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
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


BUDGETS = """\
[budgets.team]
limit_usd = 20
period = "day"
"""
GROUPS = {
    "budget": "list set reset remove verify",
    "embedded": "install status",
    "keys": "create list set rotate revoke hash",
    "mcp": "call sample-test serve tools",
    "requests": "list show stop",
    "route": "explain feedback train export forget",
    "storage": "accept",
    "targets": "list down up",
}
COMMANDS = (
    *("ask", "chat", "embed", "models", "providers", "usage", "audit", "doctor", "init", "trust"),
    *("serve", "health"),
)


class Case(NamedTuple):
    """A command line, its input and its configuration."""

    arguments: str
    stdin: str = ""
    config: str = TWO_MODELS
    earlier: tuple[str, ...] = ()
    """Commands that were run before."""


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
    "doctor": Case("doctor"),
    "usage": Case("usage", earlier=("ask two words", "ask -m words two")),
    "usage-json": Case("usage --json", earlier=("ask two words",)),
    "usage-entries": Case("usage --entries", earlier=("ask two words",)),
    "budget-list": Case(
        "budget list",
        config=TWO_MODELS + BUDGETS,
        earlier=("trust penstock.toml", "ask two words"),
    ),
    "budget-list-json": Case("budget list --json", earlier=("budget set total 100",)),
    "budget-set": Case("budget set total 100 --period week"),
    "budget-set-overriding": Case(
        "budget set team 7",
        config=TWO_MODELS + BUDGETS,
        earlier=("trust penstock.toml", "ask two words"),
    ),
    "budget-set-bad-limit": Case("budget set total much"),
    "budget-remove-unknown": Case("budget remove nope"),
    "budget-verify": Case("budget verify", earlier=("ask two words",)),
    "audit-none": Case("audit"),
    "audit-none-of-kind": Case("audit --action set_budget"),
    "audit": Case("audit", earlier=("budget set total 100", "budget reset total")),
    "audit-json": Case("audit --json", earlier=("budget set total 100",)),
    "keys-list-none": Case("keys list"),
    "keys-list": Case("keys list", earlier=("keys create ci --models words", "keys create cd")),
    "keys-list-json": Case("keys list --json", earlier=("keys create ci",)),
    "keys-create-bad-name": Case("keys create a/b"),
    "keys-set-bad-number": Case("keys set ci --requests-per-minute none"),
    "keys-rotate-bad-time": Case("keys rotate ci --grace 1", earlier=("keys create ci",)),
    "keys-revoke": Case("keys revoke ci", earlier=("keys create ci",)),
    "route-train-none": Case("route train nowhere.csv"),
    "requests-no-admin-key": Case("requests list"),
    "targets-no-admin-key": Case("targets list"),
    "trust-list": Case("trust --list", earlier=("trust penstock.toml",)),
}
AT_TERMINAL = (
    *("ask", "ask-json", "ask-wrong-config", "ask-unknown-model", "models", "providers"),
    *("providers-check", "route", "doctor-wrong-config", "init", "ask-help"),
    *("doctor", "usage", "budget-list", "budget-set-overriding", "audit"),
    *("keys-list", "budget-set-bad-limit", "requests-no-admin-key", "ask-no-key"),
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
    # Who changes something is in the audit trail.
    monkeypatch.setenv("LOGNAME", "user")
    for name in ("GROQ_API_KEY", "OPENAI_API_KEY", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield root
    shutil.rmtree(root)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


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
    for earlier in case.earlier:
        assert penstock_here(*earlier.split()).code == 0
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
    for earlier in case.earlier:
        assert run_penstock(*earlier.split(), cwd=Path.cwd()).code == 0
    env = {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    arguments = case.arguments.split()
    with at_terminal(*arguments, cwd=Path.cwd(), env=env, columns=COLUMNS) as terminal:
        code = terminal.wait()
    assert not with_colours(terminal.raw)
    screen = scrubbed(terminal.screen, place)
    check(f"{name}-at-terminal", f"$ penstock {case.arguments}\n{screen}--- exit {code}\n")


def helps() -> dict[str, list[list[str]]]:
    """The command lines of each file of help texts."""
    alone = {name: [[name]] for name in COMMANDS}
    groups = {
        group: [[group], *([group, each] for each in names.split())]
        for group, names in GROUPS.items()
    }
    return {"penstock": [[]], **alone, **groups}


@pytest.mark.parametrize("name", helps())
def test_help_is_whole_and_fits_into_80_columns(name: str, place: Path, penstock_here: Cli) -> None:
    parts: list[str] = []
    for arguments in helps()[name]:
        finished = penstock_here(*arguments, "--help")
        assert (finished.code, finished.err) == (0, "")
        parts.append(f"$ penstock {' '.join([*arguments, '--help'])}\n{finished.out}")
        lines = finished.out.splitlines()
        assert [line for line in lines if len(line) > COLUMNS] == []
        assert [line for line in lines[1:] if line.endswith("...")] == []
    check(f"help-{name}", scrubbed("\n".join(parts), place))


def test_help_covers_every_command() -> None:
    app = get_command(build(rich=False))
    found = {
        name: sorted(getattr(command, "commands", ()))
        for name, command in getattr(app, "commands", {}).items()
    }
    shown = {name: sorted(names.split()) for name, names in GROUPS.items()}
    assert found == {**{name: [] for name in COMMANDS}, **shown}


def test_without_arguments_the_help_is_shown(place: Path, penstock_here: Cli) -> None:
    assert penstock_here() == penstock_here("--help")


def test_the_start_screen_of_the_gateway_and_what_asks_it(place: Path) -> None:
    port = free_port()
    # Written as the port of each run, for widths depend on it.
    config = f'[server]\nport = {port}\nadmin_key = "admin-key-of-the-snapshots"\n{TWO_MODELS}'
    Path("penstock.toml").write_text(config)
    here = Path.cwd()
    shown: list[str] = []

    def run(line: str) -> None:
        finished = run_penstock(*line.split(), cwd=here)
        assert [each for each in finished.out.splitlines() if len(each) > COLUMNS] == []
        shown.append(f"$ penstock {line}\n{finished.out}--- stderr\n{finished.err}")

    assert run_penstock("trust", "penstock.toml", cwd=here).code == 0
    with started_penstock("serve", cwd=here) as process:
        assert process.stdout is not None
        screen: list[str] = []
        for line in iter(process.stdout.readline, b""):
            screen.append(line.decode())
            if b"Ctrl-C stops" in line:
                break
        run("requests list")
        run("targets list")
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
        )
        request_id = answer.headers["x-request-id"]
        for line in (
            *("requests list", f"requests show {request_id}", "targets list"),
            *("targets down fake --reason maintenance", "targets list", "targets up fake"),
            *("targets down nope", "requests stop nope", "health", "health --ready"),
        ):
            run(line)
        process.send_signal(signal.SIGTERM)
        screen += [line.decode() for line in process.stdout]
        assert process.wait(LIMIT_S) == 0
    for name, text in (("serve", "".join(screen)), ("gateway", "\n".join(shown))):
        # Columns are as wide as the times in them were.
        narrow = re.sub(r"(?<=\S) {2,}", "  ", scrubbed(text, place))
        check(name, narrow.replace(str(port), "PORT").replace(sys.executable, "PYTHON"))


@pytest.mark.parametrize(
    "module", [ask, chat, doctor, embed, init, models, providers, serve, trust]
)
def test_examples_fit_into_80_columns(module: ModuleType) -> None:
    # At a terminal, help keeps the lines as they are written.
    assert [line for line in module.EXAMPLES.splitlines() if len(line) > COLUMNS - 2] == []


def test_every_snapshot_has_its_case() -> None:
    names = {*CASES, *(f"{name}-at-terminal" for name in AT_TERMINAL), "help-penstock"}
    names |= {f"help-{name}" for name in (*COMMANDS, *GROUPS)} | {"gateway", "serve"}
    assert {file.stem for file in FOLDER.iterdir()} == names
