"""The note below the first answer of the bundled model, and the servers that it looks for."""

import contextlib
import json
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.actions.small_model_note import LocalServer, Note
from penstock.config.load import load
from tests.support.services import free_port
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal, started_with

OLLAMA = {"models": [{"name": "nomic-embed-text:latest"}, {"name": "qwen3:4b"}]}
LLAMA_CPP = {"data": [{"id": "qwen3-4b.gguf", "owned_by": "llamacpp"}]}
LM_STUDIO = {"data": [{"id": "text-embedding-a"}, {"id": "google/gemma-3", "owned_by": "x"}]}


@contextlib.contextmanager
def serving(body: bytes) -> Generator[tuple[int, list[str]]]:
    """A server that gives this to every GET; its port, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def looked(kind: str, port: int, path: str = "/v1/models", owner: str = "") -> str:
    """What the note says once it has looked at this one server."""
    titles = {"ollama": "Ollama", "llamacpp": "llama.cpp", "lmstudio": "LM Studio"}
    before = set(threading.enumerate())
    note = Note((LocalServer(titles[kind], kind, port, path, owner),))
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    return note.text(None)


@pytest.mark.parametrize(
    ("kind", "page", "owner", "model"),
    [
        ("ollama", OLLAMA, "", "ollama/qwen3:4b"),
        ("llamacpp", LLAMA_CPP, "llamacpp", "llamacpp/qwen3-4b.gguf"),
        ("lmstudio", LM_STUDIO, "", "lmstudio/google/gemma-3"),
    ],
)
def test_a_server_on_this_machine_is_found_with_its_first_model(
    kind: str, page: Any, owner: str, model: str
) -> None:
    with serving(json.dumps(page).encode()) as (port, asked):
        text = looked(kind, port, owner=owner)
    assert f"--model {model}" in text
    assert "runs on this machine" in text
    assert asked == ["/v1/models"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"data": 3}',
        b'{"data": [3, null, {"id": 4}]}',
        b'{"data": [{"id": "another", "owned_by": "somebody"}]}',
        json.dumps({"data": [{"id": "x; rm -rf /", "owned_by": "llamacpp"}]}).encode(),
        json.dumps({"data": [{"id": "\x1b[31m", "owned_by": "llamacpp"}]}).encode(),
        b'{"data": [' + b"[" * 100_000,
        b'{"data": [{"id": "a", "owned_by": "llamacpp"}], "x": "' + b"a" * 2**19 + b'"}',
    ],
)
def test_another_program_at_the_port_is_not_taken_for_one(body: bytes) -> None:
    with serving(body) as (port, _):
        assert "GROQ_API_KEY" in looked("llamacpp", port, owner="llamacpp")


def test_nothing_waits_for_a_server_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        note = Note((LocalServer("Ollama", "ollama", server.getsockname()[1], "/api/tags"),))
        assert "GROQ_API_KEY" in note.text(None)


def at_home(folder: Path, home: Path, port: int) -> dict[str, str]:
    server = f'LocalServer("Ollama", "ollama", {port}, "/api/tags")'
    code = f"from penstock.cli import small_model as m\nm.SERVERS = (m.{server},)\n"
    return {**started_with(folder, code), "PENSTOCK_HOME": str(home)}


def test_the_note_comes_once_and_only_at_a_terminal(
    bare_folder: Path, tmp_path: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with serving(json.dumps(OLLAMA).encode()) as (port, _):
        env = at_home(bare_folder, home, port)
        ask = ("ask", "Hi", "--max-tokens", "3")
        with at_terminal(*ask, "--json", cwd=bare_folder, env=env) as terminal:
            assert terminal.wait() == 0
        assert "trying out" not in terminal.screen
        with at_terminal(*ask, cwd=bare_folder, env=env) as terminal:
            assert terminal.wait() == 0
        assert "very small model that is meant for trying out" in terminal.screen
        assert f"penstock init {home} --model" in terminal.screen
        with at_terminal(*ask, cwd=bare_folder, env=env) as terminal:
            assert terminal.wait() == 0
        assert "trying out" not in terminal.screen
    (home / "small-model-note").unlink()
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    finished = penstock_here(*ask)
    assert (finished.code, finished.err) == (0, "")
    assert not (home / "small-model-note").exists()


def test_a_model_that_was_asked_for_and_one_of_a_server_have_no_note(
    folder: Path, tmp_path: Path
) -> None:
    env = at_home(folder, tmp_path / "home", free_port())
    for ask in (("ask", "Hi"), ("ask", "Hi", "-m", "embedded/smollm2", "--max-tokens", "2")):
        with at_terminal(*ask, cwd=folder, env=env) as terminal:
            assert terminal.wait() == 0
        assert "trying out" not in terminal.screen


def test_init_writes_the_model_that_answers_by_default(
    bare_folder: Path, penstock_here: Cli
) -> None:
    finished = penstock_here("init", "own", "--model", "ollama/qwen3:4b")
    assert finished.code == 0
    config = load(str(bare_folder / "own" / "penstock.toml"))
    assert config.models["default"].targets == ("ollama/qwen3:4b",)


@pytest.mark.parametrize(
    ("model", "told"),
    [("qwen3", "write provider/model"), ("olama/x", "did you mean 'ollama'"), ("a/b c", "write")],
)
def test_init_refuses_a_model_that_is_none(
    bare_folder: Path, penstock_here: Cli, model: str, told: str
) -> None:
    finished = penstock_here("init", "--model", model)
    assert finished.code == 2
    assert told in finished.error_line
    assert not (bare_folder / "penstock.toml").exists()
