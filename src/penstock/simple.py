"""The one call that needs no event loop and nothing to close."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from penstock.contract.spelling import suggests_names
from penstock.gateway import open as open_engine

ASK_MAX_TOKENS = 512
"""What `ask` allows an answer, as it is the one call that does not require a limit."""


@suggests_names
def ask(
    prompt: str,
    *,
    model: str | None = None,
    system_prompt: str | None = None,
    max_tokens: int = ASK_MAX_TOKENS,
    temperature: float | None = None,
) -> str:
    """The answer's text, for scripts and the prompt: one line, no event loop in sight."""

    async def answer() -> str:
        async with open_engine() as engine:
            result = await engine.create_message(
                prompt,
                max_tokens=max_tokens,
                model=model,
                system_prompt=system_prompt,
                temperature=temperature,
            )
            return result.text

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer())
    # A notebook has a loop of its own, in which a second one may not run.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer()).result()
