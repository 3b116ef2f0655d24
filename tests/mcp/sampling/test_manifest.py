"""Every requirement over every way: `pytest tests/mcp/sampling -k "rate and http-modern"`."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from tests.mcp.sampling.checks import params, people, rounds, tools
from tests.mcp.sampling.manifest import REQUIREMENTS, SECTIONS
from tests.mcp.sampling.requirement import ROOT, Check, Requirement, Way

CELLS = [
    pytest.param(each.check, way, id=f"{each.id}[{'-'.join(way)}]")
    for each in REQUIREMENTS.values()
    if each.check is not None
    for way in each.ways
]


@pytest.mark.parametrize(("check", "way"), CELLS)
async def test_cell(check: Check, way: Way) -> None:
    await check(way)


def test_requirements_have_names_and_texts_of_their_own() -> None:
    assert len(REQUIREMENTS) == sum(map(len, SECTIONS.values()))
    assert len({each.text for each in REQUIREMENTS.values()}) == len(REQUIREMENTS)


@pytest.mark.parametrize("each", REQUIREMENTS.values(), ids=lambda each: each.id)
def test_each_has_tests_or_says_why_not(each: Requirement) -> None:
    assert each.text.endswith(".")
    shown = each.check is not None or bool(each.tests)
    assert shown is not bool(each.gap), "give it a check, tests, or a reason; and not both"
    assert not each.gap or each.gap.endswith(".")


@pytest.mark.parametrize("each", REQUIREMENTS.values(), ids=lambda each: each.id)
def test_named_tests_are_there(each: Requirement) -> None:
    """Those of the asking side are pending until it is there; one that was renamed is missing."""
    there = [test for test in each.missing if (ROOT / test.partition("::")[0]).exists()]
    assert there == []
    assert each.status != "pending" or each.party == "server"


@pytest.mark.parametrize("module", [params, people, rounds, tools], ids=lambda each: each.__name__)
def test_every_check_is_in_the_manifest(module: ModuleType) -> None:
    checks = {
        value
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert checks - {each.check for each in REQUIREMENTS.values()} == set()
