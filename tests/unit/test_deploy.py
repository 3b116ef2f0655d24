"""What lies in deploy/ fits the gateway that it starts."""

import configparser
import json
import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.config.load import load
from penstock.server.process.systemd import notify
from tests.unit.cli.harness import run_penstock, started_penstock

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


@pytest.fixture
def unit() -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - names keep their case
    parser.read(DEPLOY / "penstock.service")
    return parser["Service"]


def container() -> list[tuple[str, str]]:
    """The instructions of the container file with their arguments."""
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in whole.splitlines())]


def options_of_serve(folder: Path) -> set[str]:
    return set(re.findall(r"--[a-z]+", run_penstock("serve", "--help", cwd=folder).out))


def test_the_unit_starts_and_reloads_what_there_is(
    unit: configparser.SectionProxy, tmp_path: Path
) -> None:
    program, command, *options = shlex.split(unit["ExecStart"])
    assert (Path(program).name, command) == ("penstock", "serve")
    assert {each for each in options if each.startswith("--")} <= options_of_serve(tmp_path)
    assert unit["ExecReload"].split() == ["/bin/kill", "-HUP", "$MAINPID"]
    assert unit["Type"] == "notify"
    assert float(unit["TimeoutStopSec"]) > load(DEPLOY / "penstock.toml").server.grace_s


def test_the_image_copies_what_there_is_and_runs_as_nobody(tmp_path: Path) -> None:
    steps = container()
    for source in [arguments for name, arguments in steps if name == "COPY"]:
        if not source.startswith("--from"):
            assert all((ROOT / each).exists() for each in source.split()[:-1]), source
    users = [arguments for name, arguments in steps if name == "USER"]
    assert users == ["65532:65532"]
    (entry,) = [json.loads(arguments) for name, arguments in steps if name == "ENTRYPOINT"]
    assert entry[:2] == ["penstock", "serve"]
    assert {each for each in entry if each.startswith("--")} <= options_of_serve(tmp_path)
    for script in [arguments for name, arguments in steps if name == "RUN"]:
        subprocess.run(["sh", "-n", "-c", script], check=True)


def test_the_example_configuration_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("PENSTOCK_ADMIN_KEY", "a" * 20)
    config = load(DEPLOY / "penstock.toml")
    assert config.server.workers == 2
    assert config.server.admin_key is not None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_systemd_is_told_when_it_answers_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(50)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        command = ("serve", "--port", "0", "--workers", workers)
        with started_penstock(*command, cwd=tmp_path) as process:
            assert listener.recv(100) == b"READY=1"
            process.terminate()
            assert listener.recv(100) == b"STOPPING=1"
            assert process.wait(50) == 0


def test_nobody_need_listen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    name = f"penstock-test-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("READY=1")
        assert listener.recv(100) == b"READY=1"
