"""The tables that `gateway.py` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from _support import print_table

_COLUMNS: Mapping[str, tuple[str, int]] = {
    "req/s c=1": ("per_s_1", 0),
    "c=32": ("per_s_32", 0),
    "c=256": ("per_s_256", 0),
    "CPU ms/req c=1": ("cpu_ms_1", 3),
    "c=32 ": ("cpu_ms_32", 3),
    "c=256 ": ("cpu_ms_256", 3),
    "added ms p50": ("added_p50_ms", 2),
    "p99": ("added_p99_ms", 2),
}
_STREAMS: Mapping[str, tuple[str, int]] = {
    "streams/s": ("streams_per_s", 0),
    "chunks/s": ("chunks_per_s", 0),
    "CPU ms/stream": ("cpu_ms_stream", 3),
    "first byte added ms": ("first_byte_added_ms", 2),
    "idle MB": ("idle_mb", 0),
    "loaded MB": ("loaded_mb", 0),
    "requests": ("loaded_requests", 0),
    "MB later": ("later_mb", 0),
    "cold start s": ("cold_start_s", 2),
}


def show(result: Mapping[str, Any]) -> None:
    """For people."""
    servers: Mapping[str, Mapping[str, float]] = result["servers"]
    for columns in (_COLUMNS, _STREAMS):
        rows = [
            [name, *(_figure(found[key], digits) for key, digits in columns.values())]
            for name, found in servers.items()
        ]
        print_table(["", *columns], rows)
        print()
    for name, why in result["missing"].items():
        print(f"{name}: {why}")
    if "Penstock" in servers and len(servers) > 1:
        _show_ratios(servers)
    if "ledger" in result:
        found = result["ledger"]
        share = f"{found['share']:.1%} (standard error {found['error']:.1%})"
        print(f"\nthe ledger's share of a request's CPU time: {share}")
        print_table(
            ["", "CPU ms/req"], [[name, f"{found[name]:.3f}"] for name in ("with", "without")]
        )
    if "flat" in result:
        first = next(iter(result["flat"].values()))
        print("\nbeside what is used, there is")
        rows = [[name, f"{ms:.3f}", ms / first] for name, ms in result["flat"].items()]
        print_table(["", "CPU ms/req", "times the first"], rows)
    print(f"\nload average at the end: {result['load_average']:.2f}")


def _show_ratios(servers: Mapping[str, Mapping[str, float]]) -> None:
    own = servers["Penstock"]
    print("Penstock against the others; above 1, it does more")
    rows = [
        [
            name,
            *(own[key] / found[key] for key in ("per_s_1", "per_s_32", "per_s_256")),
            found["cpu_ms_32"] / own["cpu_ms_32"],
            own["chunks_per_s"] / found["chunks_per_s"],
            found["cpu_ms_stream"] / own["cpu_ms_stream"],
        ]
        for name, found in servers.items()
        if name != "Penstock"
    ]
    head = ["req/s c=1", "c=32", "c=256", "by CPU c=32", "chunks/s", "by CPU a stream"]
    print_table(["", *head], rows)


def _figure(value: float, digits: int) -> float | int | str:
    return round(value) if digits == 0 else f"{value:.{digits}f}"
