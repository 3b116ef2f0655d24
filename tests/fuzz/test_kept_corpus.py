"""Every input of the kept corpus, without the fuzzer: what once failed stays mended."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
LARGEST_CORPUS = 500_000
STREAMED = ("eventstream", "http", "ndjson", "redaction", "sse", "streams")
"""Targets that go on after what they have read, so that a repeated input is more work."""


def calls_of(name: str, data: bytes) -> int:
    """How many functions are called, those written in C included."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        TARGETS[name](data)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_fails(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for each in inputs:
        TARGETS[name](each.read_bytes())


@pytest.mark.parametrize("name", STREAMED)
def test_the_work_grows_with_the_input(name: str) -> None:
    for each in sorted((CORPUS / name).glob("seed-*"))[:12]:
        data = each.read_bytes()
        once, twice = (calls_of(name, data[:1] + data[1:] * n) for n in (16, 32))
        assert twice <= 2.2 * once + 200, each.name


def test_the_corpus_is_small_and_has_no_stray_folder() -> None:
    assert {each.name for each in CORPUS.iterdir()} == set(TARGETS)
    assert sum(each.stat().st_size for each in CORPUS.rglob("*")) < LARGEST_CORPUS
