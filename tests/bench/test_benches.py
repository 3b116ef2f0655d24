"""Every benchmark runs and checks itself; its figures are for people and are not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.unmeasured import unmeasured_environment

ROOT = Path(__file__).parents[2]
BENCHES = sorted(path.stem for path in (ROOT / "bench").glob("[a-z]*.py"))


# The first run installs the peers; later ones find them.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BENCHES)
def test_a_quick_run_ends_well_and_prints_one_json_document(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--quick", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        # What is timed is not to be measured by another.
        env=unmeasured_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
