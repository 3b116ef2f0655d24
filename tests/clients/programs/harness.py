"""Runs the scenarios of one client: a question a line comes in, an answer a line goes out.

It runs where the client is installed, so it knows nothing of Penstock and nothing of our packages.
"""

import faulthandler
import gc
import json
import signal
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

Question: TypeAlias = Any
"""What to ask: `url`, `model`, `via` and what the scenario adds."""
Scenarios: TypeAlias = Mapping[str, Callable[[Question], Mapping[str, Any]]]
Failure: TypeAlias = Mapping[str, Any]

SYSTEM = "Be brief."
HELLO = "Hello"
AGAIN = "And again?"
COUNT = "Count to three"
WEATHER = "What is the weather in Rome?"
CITY = "Name a city"
TEMPERATURE = 0.5
CITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def failure_of(error: BaseException, status: int | None, retry_after: str | None) -> Failure:
    """How a client told that something went wrong: by which classes, and what it knows of it."""
    return {
        "classes": [
            f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).mro()
        ],
        "status": status,
        "retry_after": retry_after,
        "message": str(error),
    }


def serve(scenarios: Scenarios, describe: Callable[[Exception], Failure]) -> None:
    """Answer questions until there are none; an exception of the client is an answer too."""
    out, sys.stdout = sys.stdout, sys.stderr  # what a client prints is no answer
    faulthandler.register(signal.SIGUSR1)  # sent when no answer comes
    # A stream that a client dropped unread is closed by the collector. Should that happen while
    # httpcore sends the next request, it waits for a lock that its own thread holds, for ever.
    gc.disable()
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer: Mapping[str, Any] = scenarios[asked.pop("do")](SimpleNamespace(**asked))
        except Exception as error:  # noqa: BLE001 - which one it is, is what the test checks
            answer = {"error": describe(error)}
        print(json.dumps(answer), file=out, flush=True)
        gc.collect()
