"""The same code on every provider that is there: one string changes.

    python examples/providers.py

It needs no key, for `embedded` and `fake` always answer. Each provider whose key is set (see the
README of this folder) answers too, and so does an Ollama on this machine. That makes one small
call to each, which may cost a fraction of a cent.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import BaseModel, Field

import penstock

PROVIDERS: dict[str, str | None] = {
    # None is the provider's default model; Ollama has none, for it depends on what was pulled.
    "embedded": None,
    "fake": None,
    "openai": None,
    "anthropic": None,
    "gemini": None,
    "bedrock": None,
    "ollama": "qwen3",
}
NOT_HERE = (
    penstock.ConfigurationError,  # no key
    penstock.AuthenticationFailed,
    penstock.ProviderUnavailable,  # nobody listens
    penstock.ModelNotFound,
)


class City(BaseModel):
    name: Annotated[str, Field(max_length=30)]
    continent: Literal["Africa", "America", "Asia", "Europe", "Oceania"]


async def ask(provider: str, model: str | None) -> tuple[City, penstock.Metadata]:
    generator = penstock.structured_generator(
        City, "Name a large city.", provider=provider, model=model, timeout=60
    )
    return await generator.generate()


async def main() -> None:
    answered: set[str] = set()
    asked = [ask(provider, model) for provider, model in PROVIDERS.items()]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    for provider, outcome in zip(PROVIDERS, outcomes, strict=True):
        if isinstance(outcome, NOT_HERE):
            print(f"{provider:10} not here: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            city, metadata = outcome
            print(f"{provider:10} {city!r}  {metadata.model}, {metadata.latency_ms} ms")
            answered.add(provider)

            assert isinstance(city, City)
            assert metadata.provider == provider
    assert {"embedded", "fake"} <= answered


if __name__ == "__main__":
    asyncio.run(main())
