"""What single models do differently on this wire, as data.

Anybody can make a model of any name, so only what a name tells for certain stands here. What a
model cannot do (tools, thinking, pictures), its server says itself, with a 400.
"""

from __future__ import annotations

from penstock.contract.options import Capabilities
from penstock.providers.profiles import Catalogue, Rule

_RULES: tuple[Rule, ...] = (
    # The server takes a level from this family only; every other model thinks or does not.
    Rule(
        models=("gpt-oss*", "*/gpt-oss*"),
        capabilities={"reasoning_off": False},
        options={"think_levels": True},
    ),
)

CATALOGUE = Catalogue(
    Capabilities(
        sampling_fields={
            **{
                name: f"options.{name}"
                for name in (
                    *("top_p", "top_k", "min_p", "seed"),
                    *("presence_penalty", "frequency_penalty"),
                )
            },
            "repetition_penalty": "options.repeat_penalty",
        },
        image_urls=False,
        tool_choice=False,
        parallel_tools_switch=False,
        # The library's templates leave the assistant's last message open.
        prefill=True,
        embeddings=True,
    ),
    _RULES,
)
