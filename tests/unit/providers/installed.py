"""Packages that bring providers, installed into folders of a test."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.blocks import ROOT
from tests.support.unmeasured import unmeasured_environment

PACKAGE = ROOT / "examples" / "acme_provider"


def install_example(folder: Path) -> Path:
    """Build the example package as pip builds it, and install it there; needs no network."""
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", folder, PACKAGE],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env=unmeasured_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@contextmanager
def demo_server(folder: Path) -> Generator[str]:
    """The address of the example's own server, run from the installed package."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock_acme.demo", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**unmeasured_environment(), "PYTHONPATH": str(folder)},
    )
    with process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def write_package(folder: Path, name: str, code: str, *kinds: str) -> Path:
    """A package of one module, as an installer leaves it; each kind is `name = module:object`."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    lines = "".join(f"{kind}\n" for kind in kinds)
    (info / "entry_points.txt").write_text(f"[penstock.providers]\n{lines}")
    return folder
