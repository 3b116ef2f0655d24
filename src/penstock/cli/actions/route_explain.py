"""What `penstock route explain` shows."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import engine_of, is_absent
from penstock.cli.ui import terminal
from penstock.cli.ui.terminal import Cell
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import RankedTarget, RouteDecision
from penstock.contract.requests import Caller, CountOptions
from penstock.routing.filters import PROVIDER

_COLUMNS = (
    "target",
    "quality",
    "cost",
    "latency",
    "hint",
    "health",
    "utility",
    "chance",
    "budgets",
)


def show_route(
    prompt: str,
    config_file: str | None,
    *,
    model: str | None,
    preferences: ModelPreferences,
    provider: str | None,
    key: str | None,
    max_tokens: int,
    as_json: bool,
) -> None:
    """The route of a request that is not made."""
    options = CountOptions(
        model=model,
        model_preferences=preferences,
        max_tokens=max_tokens,
        metadata={} if provider is None else {PROVIDER: provider},
    )
    decision = asyncio.run(_decision(prompt, config_file, key, options))
    if as_json:
        terminal.print_json(_document(decision))
        return
    scored = any(each.score for each in decision.ranked)
    rows = [
        _cells(each, first=not number, scored=scored) for number, each in enumerate(decision.ranked)
    ]
    columns = [
        index
        for index, name in enumerate(_COLUMNS)
        # Columns that are empty all the way down say nothing.
        if name in ("target", "health") or any(row[index] for row in rows)
    ]
    terminal.print_table(
        [_COLUMNS[index] for index in columns], [[row[index] for index in columns] for row in rows]
    )
    print(f"\n{terminal.visible(decision.reason)}")
    for why in dict.fromkeys(
        verdict.reason for each in decision.ranked for verdict in each.budgets if not verdict.fits
    ):
        print(f"does not fit: {terminal.visible(why)}")
    for each in decision.left_out:
        print(f"left out: {each.target}: {terminal.visible('; '.join(each.reasons))}")


async def _decision(
    prompt: str, config_file: str | None, key: str | None, options: CountOptions
) -> RouteDecision:
    config = load(config_file)
    engine = engine_of(config, keep_books=not is_absent(config.storage.path))
    try:
        return await engine.route(prompt, caller=Caller(key=key), **options)
    finally:
        await engine.aclose()


def _document(decision: RouteDecision) -> dict[str, Any]:
    return {
        "model": decision.model,
        "strategy": decision.strategy,
        "explored": decision.explored,
        "reason": decision.reason,
        "winner": str(decision.targets[0]) if decision.ranked else None,
        "ranked": [_row(each) for each in decision.ranked],
        "left_out": [_row(each) for each in decision.left_out],
    }


def _row(ranked: RankedTarget) -> dict[str, Any]:
    budgets = [each.to_dict() for each in ranked.budgets]
    return {**msgspec.structs.asdict(ranked), "target": str(ranked.target), "budgets": budgets}


def _cells(ranked: RankedTarget, *, first: bool, scored: bool) -> list[Cell]:
    health: Cell = ("up", "green") if ranked.available else ("down", "red")
    return [
        (str(ranked.target), "bold") if first else str(ranked.target),
        _quality(ranked),
        "" if ranked.cost_usd is None else f"${ranked.cost_usd:.6f}",
        "" if ranked.latency_ms is None else f"{ranked.latency_ms:.0f} ms",
        ranked.hint or "",
        health,
        f"{ranked.score:.3f}" if scored else "",
        "" if ranked.propensity is None else f"{ranked.propensity:.0%}",
        _budgets(ranked),
    ]


def _budgets(ranked: RankedTarget) -> Cell:
    refusing = [each.budget for each in ranked.budgets if not each.fits]
    if refusing:
        return f"no room: {', '.join(refusing)}", "red"
    return ("fits", "green") if ranked.budgets else ""


def _quality(ranked: RankedTarget) -> str:
    if ranked.quality is None:
        return ""
    doubt = "" if ranked.uncertainty is None else f" ± {ranked.uncertainty:.2f}"
    by = "" if ranked.neighbours is None else f" ({ranked.neighbours:.0f})"
    return f"{ranked.quality:.2f}{doubt}{by}"
