"""An environment is made once, whoever asks, and what goes wrong is said with its remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import environment

pytestmark = pytest.mark.timeout(environment.INSTALL_SECONDS)


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    """A lock file without packages, which pip installs without a network."""
    file = tmp_path / "nothing.txt"
    file.write_text("# none\n")
    return file


def test_it_is_made_once_and_has_none_of_our_packages(
    nothing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment.python_with(nothing, tmp_path / "cache")
    probe = [str(python), "-c", "import pytest"]
    assert b"No module named" in subprocess.run(probe, capture_output=True, check=False).stderr
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # a second install would fail
    assert environment.python_with(nothing, tmp_path / "cache") == python


def test_what_an_interrupted_install_has_left_is_replaced(nothing: Path, tmp_path: Path) -> None:
    folder = environment.python_with(nothing, tmp_path / "cache").parents[1]
    (folder / "installed").unlink()
    (folder / "half").touch()
    assert environment.python_with(nothing, tmp_path / "cache").parents[1] == folder
    assert not (folder / "half").exists()


def test_a_package_without_its_hash_is_not_installed(tmp_path: Path) -> None:
    lock_file = tmp_path / "client-damaged.txt"
    lock_file.write_text(f"litellm==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(
        pytest.fail.Exception, match=r"requirements/client-damaged\.txt.*make test-peers"
    ):
        environment.required_python(lock_file, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/installed"))
