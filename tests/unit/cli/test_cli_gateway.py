"""`penstock requests` and `penstock targets`: they ask the gateway that runs."""

import contextlib
import json
import re
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.harness import Finished, run_penstock, started_penstock
from tests.unit.cli.trickle import trickling

ADMIN = "admin-key-of-the-tests-0123456789"
CONFIG = """
[server]
admin_key = "{admin}"
port = {port}
[providers.fake]
[providers.gone]
kind = "openai-chat"
url = "http://127.0.0.1:{closed}/v1"
auth_token = "sk-secret-of-gone-123456"
[pool]
retries = 0
[models.default]
targets = ["fake/echo"]
[models.broken]
targets = ["gone/m"]
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def configure(folder: Path, admin: str = ADMIN) -> int:
    port = free_port()
    file = folder / "penstock.toml"
    file.write_text(CONFIG.format(admin=admin, port=port, closed=free_port()))
    return port


@contextlib.contextmanager
def gateway(folder: Path) -> Generator[str]:
    """A gateway with the configuration of this folder; gives its address."""
    with started_penstock("serve", cwd=folder) as process:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, b""):
            if found := re.search(rb"https?://127\.0\.0\.1:(\d+)", line):
                yield found[0].decode()
                break


def ask(url: str, **fields: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)


def narrow(shown: Finished) -> str:
    """The output, which must fit into 80 columns."""
    assert shown.code == 0, shown.err
    assert all(len(line) <= 80 for line in shown.out.splitlines()), shown.out
    assert "\x1b" not in shown.out
    return shown.out


def test_why_a_request_failed_is_shown(tmp_path: Path) -> None:
    configure(tmp_path)

    def run(*arguments: str) -> Finished:
        return run_penstock("requests", *arguments, cwd=tmp_path)

    with gateway(tmp_path) as url:
        empty = run("list")
        assert (empty.code, empty.out) == (0, "")
        assert "the gateway knows no such request" in empty.err
        good, bad = ask(url), ask(url, model="broken")
        good_id, bad_id = (each.headers["x-request-id"] for each in (good, bad))

        listed = narrow(run("list"))
        assert re.search(rf"{good_id} +\S+ +ok +fake/echo", listed)
        assert re.search(rf"{bad_id} +\S+ +failed +gone/m", listed)
        failed = json.loads(run("list", "--outcome", "failed", "--json").out)["requests"]
        assert [each["request_id"] for each in failed] == [bad_id]

        shown = narrow(run("show", bad_id))
        assert "attempt 1  gone/m  failed: ProviderUnavailable" in shown
        assert "cannot connect to http://127.0.0.1:" in shown
        document = json.loads(run("show", bad_id, "--json").out)
        assert document["entries"] == []
        (attempt,) = document["request"]["attempts"]
        assert attempt["error_text"].startswith("cannot connect to")

        unknown = run("show", "nope")
        assert (unknown.code, unknown.out) == (2, "")
        assert "the ledger has no request 'nope' either" in unknown.err
        ended = run("stop", good_id)
        assert (ended.code, ended.out) == (2, "")
        assert "it has ended, or the id is another" in ended.err
        while good_id not in (ledger := run("list", "--ledger")).out:
            assert ledger.code == 0
        assert "settle" in ledger.out
        wrong = run("list", "--outcome", "bad")
        assert (wrong.code, wrong.err) == (
            2,
            "penstock: error: --outcome: 'bad' is none; give ok, failed, cancelled\n",
        )
    # Without a gateway the ledger tells what it has.
    gone = run("list")
    assert (gone.code, gone.out) == (1, "")
    assert "no gateway answers at http://127.0.0.1:" in gone.err
    assert "penstock serve" in gone.err
    history = run("show", good_id)
    assert history.code == 0
    assert "The ledger has" in history.err
    assert good_id in history.out


def test_a_running_request_is_stopped(tmp_path: Path) -> None:
    configure(tmp_path)
    with trickling() as upstream, ThreadPoolExecutor() as threads:
        file = tmp_path / "penstock.toml"
        file.write_text(
            file.read_text()
            + f'[providers.slow]\nkind = "openai-chat"\nurl = "{upstream.url}"\n'
            + '[models.slow]\ntargets = ["slow/m"]\n'
        )
        with gateway(tmp_path) as url:
            asked = threads.submit(ask, url, model="slow", stream=True)
            running: list[dict[str, str]] = []
            while not running:
                listed = run_penstock(
                    "requests", "list", "--state", "running", "--json", cwd=tmp_path
                )
                running = json.loads(listed.out)["requests"]
            identifier = running[0]["request_id"]
            stopped = run_penstock("requests", "stop", identifier, cwd=tmp_path)
            assert (stopped.code, stopped.out) == (0, f"stopped {identifier}\n")
            assert upstream.hung_up.wait(30)
            assert "[DONE]" not in asked.result(30).text


def test_targets_are_taken_out_of_use_and_back(tmp_path: Path) -> None:
    configure(tmp_path)

    def run(*arguments: str) -> Finished:
        return run_penstock("targets", *arguments, cwd=tmp_path)

    with gateway(tmp_path) as url:
        assert "no target was called yet" in run("list").err
        down = narrow(run("down", "fake/echo", "--reason", "maintenance"))
        assert down.startswith("marked down: fake/echo\n")
        assert re.search(r"fake/echo +down +open .*when marked up +\d+ s ago +mark", down)
        assert "fake/echo: marked down: maintenance" in down
        assert ask(url).status_code == 503 or ask(url).status_code == 502
        up = json.loads(run("up", "fake/echo", "--json").out)
        assert [each["state"] for each in up["targets"]] == ["closed"]
        assert ask(url).status_code == 200
        assert re.search(r"fake/echo +up +closed .* s ago +requests", narrow(run("list")))
        # A provider, whose targets it names; one that has none yet is named itself.
        assert narrow(run("down", "fake")).startswith("marked down: fake/echo\n")
        assert narrow(run("up", "f*/*")).startswith("marked up: fake/echo\n")
        unknown = run("down", "nope/x")
        assert (unknown.code, unknown.out) == (2, "")
        assert "'nope/x' matches no target" in unknown.err


@pytest.mark.parametrize("command", [("requests", "list"), ("targets", "list")])
def test_without_an_admin_key_it_says_what_to_write(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    configure(tmp_path, admin="")
    refused = run_penstock(*command, cwd=tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert "admin_key = " in refused.err


def test_another_admin_key_or_address_is_said(tmp_path: Path) -> None:
    configure(tmp_path)
    with gateway(tmp_path) as url:
        other = tmp_path / "other"
        other.mkdir()
        configure(other, admin="another-admin-key-0123456789")
        refused = run_penstock("requests", "list", "--url", url, cwd=other)
        assert (refused.code, refused.out) == (2, "")
        assert "refuses the admin key" in refused.err
        variable = {"PENSTOCK_ADMIN_KEY": ADMIN}
        known = run_penstock("requests", "list", "--json", "--url", url, cwd=other, env=variable)
        assert json.loads(known.out) == {"requests": []}
        nonsense = run_penstock("requests", "list", "--url", "localhost", cwd=other)
        assert (nonsense.code, nonsense.out) == (2, "")
        assert "write it as http://127.0.0.1:8400" in nonsense.err


def test_usage_by_a_tag_of_requests(tmp_path: Path) -> None:
    configure(tmp_path)

    def rows() -> dict[str | None, int]:
        shown = run_penstock("usage", "--by", "tag:team", "--json", cwd=tmp_path)
        return {row["tag:team"]: row["requests"] for row in json.loads(shown.out)["rows"]}

    with gateway(tmp_path) as url:
        ask(url, metadata={"team": "blue"})
        ask(url, metadata={"team": "red"})
        ask(url)
        # What is settled is written a moment after the answer.
        while sum(rows().values()) < 3:
            pass
        assert rows() == {"blue": 1, "red": 1, None: 1}
        by = run_penstock("usage", "--by", "tag:team", cwd=tmp_path)
    assert by.code == 0, by.err
    assert re.search(r"TEAM +REQUESTS", by.out)
    assert re.search(r"blue +1 ", by.out)
    assert re.search(r"no team +1 ", by.out)
    for given in ("tag:", "team"):
        refused = run_penstock("usage", "--by", given, cwd=tmp_path)
        assert (refused.code, refused.out) == (2, "")
        assert "tag:NAME" in refused.err
