"""`penstock serve` as people run it: a process, its start-up screen, its signals."""

import contextlib
import errno
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded import install
from penstock.server.http.listening import listen, url_of
from penstock.server.process.banner import Screen
from penstock.server.process.serve import serve
from tests.support.collector import collecting

SERVE = """
import sys
from penstock.config.load import load
from penstock.server.process.serve import serve
serve(load(sys.argv[1] or None), host="127.0.0.1", port=int(sys.argv[2]), source="a test")
"""
SLOW = """
[providers.fake]
[models.default]
targets = ["fake/words-60"]
"""
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
LOGGED = re.compile(r"\d\d:\d\d:\d\d (WARNING )?(chat|embeddings)  .*  req_[0-9a-f]{24}$")


class Served:
    """A running `penstock serve` with its output piped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.screen = ""
        self.read_until("Ctrl-C stops")
        match = ADDRESS.search(self.screen)
        assert match is not None, f"{self.screen}{process.poll()}"
        self.port = int(match[1])
        self.url = match[0]

    def read_until(self, words: str) -> None:
        """Read on to the line that has these words, or to the end."""
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, ""):
            self.screen += line
            if words in line:
                break

    def post(self, path: str, **fields: Any) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(fields).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=50) as response:
            return json.load(response)

    def finish(self) -> tuple[int, str, str]:
        """How it ended, and what it said besides a line for each request."""
        out, err = self.process.communicate(timeout=50)
        other = [line for line in err.splitlines(keepends=True) if not LOGGED.match(line)]
        return self.process.returncode, out, "".join(other)


def environment() -> dict[str, str]:
    source = str(Path(penstock.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source}


@contextlib.contextmanager
def served(
    folder: Path, config: str | None = SLOW, port: int = 0, before: tuple[str, ...] = ()
) -> Generator[Served]:
    path = ""
    if config is not None:
        (folder / "penstock.toml").write_text(config)
        path = str(folder / "penstock.toml")
    process = subprocess.Popen(
        [*before, sys.executable, "-c", SERVE, path, str(port)],
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield Served(process)
        finally:
            process.kill()


def test_the_screen_says_how_to_try_it_and_it_works(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        assert f"Penstock {penstock.__version__}" in gateway.screen
        assert re.search(r"configuration +a test", gateway.screen)
        assert re.search(r"provider +fake", gateway.screen)
        assert re.search(r"model +default \(fake/words-60\)", gateway.screen)
        assert "\x1b" not in gateway.screen
        (curl,) = [line for line in gateway.screen.splitlines() if "curl" in line]
        body = json.loads(curl[curl.index("-d '") + 4 : -1])
        answer = gateway.post("/v1/chat/completions", **body)
        assert answer["choices"][0]["message"]["content"].startswith("word1 word2")
        gateway.process.send_signal(signal.SIGINT)
        code, out, err = gateway.finish()
    assert (code, out.strip(), err) == (0, "Stopped.", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_stream_finish(tmp_path: Path, number: signal.Signals) -> None:
    with (
        slow_upstream() as upstream,
        served(tmp_path, wire_config(upstream.port)) as gateway,
        open_stream(gateway.port) as stream,
    ):
        read_until(stream, b'"first"')
        gateway.process.send_signal(number)
        gateway.read_until("s for 1 request;")
        upstream.go_on()
        received = b"".join(iter(lambda: stream.recv(65536), b""))
        assert b'"last"' in received
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        code, out, err = gateway.finish()
    assert (code, err) == (0, "")
    assert "Stopped." in out


def test_a_second_signal_cuts(tmp_path: Path) -> None:
    patient = "[server]\ngrace_s = 600\n"
    with (
        slow_upstream() as upstream,
        served(tmp_path, wire_config(upstream.port) + patient) as gateway,
        open_stream(gateway.port) as stream,
    ):
        read_until(stream, b'"first"')
        gateway.process.send_signal(signal.SIGTERM)
        gateway.read_until("s for 1 request;")
        gateway.process.send_signal(signal.SIGTERM)
        received = b"".join(iter(lambda: stream.recv(65536), b""))
        code, out, err = gateway.finish()
    assert b"shutting_down" in received
    assert b"[DONE]" not in received
    assert (code, err) == (0, "")
    assert "Forced exit" in out


def test_what_is_left_goes_to_the_collector_at_the_end(tmp_path: Path) -> None:
    with collecting() as collector:
        telemetry = f'[telemetry]\notlp_endpoint = "{collector.url}"\n'
        with served(tmp_path, SLOW + telemetry) as gateway:
            gateway.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}])
            gateway.process.send_signal(signal.SIGTERM)
            code, out, err = gateway.finish()
        assert (code, out.strip(), err) == (0, "Stopped.", "")
        assert sorted(span.name for span in collector.spans) == ["attempt fake/words-60", "chat"]
        assert "gen_ai.client.operation.duration" in collector.metric_names


def test_a_silent_collector_does_not_keep_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who waits for it waits longer than this test may take.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with served(tmp_path, f'{SLOW}[telemetry]\notlp_endpoint = "{url}"\n') as gateway:
            gateway.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}])
            gateway.process.send_signal(signal.SIGTERM)
            code, out, _ = gateway.finish()
    assert (code, out.strip()) == (0, "Stopped.")


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """What stands before a command whose open files are to be limited so."""
    return ("sh", "-c", f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"', "sh")


def open_files_of(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith("Max open files")).split()[3:5]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell of other processes")
def test_a_gateway_may_open_as_many_files_as_it_is_allowed_to(tmp_path: Path) -> None:
    with served(tmp_path, before=limited(256, 4096)) as gateway:
        assert open_files_of(gateway.process.pid) == ["4096", "4096"]
        gateway.process.send_signal(signal.SIGINT)
        code, _, err = gateway.finish()
    assert (code, err) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_gateway_that_may_open_few_files_says_what_to_do(tmp_path: Path) -> None:
    with served(tmp_path, before=limited(256, 1000)) as gateway:
        gateway.process.send_signal(signal.SIGINT)
        code, _, err = gateway.finish()
    assert code == 0
    assert "may open 1000 files" in err
    assert "500 requests" in err
    assert "ulimit -n" in err


def test_a_port_in_use_is_named_with_the_remedy() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            serve(Config.embedded(), host="127.0.0.1", port=port, source="x")
    assert f"port {port} on 127.0.0.1 is in use" in str(caught.value)
    assert f"--port {port + 1}" in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_an_address_that_others_can_reach_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--host 127\.0\.0\.1"):
        serve(Config.embedded(), host=host, port=0, source="x")


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigurationError, match="cannot listen on nowhere: Name or service"):
        listen("nowhere", 0)


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EACCES, "port 80 needs privileges"), (errno.EADDRNOTAVAIL, "cannot listen on ::1")],
)
def test_a_socket_that_cannot_be_bound(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ConfigurationError, match=words):
        listen("::1", 80)


def test_people_at_a_terminal_see_colours(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(SLOW)
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path / "penstock.toml"), "0"],
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "60"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    try:
        while b"Ctrl-C stops" not in seen:
            assert select.select([main], [], [], 50)[0], seen
            seen += os.read(main, 65536)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        os.close(main)
    assert b"\x1b[" in seen
    assert process.returncode == 0
    (curl,) = [line for line in seen.splitlines() if b"curl" in line]
    assert b"Name three colours" in curl


def test_without_the_embedded_model_the_screen_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("penstock.server.process.banner.missing", lambda: ["xllamacpp"])
    with listen("127.0.0.1", 0) as listener:
        Screen(Config.embedded(), url_of(listener), "no file").started()
    assert "penstock embedded install" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "folder", "shown"),
    [
        ("/x/.venv/bin", "/y", "python"),
        ("", "/x", ".venv/bin/python"),
        ("/usr/bin", "/y", "/x/.venv/bin/python"),
    ],
)
def test_the_python_line_names_the_python_that_has_penstock(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    path: str,
    folder: str,
    shown: str,
) -> None:
    found = {"/x/.venv/bin": "/x/.venv/bin/python", "/usr/bin": "/usr/bin/python", "": None}
    monkeypatch.setattr(sys, "executable", "/x/.venv/bin/python")

    def which(_: str) -> str | None:
        return found[path]

    monkeypatch.setattr("penstock.server.process.banner.find_program", which)
    monkeypatch.setattr("penstock.server.process.banner.Path.cwd", lambda: Path(folder))
    with listen("127.0.0.1", 0) as listener:
        Screen(Config.embedded(), url_of(listener), "x").started()
    assert f'\n  {shown} -c "import penstock' in capsys.readouterr().out


def test_many_models_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    targets = {f"m{number}": {"targets": ["fake/echo"]} for number in range(9)}
    config = Config.model_validate({"providers": {"fake": {}}, "models": targets})
    with listen("::1", 0) as listener:
        port = listener.getsockname()[1]
        Screen(config, url_of(listener), "x").started()
    out = capsys.readouterr().out
    assert "and 3 more" in out
    assert f"http://[::1]:{port}" in out


@pytest.mark.skipif(bool(install.missing()), reason="the embedded model is not installed")
def test_the_embedded_model_answers(tmp_path: Path) -> None:
    started = time.monotonic()
    with served(tmp_path, None) as gateway:
        with urllib.request.urlopen(f"{gateway.url}/health", timeout=30) as response:
            assert json.load(response)["status"] == "ok"
        assert time.monotonic() - started < 30
        message = {"role": "user", "content": "Name three colours"}
        answer = gateway.post("/v1/chat/completions", messages=[message], max_tokens=12)
        assert answer["choices"][0]["message"]["content"].strip()
        assert answer["usage"]["completion_tokens"] <= 12
        vectors = gateway.post("/v1/embeddings", input=["red", "blue"])
        assert len(vectors["data"]) == 2
        gateway.process.send_signal(signal.SIGINT)
        code, _, err = gateway.finish()
    assert (code, err) == (0, "")


UPSTREAM = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.say('{"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"first"}}]}')
        sys.stdin.readline()
        self.say('{"choices":[{"index":0,"delta":{"content":"last"},"finish_reason":"stop"}]}')
        self.say("[DONE]")
    def say(self, data):
        self.wfile.write(f"data: {data}\\n\\n".encode())
        self.wfile.flush()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Upstream:
    """A provider that says one word, waits until it may go on, and says the last."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self.port = int(process.stdout.readline())

    def go_on(self) -> None:
        self._input.write(b"\n")
        self._input.flush()


@contextlib.contextmanager
def slow_upstream() -> Generator[Upstream]:
    process = subprocess.Popen(
        [sys.executable, "-c", UPSTREAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            yield Upstream(process)
        finally:
            process.kill()


def wire_config(port: int) -> str:
    return f"""
[providers.up]
kind = "openai-chat"
url = "http://127.0.0.1:{port}/v1"
[models.default]
targets = ["up/m"]
"""


def read_until(connection: socket.socket, mark: bytes) -> None:
    seen = b""
    while mark not in seen:
        piece = connection.recv(65536)
        assert piece, seen
        seen += piece


@contextlib.contextmanager
def open_stream(port: int) -> Generator[socket.socket]:
    """A raw connection on which a streamed answer has been asked for."""
    body = b'{"stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}"
    with socket.create_connection(("127.0.0.1", port), 50) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        yield connection
