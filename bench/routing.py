"""How good the learned routing is, beside no routing and simpler ways, on outcomes of real models.

Run: python bench/routing.py --data FOLDER --set NAME [--plot FILE.svg] [--quick] [--json]

FOLDER holds NAME_prompts.parquet (prompt_id, prompt) and NAME_outcomes.parquet (prompt_id, model,
score from 0 to 1, cost_usd). Without a folder, prompts of four made-up kinds are used.

Offline, every router learns from a random half of the prompts with all outcomes, and is judged on
the other: by APGR and CPT for two models (RouteLLM) and by AIQ for any number (RouterBench).
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

# One thread: other programs are at work on the same cores, and vectors are short.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import _routing_offline as offline
from _routing_data import Outcomes, feature_rows, made_up, read
from _routing_measures import hull, single_models
from _routing_online import FULL_STREAMS, STREAMS, served
from _routing_plot import plotted
from _support import make_parser, print_table

FEW = 1_500


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the two tables")
    parser.add_argument("--set", default="pair_dev", help="the name that the tables begin with")
    parser.add_argument("--plot", type=Path, help="draw quality over cost into this SVG file")
    arguments = parser.parse_args()
    data: Outcomes = read(arguments.data, arguments.set) if arguments.data else made_up(1_200)
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
    result: dict[str, object] = {"set": data.name, "prompts": len(data.prompts), "seeds": seeds}
    if mine.two is not None:
        few = offline.apgr_with(data, ours, seeds, FEW)
        result |= {**mine.two._asdict(), "apgr_1500": few}
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
        "online_share_of_full_gain": seen.gain / full.gain if full.gain else 0.0,
        "peers": {name: _figures(each) for name, each in found.items() if each is not mine},
    }
    if arguments.plot:
        curves = {name: each.curve for name, each in found.items() if name != "random"}
        _, judged = next(offline.splits(len(data.prompts), 1))
        alone = single_models(data.scores[judged], data.costs[judged])
        arguments.plot.write_text(plotted(data.name, hull(alone), alone, curves), encoding="utf-8")
    if arguments.json:
        json.dump(result, sys.stdout)
        return
    _show(found, result)


def _figures(router: offline.Offline) -> dict[str, float]:
    two = router.two._asdict() if router.two is not None else {}
    return {
        **two,
        "aiq": router.aiq,
        "worst_point": router.worst,
        "worst_point_error": router.worst_error,
    }


def _show(found: dict[str, offline.Offline], result: dict[str, object]) -> None:
    rows: list[list[object]] = []
    for name, each in {"no routing": None, **found}.items():
        none = next(iter(found.values())).no_routing
        two = [f"{x:.3f}" if x < 1 else f"{x:.1f}" for x in each.two] if each and each.two else []
        cells = [f"{each.aiq if each else none:.4f}"]
        cells += [f"{each.worst:+.4f}", f"{each.worst_error:.4f}"] if each else ["+0.0000", ""]
        rows.append([name, *(two or ["", "", ""]), *cells])
    print_table(["router", "APGR", "CPT50", "CPT80", "AIQ", "worst", "its error"], rows)
    if "apgr_1500" in result:
        print(f"\nwith {FEW} labelled prompts: APGR {result['apgr_1500']:.3f}")
    print(
        f"\nonline at ${result['online_cost']:.6f} a request: {result['online_quality']:.4f}; "
        f"the best mix of single models {result['online_no_routing']:.4f}; "
        f"of the gain with full information ({result['online_full_information']:.4f} against "
        f"{result['online_full_information_no_routing']:.4f}) "
        f"{result['online_share_of_full_gain']:.0%}; "
        f"standard error of the gain {result['online_gain_error']:.4f}"
    )


if __name__ == "__main__":
    main()
