"""Whose price list holds for which kind of provider, and how the list spells the models' names.

To price a new row of the registry, add a row to `SOURCES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """One row: where the prices of a kind of provider are found."""

    provider: str = ""
    """Its name in genai-prices, in which `{host}` stands for that part of the model's name; empty
    when it is not there."""
    local: bool = False
    """Whether it charges for no tokens, unless the configuration has a price."""
    in_process: bool = False
    """Whether it runs in this process, where no default price is meant for it."""
    anywhere: bool = False
    """Whether this kind is any server that speaks the dialect, so that its address decides: one of
    our own network is local, and others are looked up by it."""
    names: str = r"(?P<model>.+)"
    """A regular expression: which part of the name the list knows the model by."""

    def read(self, model: str) -> tuple[str, str] | None:
        """The provider and the model as genai-prices calls them; None when it knows neither."""
        found = re.fullmatch(self.names, model)
        if found is None:
            return None
        parts = found.groupdict()
        return self.provider.format(host=parts.get("host", "")), parts["model"]


SOURCES: Mapping[str, Source] = {
    "anthropic": Source("anthropic"),
    # An ARN ends in the name, unless its owner gave it one of their own.
    "bedrock": Source("aws", names=r"(?:arn:.*/)?(?P<model>[^/]+)"),
    "embedded": Source(local=True, in_process=True),
    "fake": Source(local=True, in_process=True),
    "gemini": Source("google", names=r"(?:models/)?(?P<model>.+)"),
    # On our own machine, or for a monthly fee.
    "ollama": Source(local=True),
    "openai": Source("openai"),
    "openai-chat": Source(anywhere=True),
    "cerebras": Source("cerebras"),
    "deepinfra": Source(),
    "deepseek": Source("deepseek"),
    "fireworks": Source("fireworks"),
    "groq": Source("groq"),
    # Without a host it is the router's choice, and so is the price.
    "huggingface": Source("huggingface_{host}", names=r"(?P<model>.+):(?P<host>[^:]+)"),
    "llamacpp": Source(anywhere=True),
    "lmstudio": Source(anywhere=True),
    "mistral": Source("mistral"),
    "moonshot": Source("moonshotai"),
    "nvidia": Source(),
    "openrouter": Source("openrouter"),
    "perplexity": Source("perplexity"),
    "sambanova": Source(),
    "together": Source("together"),
    "vllm": Source(anywhere=True),
    "xai": Source("x-ai"),
}
