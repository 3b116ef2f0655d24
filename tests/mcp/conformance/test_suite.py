"""The official conformance suite against our gateway, server and client, a test for each leg.

UPDATE_CONFORMANCE=1 python -m pytest -s tests/mcp/conformance    records what it says
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

from tests.mcp.conformance import suite

TASK_SCENARIOS = 10
TASK_CHECKS = 44


@pytest.mark.timeout(suite.LEG_SECONDS)
@pytest.mark.parametrize("leg", suite.LEGS, ids=lambda leg: leg.name)
def test_a_leg_passes_as_recorded(leg: suite.Leg, tmp_path: Path) -> None:
    score = suite.run(leg, tmp_path / leg.name)
    tested = sum(checks != 0 for checks in score.values())
    lacking = sum(checks == suite.NOT_OFFERED for checks in score.values())
    said = f"{leg.about}: {tested - lacking} of {len(score)} scenarios passed"
    rest = f"{len(score) - tested} had nothing to test, {lacking} are not offered"
    sys.stdout.write(f"{said}, {rest}\n")
    if os.environ.get("UPDATE_CONFORMANCE"):
        suite.record(leg, score)
    assert suite.recorded()["legs"][leg.name] == score, (
        "scores.json is stale: run UPDATE_CONFORMANCE=1 python -m pytest tests/mcp/conformance"
    )


def test_the_record_is_of_the_version_that_is_locked() -> None:
    assert suite.recorded()["version"] == suite.version()
    assert list(suite.recorded()["legs"]) == [leg.name for leg in suite.LEGS]


@pytest.mark.parametrize("leg", ["gateway-extensions", "server-extensions"])
def test_every_check_of_the_tasks_extension_is_among_those_that_passed(leg: str) -> None:
    extensions = suite.recorded()["legs"][leg]
    tasks = {name: checks for name, checks in extensions.items() if name.startswith("tasks-")}
    assert len(tasks) == TASK_SCENARIOS
    assert sum(tasks.values()) == TASK_CHECKS


def test_checks_that_fail_or_warn_fail_the_leg(tmp_path: Path) -> None:
    folder = tmp_path / "server-tools-list-2026-11-16T02-12-30-064Z"
    folder.mkdir()
    checks = '[{"id": "name", "description": "has a name", "status": "%s"}]'
    for status in ("FAILURE", "WARNING"):
        (folder / "checks.json").write_text(checks % status)
        with pytest.raises(suite.SuiteFailedError, match="tools-list: name: has a name"):
            suite._read(suite.LEGS[0], tmp_path, "0 failed")  # pyright: ignore[reportPrivateUsage]
    lacking = dataclasses.replace(suite.LEGS[0], lacks={"tools-list": "no tools"})
    assert suite._read(lacking, tmp_path, "0 failed") == {"tools-list": suite.NOT_OFFERED}  # pyright: ignore[reportPrivateUsage]
    (folder / "checks.json").write_text(checks % "SUCCESS")
    score = suite._read(suite.LEGS[0], tmp_path, "0 failed")  # pyright: ignore[reportPrivateUsage]
    assert score == {"tools-list": 1}


def test_what_a_leg_lacks_is_recorded_as_not_offered() -> None:
    for leg in suite.LEGS:
        score = suite.recorded()["legs"][leg.name]
        lacking = {name for name, checks in score.items() if checks == suite.NOT_OFFERED}
        assert lacking == leg.lacks.keys(), f"{leg.name}: lacks another set of scenarios"
