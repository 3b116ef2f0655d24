"""Summarise a text: a prompt with contexts, made once and answered as often as wanted.

    python examples/summarise.py            on the embedded model, without a key
    python examples/summarise.py openai     on a provider of yours, with its key in the environment

One context is fixed: the rules. The other is fetched anew for each call: the text to summarise.
"""

from __future__ import annotations

import asyncio
import sys

import penstock
from penstock import MessageType, PromptContext

REPORTS = [
    "The pump in hall two failed at 03:10. Water stood ankle-deep when the night shift found it at "
    "03:40. A spare pump was running by 05:00, and the hall was dry by noon. Nobody was hurt. The "
    "failed pump had missed two services.",
    "The new turbine ran for its first full week. It produced eight per cent more than the old one "
    "with the same water. A bearing ran warm on Thursday and was greased. The crew asks for a "
    "second oil gauge.",
]


class NextReport:
    """Gives the next report with each call, as a database or an inbox would."""

    def __init__(self, reports: list[str]) -> None:
        self._reports = iter(reports)

    async def generate_context(self) -> list[PromptContext]:
        return [PromptContext(MessageType.HUMAN, f"The report:\n{next(self._reports)}")]


async def main(provider: str) -> None:
    generator = penstock.string_generator(
        "Summarise the report in one short sentence.",
        provider=provider,
        max_tokens=300,  # thinking counts too, where a model thinks
    )
    generator.add_prompt_context(MessageType.SYSTEM, "You write for engineers. Be brief.")
    generator.add_prompt_context_provider(NextReport(REPORTS))

    for report in REPORTS:
        summary, metadata = await generator.generate()
        print(f"{len(report)} characters -> {summary.strip()}")
        print(f"   {metadata.model}, {metadata.usage.total_tokens} tokens")

        assert summary.strip()
        assert metadata.provider == provider
        assert metadata.usage.output_tokens is None or metadata.usage.output_tokens <= 300
        # Rules, report and prompt all went along.
        assert metadata.usage.input_tokens is None or metadata.usage.input_tokens > 40


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "embedded"))
