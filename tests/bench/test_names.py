"""`bench/mcp.py` has the name of a package, and must not be taken for it."""

import subprocess
import sys
from pathlib import Path

import mcp
import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
TELL = """
import sys
before = sys.path[:]
from mcp import Client
import mcp, mcp.client.session
import _support
print(mcp.__file__, sys.modules["mcp"] is mcp, Client is mcp.client.client.Client)
print(before == sys.path)
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.mark.parametrize("cwd", [ROOT, BENCH], ids=["from-the-root", "from-its-folder"])
def test_a_script_in_the_folder_of_the_benches_gets_the_package(cwd: Path) -> None:
    # A script has its own folder first in the search, which `-c` has not.
    done = run("-c", f"import sys\nsys.path.insert(0, {str(BENCH)!r})\n{TELL}", cwd=cwd)
    assert done.stdout.splitlines() == [f"{mcp.__file__} True True", "True"], done.stderr


def test_code_that_is_run_in_the_folder_gets_the_package() -> None:
    done = run("-c", TELL, cwd=BENCH)
    assert done.stdout.splitlines() == [f"{mcp.__file__} True True", "True"], done.stderr


def test_a_bench_that_needs_the_package_by_way_of_another_gets_it() -> None:
    done = run("-c", "import penstock.mcp, mcp\nprint(mcp.__file__)", cwd=BENCH)
    assert done.stdout.split() == [mcp.__file__], done.stderr


def test_where_the_package_is_missing_it_is_said_to_be() -> None:
    # Without `site` there is nothing installed, as in the environment of a peer.
    done = run("-S", "-c", "import mcp", cwd=BENCH)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'mcp'"
