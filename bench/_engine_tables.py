"""The tables of `engine.py`, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from _support import Claim, print_table

Figures: TypeAlias = dict[str, dict[str, float]]
"""Rows by their names, each with its columns."""


def show(found: Mapping[str, Figures], held: int, claims: Sequence[Claim]) -> None:
    """Everything that was found, and what it is allowed to be."""
    print("CPU microseconds; in brackets, times the direct call of the provider")
    _wire(found["wire"])
    _whole(found["whole"])
    _targets(found["targets"])
    _growth(found["streams"], "streams", "by streams at once that take turns")
    _growth(found["chunks"], "chunks", "by the stream's length")
    _history(found["history"])
    _held(found["held"], held)
    _failover(found["failover"])
    print()
    print_table(["claim", "found", "allowed"], [[*claim] for claim in claims])


def _against(value: float, floor: float) -> str:
    return f"{value:.2f} ({value / floor:.2f})"


def _wire(found: Figures) -> None:
    print("\nOver the wire; a stream has 100 chunks, in as many reads as the network makes of them")
    print_table(
        ["at once", "call direct", "engine", "chunk direct", "engine"],
        [
            [
                int(name),
                row["call direct"],
                _against(row["call"], row["call direct"]),
                row["chunk direct"],
                _against(row["chunk"], row["chunk direct"]),
            ]
            for name, row in found.items()
        ],
    )


def _whole(found: Figures) -> None:
    print("\nOver the wire, a whole answer of 100 tokens; in brackets, times the one at once")
    print_table(
        ["at once", "fetched at once", "fetched as a stream"],
        [
            [int(name), row["at once"], _against(row["as a stream"], row["at once"])]
            for name, row in found.items()
        ],
    )


def _targets(found: Figures) -> None:
    print("\nThe pipeline alone, by targets in the list; in brackets, times the one with 1")
    one = found["1"]
    print_table(
        ["targets", "call", "chunk"],
        [
            [name, _against(row["call"], one["call"]), _against(row["chunk"], one["chunk"])]
            for name, row in found.items()
        ],
    )


def _growth(found: Figures, name: str, by: str) -> None:
    print(f"\nThe pipeline alone, a chunk, {by}; in brackets, times the first row")
    first = next(iter(found.values()))
    print_table(
        [name, "direct", "engine"],
        [
            [int(number), row["direct"], _against(row["engine"], first["engine"])]
            for number, row in found.items()
        ],
    )


def _history(found: Figures) -> None:
    print("\nThe pipeline alone, a call after so many others; in brackets, times the first row")
    fresh = next(iter(found.values()))["call"]
    print_table(
        ["calls before", "call", "blocks kept of each"],
        [
            [int(name), _against(row["call"], fresh), f"{row['kept']:.4f}"]
            for name, row in found.items()
        ],
    )


def _held(found: Figures, held: int) -> None:
    print(f"\nkB for each of {held} open streams")
    print_table(
        ["", "allocated by Python", "resident"],
        [[name, row["allocated"], row["resident"]] for name, row in found.items()],
    )


def _failover(found: Figures) -> None:
    print(
        "\nMilliseconds from an error to the next target's first byte, and of a direct call to it"
    )
    print_table(
        ["failing before", "p50", "p99", "direct p50", "direct p99"],
        [
            [
                int(name),
                _against(row["p50"], row["direct p50"]),
                _against(row["p99"], row["direct p99"]),
                row["direct p50"],
                row["direct p99"],
            ]
            for name, row in found.items()
        ],
    )
