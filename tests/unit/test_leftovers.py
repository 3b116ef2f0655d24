"""A run of the tests finds the processes that it leaves behind."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.leftovers import VARIABLE, leftovers

FOREVER = (sys.executable, "-c", "print(flush=True); input()")


def test_a_running_child_is_found_and_can_be_ended() -> None:
    with subprocess.Popen(FOREVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = [each for each in leftovers() if each.pid == child.pid]
        assert [each.command for each in found] == [" ".join(FOREVER)]
        found[0].kill()
        assert child.wait(30) == -9


def test_an_ended_child_is_not_found() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    # It stays a zombie until its parent asks.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in [each.pid for each in leftovers()]
    assert child.wait(30) == 0


def test_this_process_and_its_parents_are_not_leftovers() -> None:
    assert {os.getpid(), os.getppid()}.isdisjoint(each.pid for each in leftovers())


def test_a_run_that_leaves_a_process_behind_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os, subprocess\n"
        "def test_it():\n"
        f"    child = subprocess.Popen({FOREVER!r}, stdin=subprocess.PIPE)\n"
        "    os.dup(child.stdin.fileno())\n"
    )
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != VARIABLE and not name.startswith("PYTEST_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.leftovers", "-W", "ignore", "."],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "still alive at the end of the run: 1" in done.stdout
