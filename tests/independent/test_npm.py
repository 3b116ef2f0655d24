"""The npm package is installed once, whoever asks, and what goes wrong is said with its remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.independent.aimock import PACKAGES, aimock_service
from tests.support import node
from tests.support.services import free_port, wait_until


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A project without dependencies, which npm installs without a network."""
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "nothing", "private": true}')
    (folder / "package-lock.json").write_text(
        '{"name": "nothing", "lockfileVersion": 3, "requires": true, "packages": {"": {}}}'
    )
    return folder


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A registry that nobody runs, and no copy of what an earlier run has fetched."""
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{free_port()}/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))


def test_packages_are_installed_once(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = node.npm_packages(locked, cache)
    monkeypatch.setattr(node, "NODE", Path("/nowhere/node"))  # a second install would fail
    assert node.npm_packages(locked, cache) == first


def test_what_an_interrupted_install_has_left_is_replaced(locked: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = node.npm_packages(locked, cache).parent
    (folder / "installed").unlink()
    (folder / "half").touch()
    assert node.npm_packages(locked, cache).parent == folder
    assert (folder / "installed").exists()
    assert not (folder / "half").exists()


def test_two_processes_install_once(locked: Path, tmp_path: Path) -> None:
    """The second waits for the first, and finds its work done."""
    code = (
        "import sys; from pathlib import Path; from tests.support import node; "
        "print(node.npm_packages(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(locked), str(tmp_path / "cache")]
    running = [
        subprocess.Popen(command, cwd=node.ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(said) == 1


@pytest.mark.usefixtures("unreachable")
def test_far_from_a_network_the_tests_are_skipped_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match=r"run `make test-peers` once where that registry"
    ):
        node.required_packages(PACKAGES, tmp_path / "cache")


@pytest.mark.usefixtures("unreachable")
def test_in_ci_they_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="npm could not install"):
        node.required_packages(PACKAGES, tmp_path / "cache")


def test_a_damaged_package_fails_everywhere(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    (locked / "package-lock.json").write_text("{")
    with pytest.raises(pytest.fail.Exception, match="npm could not install"):
        node.required_packages(locked, tmp_path / "cache")


@pytest.mark.usefixtures("aimock")  # which has it installed, without a time limit
def test_nothing_of_aimock_outlives_its_block() -> None:
    with aimock_service("sk-test") as server:
        address = f":{server.port:04X} "
        assert _listening(address)
    assert wait_until(lambda: not _listening(address), 5)


def _listening(address: str) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return any(address in line.split()[1] + " " and line.split()[3] == "0A" for line in lines[1:])
