"""Where the CPU time of one call goes, stage by stage, with 32 calls at once.

Run: python bench/call_stages.py [--quick] [--json]

The profiler's own cost is spread over all functions, so the shares are good for comparison with one
another and not for times; `bench/library.py` measures those.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
from collections.abc import Mapping
from typing import Any

from _support import hand_over, parse_arguments, print_table
from library import chat_server

import penstock
from penstock import Config

CONCURRENCY = 32
STAGES: Mapping[str, tuple[str, str]] = {
    "options, request id, registration": ("engine/sampling.py", "create_message"),
    "validate, route, meter, count": ("pipeline/pipeline.py", "run"),
    "tickets, breaker, places": ("pool/failover.py", "generate"),
    "encode, decode": ("providers/http_provider.py", "generate"),
    "headers, body": ("providers/http_provider.py", "_request"),
    "HTTP client and time-out": ("providers/http/client.py", "send"),
}
"""From the outside to the inside: each stage calls the next."""


async def profiled(url: str, calls: int) -> cProfile.Profile:
    config = Config.model_validate(
        {
            "providers": {"p": {"kind": "openai-chat", "url": url, "auth_token": "k"}},
            "models": {"m": {"targets": ["p/m"]}},
        }
    )
    profile = cProfile.Profile()
    async with penstock.open(config) as engine:

        async def work() -> None:
            for _ in range(calls):
                result = await engine.create_message("Hello", max_tokens=99, model="m")
                assert result.text

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
        profile.enable()
        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
        profile.disable()
    return profile


def shares(profile: cProfile.Profile) -> dict[str, float]:
    spent: dict[tuple[str, str], float] = {}
    rows: Mapping[tuple[str, int, str], tuple[Any, ...]] = vars(pstats.Stats(profile))["stats"]
    for (file, _, name), row in rows.items():
        for place in STAGES.values():
            if file.endswith(place[0]) and name == place[1]:
                spent[place] = row[3]
    times = [spent[place] for place in STAGES.values()]
    own = [outer - inner for outer, inner in zip(times, [*times[1:], 0.0], strict=True)]
    return {name: each / times[0] for name, each in zip(STAGES, own, strict=True)}


def main() -> None:
    arguments = parse_arguments(__doc__)
    with chat_server() as url:
        found = shares(asyncio.run(profiled(url, 5 if arguments.quick else 60)))
    if arguments.json:
        hand_over(found)
        return
    print_table(["stage", "share"], [[name, f"{share:.0%}"] for name, share in found.items()])


if __name__ == "__main__":
    sys.exit(main())
