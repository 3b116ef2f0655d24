"""The fuzzing run itself: it does not pass when it has looked at nothing."""

from pathlib import Path

import pytest

from tests.fuzz import run
from tests.support.environment import PipFailedError


def test_a_run_without_the_fuzzer_fails_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def python_with(lock: Path) -> Path:
        raise PipFailedError(lock, "no matching distribution")

    monkeypatch.setattr(run, "python_with", python_with)
    assert run.main(["toml", "--seconds", "1"]) == run.NOT_FUZZED != 0
    assert "NO PARSER WAS FUZZED" in capsys.readouterr().out
