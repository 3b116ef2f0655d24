"""The fuzzing run itself: it does not pass when it has looked at nothing."""

from pathlib import Path

import pytest

from tests.fuzz import run
from tests.support.environment import PipFailedError


@pytest.fixture(autouse=True)
def installer_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test` runs these tests, and installs nothing."""

    def python_with(lock: Path) -> Path:
        raise PipFailedError(lock, "no matching distribution")

    monkeypatch.setattr(run, "python_with", python_with)


def test_a_run_without_the_fuzzer_fails_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["toml", "--seconds", "1"]) == run.NOT_FUZZED != 0
    assert "NO PARSER WAS FUZZED" in capsys.readouterr().out
