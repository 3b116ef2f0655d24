"""Creates the environment and installs the locked packages, Penstock and the embedded model.

Usage: python3 scripts/setup_venv.py VENV REQUIREMENTS

It runs on the system's Python before anything is installed, so it uses the standard library only.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# -P: the folder that this runs in is no place to import from.
PIP = ["-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
WARNING = re.compile(r"^(WARNING|DEPRECATION|\[notice\])")
PINNED = re.compile(r"^[A-Za-z0-9._-]+(?:\[.*\])?==", re.MULTILINE)
COLLECTING = re.compile(r"^\s*(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")


def stop(message: str) -> None:
    sys.exit("Penstock: " + message)


def check_venv_module() -> None:
    try:
        import ensurepip  # noqa: F401 # pyright: ignore[reportUnusedImport]
        import venv  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ImportError:
        stop("the venv module is missing: apt-get install python3-venv")


class Step:
    """One line of progress: rewritten in place on a terminal, printed once elsewhere."""

    def __init__(self, label: str, total: int = 0) -> None:
        self.label = label
        self.total = total
        self.started = time.monotonic()
        self.live = sys.stdout.isatty() and "CI" not in os.environ
        if not self.live:
            print("  " + label, flush=True)

    def show(self, done: int, note: str) -> None:
        if not self.live:
            return
        bar = ""
        if self.total:
            filled = 20 * min(done, self.total) // self.total
            bar = " [" + "#" * filled + "." * (20 - filled) + "]"
        print(f"\r\x1b[2K  {self.label}{bar} {note[:40]}", end="", flush=True)

    def finish(self) -> None:
        if self.live:
            seconds = time.monotonic() - self.started
            print(f"\r\x1b[2K  {self.label} ({seconds:.0f} s)", flush=True)


def run_step(step: Step, command: list[str]) -> None:
    """Run `command`, show what it is at, and show all that it said only when it fails."""
    said: list[str] = []
    done = 0
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        found = COLLECTING.match(line)
        if found:
            done += 1
            step.show(done, found.group(1))
        elif line.startswith("Installing collected packages"):
            step.show(step.total, "unpacking")
    if process.wait() != 0:
        if step.live:
            print(flush=True)
        sys.stderr.write("".join(line for line in said if not WARNING.match(line)))
        stop(
            step.label
            + " failed; the reason is above. The same command continues where it stopped."
        )
    step.finish()


def works(python: Path) -> bool:
    if not python.exists():
        return False
    probe = [str(python), "-P", "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def main(arguments: list[str]) -> None:
    check_venv_module()
    venv_path, requirements = Path(arguments[0]), Path(arguments[1])
    python = ROOT / venv_path / "bin" / "python"
    print(f"Setting up Penstock in {venv_path} (once)", flush=True)
    if not works(python):
        version = ".".join(str(part) for part in sys.version_info[:3])
        create = [sys.executable, "-P", "-m", "venv", "--clear", str(venv_path)]
        run_step(Step("creating the environment with Python " + version), create)
    count = len(PINNED.findall((ROOT / requirements).read_text(encoding="utf-8")))
    run_step(
        Step(f"installing {count} locked packages", count),
        [
            str(python),
            *PIP,
            "install",
            "--progress-bar=off",
            "--require-hashes",
            # The file names all there is. Where a package asks for another with extras, pip would
            # look beyond it, and refuse what has been released since.
            "--no-deps",
            "-r",
            str(requirements),
        ],
    )
    run_step(
        Step("installing Penstock"),
        [str(python), *PIP, "install", "--no-deps", "--no-build-isolation", "--editable", "."],
    )
    print("  installing the embedded model", flush=True)
    result = subprocess.run(
        [str(python.parent / "penstock"), "embedded", "install"], check=False, cwd=ROOT
    )
    if result.returncode != 0:
        stop("the embedded model could not be installed; the reason is above.")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        stop("stopped. The same command continues where it stopped.")
