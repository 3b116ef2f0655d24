"""Newline-delimited JSON: every rule by example, then against Python's own splitting."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import MalformedResponse
from penstock.streaming import ndjson
from penstock.streaming.ndjson import NDJSONDecoder


def decode(*reads: bytes, limit: int = 1024) -> list[bytes]:
    decoder = NDJSONDecoder(max_line_bytes=limit)
    lines = [line for read in reads for line in decoder.feed(read)]
    return lines + decoder.finish()


EXAMPLES: dict[str, tuple[bytes, list[bytes]]] = {
    "LF": (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
    "CR LF": (b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
    "blank lines": (b'\n\r\n{"a":1}\n \t\n\n{"b":2}\n\n', [b'{"a":1}', b'{"b":2}']),
    "spaces around": (b' {"a": 1} \n', [b'{"a": 1}']),
    "a lone CR ends nothing": (b"1\r2\n", [b"1\r2"]),
    "no last line end": (b"1\n2", [b"1", b"2"]),
    "a CR at the end": (b"1\r", [b"1"]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("body", "lines"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_body_gives_its_lines_in_one_read_and_byte_by_byte(
    body: bytes, lines: list[bytes]
) -> None:
    assert decode(body) == lines
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == lines


def test_a_line_is_returned_by_the_read_that_completes_it() -> None:
    decoder = NDJSONDecoder()
    assert decoder.feed(b"12") == []
    assert decoder.feed(b"3\n4\n5") == [b"123", b"4"]
    assert decoder.finish() == [b"5"]
    assert decoder.finish() == []


bodies = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"{}", b"12", b"\xc3\xa9"])).map(
    b"".join
)


@st.composite
def bodies_in_reads(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    body = draw(bodies)
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(body)), max_size=12))), len(body)]
    return body, [body[start:end] for start, end in pairwise(cuts)]


@given(bodies_in_reads())
def test_any_split_into_reads_gives_the_lines_of_the_body(case: tuple[bytes, list[bytes]]) -> None:
    body, reads = case
    assert decode(*reads) == [line.strip() for line in body.split(b"\n") if line.strip()]


@given(bodies_in_reads(), st.integers(0, 8))
def test_any_split_into_reads_meets_the_same_limit(
    case: tuple[bytes, list[bytes]], limit: int
) -> None:
    body, reads = case
    if any(len(line) > limit for line in body.split(b"\n")):
        with pytest.raises(MalformedResponse, match=f"larger than the limit of {limit} bytes"):
            decode(*reads, limit=limit)
    else:
        decode(*reads, limit=limit)


def test_the_work_for_a_line_in_many_small_reads_grows_with_its_size_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added: list[int] = []

    class GrowsOnly(bytearray):
        """What a decoder holds back; while the line is incomplete, nothing else may touch it."""

        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

        def __iadd__(self, value: bytes, /) -> GrowsOnly:  # pyright: ignore[reportIncompatibleMethodOverride]
            added.append(len(value))
            super().__iadd__(value)
            return self

    monkeypatch.setattr(ndjson, "bytearray", GrowsOnly, raising=False)
    decoder = NDJSONDecoder()
    for _ in range(4096):
        assert decoder.feed(b"x" * 16) == []
    assert sum(added) == 4096 * 16
