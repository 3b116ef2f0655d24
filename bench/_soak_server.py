"""The provider of `soak.py`: that of the fault suite, which breaks by chance instead of by name.

Models whose names begin with `mixed` are answered well or with any of the faults, `paced` ones well
and slowly. Each line that comes in asks how many requests are being answered, and how many
connections are open; the end of the pipe ends the server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys
from typing import Any

from tests.faults.answer import JSON, Answer
from tests.faults.server import FaultServer, begun_in
from tests.faults.ways import WAYS
from tests.support.wire.scenario import Call, Scenario
from tests.support.wire.seen import Asked, Seen, SeenEmbedding

FAULTS = (
    "429.ms",
    "429.seconds",
    "429.forever",
    "500.always",
    "refused.overloaded",
    "refused.context",
    "refused.filter",
    "refused.bad",
    "html.502",
    "error-in-200",
    "reset",
    "silence",
    "cut.0",
    "cut.40",
    "ends.20",
    "stall.10",
    "malformed",
    "no-done",
    "zipped",
    "drip.blank.0",
)
FAULTY = 0.4
"""The share of the answers of a `mixed` model that are."""
CALL_ID = "call_1"


class SoakServer(FaultServer):
    """Keeps nothing of what it is asked."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.answering = 0

    @property
    def connections(self) -> int:
        return len(self._open)

    async def reply(
        self,
        asked: Asked | None,
        caller: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        self.answering += 1
        try:
            return await self._reply(asked, reader, writer)
        finally:
            self.answering -= 1

    async def _reply(
        self, asked: Asked | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        way = "healthy"
        if isinstance(asked, Seen | SeenEmbedding):
            way = asked.model
            if way.startswith("mixed"):
                way = self._random.choice(("healthy", "paced"))
                if self._random.random() < FAULTY:
                    way = self._random.choice(FAULTS)
        if asked is None or isinstance(asked, SeenEmbedding):
            # A fault is one of an answer; other calls are refused, or answered.
            seen = Seen(model=way, stream=False, messages=())
            answer = Answer(self.dialect, seen, "", 1, reader, writer, self.gone)
            if way in FAULTS and way.startswith(("429", "500", "refused", "html", "reset", "sil")):
                return await _play(way, answer)
            body = self.dialect.models() if asked is None else self.dialect.vectors(asked)
            return await answer.send(200, body, JSON)
        assert isinstance(asked, Seen), "nothing else is asked for here"
        # The first of its name, for a fault that happens once may happen each time here.
        seen = dataclasses.replace(asked, model=way)
        answer = Answer(self.dialect, seen, begun_in(seen), 1, reader, writer, self.gone)
        if way in FAULTS:
            return await _play(way, answer)
        if seen.tools and seen.messages[-1].text:
            return await self._call_tool(answer, seen)
        if way == "paced":
            return await _paced(answer)
        return await answer.say()

    async def _call_tool(self, answer: Answer, seen: Seen) -> bool:
        scenario = Scenario(calls=(Call(CALL_ID, seen.tools[0].name, ("{}",)),), stop="tool_use")
        if not seen.stream:
            return await answer.send(200, self.dialect.answer(scenario, seen), JSON)
        await answer.begin()
        await answer.play(self.dialect.stream(scenario, seen))
        return await answer.end()


async def _play(way: str, answer: Answer) -> bool:
    name, _, how = way.partition(".")
    return await WAYS[name](answer, how)


async def _paced(answer: Answer) -> bool:
    """As a model speaks: some words at a time."""
    if not (isinstance(answer.seen, Seen) and answer.seen.stream):
        await asyncio.sleep(0.05)
        return await answer.say()
    await answer.begin()
    for number, frame in enumerate(answer.frames()):
        await answer.play([frame])
        if number % 6 == 0:
            await asyncio.sleep(0.005)
    return await answer.end()


def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # Callers hang up on purpose here.
    if not isinstance(context.get("exception"), ConnectionError):
        loop.default_exception_handler(context)


async def main() -> None:
    async with SoakServer(int(sys.argv[1])) as server:
        print(server.url, flush=True)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_complain)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(server.answering, server.connections, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
