"""A streaming answer in the terminal: thinking, tools and text as they come.

    python examples/streaming.py                       on a scripted model, without a key
    python examples/streaming.py openai/gpt-6-luna     on a model of yours

The events of all rounds come from one stream. Leaving the block, or Ctrl-C, stops the upstream
call and whatever tool is running.
"""

from __future__ import annotations

import asyncio
import sys

from rich.console import Group
from rich.live import Live
from rich.text import Text

import penstock
from penstock import Chunk, Complete, Error, ReasoningDelta, ToolEnded, ToolStarted, ToolUse
from penstock.testing import FakeProvider, FakeReply, engine_with

SCRIPT = [
    FakeReply(
        reasoning="I need the water level first.",
        tool_uses=(ToolUse("1", "level", {"lake": "Upper"}),),
        delay_s=0.02,
    ),
    FakeReply(
        text="The upper lake stands at 318 metres, two below the rim. Open one gate by a hand.",
        delay_s=0.02,
    ),
]


async def level(lake: str) -> float:
    """The water level of a lake, in metres."""
    await asyncio.sleep(0.1)  # as an instrument would take
    return 318.0


async def main(model: str | None) -> None:
    thinking, text, footer = Text(style="dim italic"), Text(), Text(style="dim")
    tools: dict[str, Text] = {}
    async with penstock.open() if model else engine_with(FakeProvider(SCRIPT)) as engine:
        generator = engine.string_generator(
            "Should a gate of the upper lake be opened?", model=model, tools=[level]
        )
        with Live(refresh_per_second=20) as screen:
            async with generator.stream() as stream:
                async for event in stream:
                    match event:
                        case ReasoningDelta(piece):
                            thinking.append(piece)
                        case ToolStarted(id=id, name=name, input=arguments):
                            tools[id] = Text(f"… {name} {arguments}", style="yellow")
                        case ToolEnded(id=id, name=name, is_error=failed):
                            tools[id] = Text(f"{'✗' if failed else '✓'} {name}", style="green")
                        case Chunk(piece):
                            text.append(piece)
                        case Complete(result):
                            footer.append(f"{result.model}, {result.usage.total_tokens} tokens\n")
                        case Error(error):
                            footer.append(str(error), style="red")
                        case _:
                            pass
                    screen.update(Group(thinking, *tools.values(), text, footer))
                answer, metadata = await stream.result()

    assert answer
    assert text.plain.endswith(answer), "what was shown is what was answered"
    assert footer.plain, "a stream ends with Complete or Error"
    assert metadata.first_token_ms is not None
    assert metadata.first_token_ms <= metadata.latency_ms
    assert len(tools) >= metadata.tool_rounds


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
