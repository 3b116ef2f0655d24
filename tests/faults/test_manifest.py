"""The manifest and the tests belong together."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.conformance.subjects import SUBJECTS
from tests.faults.asking import DIALECTS
from tests.faults.inband import INBAND
from tests.faults.manifest import DOORS, MANIFEST, PROOFS, SHOWN
from tests.support.wire.bedrock import BedrockServer
from tests.support.wire.server import WireServer


def import_tests() -> None:
    for module in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.faults.{module.stem}")


def test_every_row_is_proved() -> None:
    import_tests()
    assert set(PROOFS) == set(MANIFEST)


def test_every_row_is_shown_at_the_doors_it_names() -> None:
    import_tests()
    assert {name: set(row.doors) for name, row in MANIFEST.items()} == SHOWN


def test_a_row_that_some_door_does_not_show_says_why() -> None:
    for name, row in MANIFEST.items():
        assert set(row.doors) <= set(DOORS)
        assert bool(row.elsewhere) == (set(row.doors) != set(DOORS)), name


def test_no_two_rows_are_of_the_same_fault() -> None:
    assert len({row.fault for row in MANIFEST.values()}) == len(MANIFEST)


def test_every_dialect_has_in_band_errors() -> None:
    """A new dialect cannot be forgotten here."""
    wires = {
        subject.name
        for subject in SUBJECTS
        if isinstance(subject.upstream(), WireServer | BedrockServer)
    }
    assert {error.kind for error in INBAND.values()} == set(DIALECTS) == wires
