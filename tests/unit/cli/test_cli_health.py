"""`penstock health`: the port and the TLS of the configuration, and what is not well."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.tls import make_authority
from tests.unit.cli.harness import run_penstock, started_penstock

FAKE = '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'


@contextlib.contextmanager
def gateway(folder: Path, more: str = "") -> Generator[str]:
    """A gateway with this configuration; gives its port."""
    (folder / "penstock.toml").write_text(FAKE + more)
    with started_penstock("serve", "--port", "0", cwd=folder) as process:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, b""):
            if found := re.search(rb"https?://127\.0\.0\.1:(\d+)", line):
                yield found[1].decode()
                break


def test_a_gateway_that_answers(tmp_path: Path) -> None:
    with gateway(tmp_path) as port:
        healthy = run_penstock("health", "--port", port, cwd=tmp_path)
        assert (healthy.code, healthy.err) == (0, "")
        assert healthy.out == f"http://127.0.0.1:{port}/health: ok\n"
        ready = run_penstock("health", "--port", port, "--ready", "--json", cwd=tmp_path)
        assert json.loads(ready.out)["status"] == "ready"


def test_a_gateway_with_tls_must_have_the_configured_certificate(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    # Named after another machine, as certificates of services are.
    (tmp_path / "mine").mkdir()
    mine = authority.server_file("127.0.0.2")
    with gateway(tmp_path, f'[server]\ntls_certificate = "{mine}"\n') as port:
        healthy = run_penstock("health", "--port", port, cwd=tmp_path)
        assert healthy.out == f"https://127.0.0.1:{port}/health: ok\n", healthy.err
        other = tmp_path / "other.toml"
        theirs = make_authority(tmp_path / "mine").server_file()
        other.write_text(FAKE + f'[server]\ntls_certificate = "{theirs}"\n')
        refused = run_penstock("health", "--port", port, "-c", str(other), cwd=tmp_path)
        assert refused.code == 1
        assert "certificate verify failed" in refused.error_line


def test_nothing_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (tmp_path / "penstock.toml").write_text(FAKE + f"[server]\nport = {port}\n")
    failed = run_penstock("health", cwd=tmp_path)
    assert failed.code == 1
    assert failed.out == ""
    assert f"no gateway answers at http://127.0.0.1:{port}/health" in failed.error_line


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (503, b'{"status": "unready"}', "answers 503"),
        (200, b"<html>a router</html>", "not as a Penstock gateway"),
        (200, b"[]", "not as a Penstock gateway"),
    ],
)
def test_something_else_answers(tmp_path: Path, status: int, body: bytes, said: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        failed = run_penstock("health", "--port", str(server.server_port), cwd=tmp_path)
        thread.join(30)
    assert failed.code == 1
    assert said in failed.error_line
