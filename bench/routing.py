"""How good the learned routing is, beside no routing and simpler ways, on outcomes of real models.

Run: python bench/routing.py --data FOLDER --set NAME [--plot FILE.svg] [--quick] [--json]

FOLDER holds NAME_prompts.parquet (prompt_id, prompt) and NAME_outcomes.parquet (prompt_id, model,
score from 0 to 1, cost_usd). Prompts that lack the outcome of a model are left out. Without a
folder, prompts of four made-up kinds are used.

Offline, every router learns from a random half of the prompts with all outcomes, and is judged on
the other: by APGR and CPT for two models (RouteLLM) and by AIQ for any number (RouterBench).
APGR and CPT are a dash (null in JSON) where the dearer model is not the better one.
Online, the project's router serves a stream and sees the chosen model's outcome only; its quality
over the last two thirds stands beside the best mix of single models at the same cost.
"Worst" is the least by which a router is above no routing at the same cost, anywhere, with its
standard error by the prompts.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

# One thread: other programs are at work on the same cores, and vectors are short.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import _routing_offline as offline
from _routing_data import Outcomes, feature_rows, made_up
from _routing_measures import ROUNDING, TwoModels, hull, single_models
from _routing_online import FULL_STREAMS, STREAMS, served
from _routing_plot import plotted
from _routing_read import read
from _support import make_parser, print_table

FEW = 1_500
COLUMNS = {
    "apgr": ("APGR", ".3f"),
    "cpt50": ("CPT50", ".1f"),
    "cpt80": ("CPT80", ".1f"),
    "aiq": ("AIQ", ".4f"),
    "worst_point": ("worst", "+.4f"),
    "worst_point_error": ("its error", ".4f"),
}
"""Of the table: the name of the figure, its head and its form."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the two tables")
    parser.add_argument("--set", default="pair_dev", help="the name that the tables begin with")
    parser.add_argument("--plot", type=Path, help="draw quality over cost into this SVG file")
    arguments = parser.parse_args()
    data: Outcomes = read(arguments.data, arguments.set) if arguments.data else made_up(1_200)
    if arguments.plot:
        _write(arguments.plot, "a", "")  # What cannot be written is to be known before the work.
    seeds = 1 if arguments.quick else 3
    if arguments.quick:
        data = data.sample(600)
    print(f"{data.name}: {len(data.prompts)} prompts, {len(data.targets)} models", file=sys.stderr)
    features = feature_rows(data.prompts)
    ours = offline.penstock_estimator(data, features)
    estimators = {
        "random": offline.by_chance(data),
        "SHA-256 kNN": offline.plain_neighbours(data, offline.digests(data.prompts), 10),
        "plain kNN": offline.plain_neighbours(data, features, 10),
        "penstock": ours,
    }
    found = {name: offline.evaluate(data, each, seeds) for name, each in estimators.items()}
    mine = found["penstock"]
    seen = served(data, features, 1 if arguments.quick else STREAMS)
    full = served(data, features, 1 if arguments.quick else FULL_STREAMS, full_information=True)
    result: dict[str, Any] = {"set": data.name, "prompts": len(data.prompts), "seeds": seeds}
    if two := _of_two(data, mine):
        result |= {**two, "apgr_1500": offline.apgr_with(data, ours, seeds, FEW)}
    result |= {
        "aiq": mine.aiq,
        "aiq_no_routing": mine.no_routing,
        "worst_point": mine.worst,
        "worst_point_error": mine.worst_error,
        "online_quality": seen.quality,
        "online_no_routing": seen.no_routing,
        "online_cost": seen.cost,
        "online_gain_error": seen.error,
        "online_full_information": full.quality,
        "online_full_information_no_routing": full.no_routing,
        "online_share_of_full_gain": seen.gain / full.gain if full.gain > ROUNDING else None,
        "peers": {name: _figures(data, each) for name, each in found.items() if each is not mine},
    }
    if arguments.json:
        json.dump(result, sys.stdout, allow_nan=False)
    else:
        _show(result)
    if arguments.plot:
        curves = {name: each.curve for name, each in found.items() if name != "random"}
        _, judged = next(offline.splits(len(data.prompts), 1))
        alone = single_models(data.scores[judged], data.costs[judged])
        _write(arguments.plot, "w", plotted(data.name, hull(alone), alone, curves))


def _figures(data: Outcomes, router: offline.Offline) -> dict[str, float | None]:
    return {
        **_of_two(data, router),
        "aiq": router.aiq,
        "worst_point": router.worst,
        "worst_point_error": router.worst_error,
    }


def _of_two(data: Outcomes, router: offline.Offline) -> dict[str, float | None]:
    if len(data.targets) != 2:
        return {}
    return router.two._asdict() if router.two else dict.fromkeys(TwoModels._fields)


def _show(result: dict[str, Any]) -> None:
    none = {"aiq": result["aiq_no_routing"], "worst_point": 0.0}
    rows = [
        [name, *(_cell(figures, key, form) for key, (_, form) in COLUMNS.items())]
        for name, figures in {"no routing": none, **result["peers"], "penstock": result}.items()
    ]
    print_table(["router", *(head for head, _ in COLUMNS.values())], rows)
    if "apgr_1500" in result:
        print(f"\nwith {FEW} labelled prompts: APGR {_cell(result, 'apgr_1500', '.3f')}")
    share = result["online_share_of_full_gain"]
    of_gain = "no gain" if share is None else f"{share:.0%} of the gain"
    print(
        f"\nonline at ${result['online_cost']:.6f} a request: {result['online_quality']:.4f}; "
        f"the best mix of single models {result['online_no_routing']:.4f}; "
        f"{of_gain} with full information ({result['online_full_information']:.4f} against "
        f"{result['online_full_information_no_routing']:.4f}); "
        f"standard error of the gain {result['online_gain_error']:.4f}"
    )


def _cell(figures: dict[str, Any], key: str, form: str) -> str:
    if key not in figures:
        return ""
    return "-" if figures[key] is None else format(figures[key], form)


def _write(path: Path, mode: str, text: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.exit(f"--plot {path}: {error.strerror}; give another path")


if __name__ == "__main__":
    main()
