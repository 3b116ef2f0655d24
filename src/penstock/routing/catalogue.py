"""What is known of models before any answer of theirs was seen, as data.

A model is found by the first row whose pattern fits its name, wherever it is served. A row tells
its class, by which it stands in for models of other makers, and what to expect until there is
experience: the quality of its answers, how fast it writes, how soon it begins. Prices are not here;
they are in the price book.

The figures are coarse on purpose. Classes follow the makers' own line-ups (their price lists, as of
2026); qualities are about the shares of MMLU-Pro that makers and its public list report for such
models, rounded, and for older ones by generation, for a new small model is often better than an old
large one; speeds are of the order that makers and public trackers show
for hosted models, and of one machine without a large accelerator for small open ones. To teach
Penstock a model, add a row before those that would catch it.
"""

from __future__ import annotations

from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from penstock.contract.checks.lengths import NAME


class Class(Enum):
    """Models that may stand in for one another."""

    LARGE = "large"
    """The best that its maker has, at any price."""
    MEDIUM = "medium"
    """What most work is done with."""
    SMALL = "small"
    """Quick and cheap."""
    TINY = "tiny"
    """Runs anywhere."""


class Family(NamedTuple):
    """Models that are alike; a row of `FAMILIES`."""

    patterns: tuple[str, ...]
    """Globs on lower-case names."""
    kind: Class | None
    """None for names that tell no class, such as a maker's."""
    quality: float
    """From 0 to 1."""
    tokens_per_s: float
    first_token_ms: float

    def latency_ms(self, output_tokens: float) -> float:
        """How long an answer of so many tokens takes."""
        return self.first_token_ms + 1000 * output_tokens / self.tokens_per_s


L, M, S, T = Class.LARGE, Class.MEDIUM, Class.SMALL, Class.TINY
FAMILIES: tuple[Family, ...] = (
    # Anthropic; the digits of old names stand before the class, those of new ones after it.
    Family(("*claude-instant*", "*claude-2*", "*claude-v2*"), S, 0.5, 60, 900),
    Family(("*claude-3-opus*",), M, 0.68, 30, 1800),
    Family(("*claude-3-sonnet*",), S, 0.56, 60, 1000),
    Family(("*claude-3-haiku*",), S, 0.42, 120, 600),
    Family(("*claude-3-5-haiku*", "*claude-3.5-haiku*"), S, 0.62, 100, 700),
    Family(("*claude-3-5-sonnet*", "*claude-3.5-sonnet*"), M, 0.76, 70, 1000),
    Family(("*opus*", "*fable*", "*mythos*"), L, 0.88, 50, 2000),
    Family(("*sonnet*",), M, 0.82, 70, 1200),
    Family(("*haiku*",), S, 0.7, 140, 600),
    # OpenAI.
    Family(("*gpt-3.5*", "*gpt-35*"), S, 0.48, 90, 500),
    Family(("*gpt-oss-20b*",), S, 0.6, 120, 500),
    Family(("*gpt-oss*",), S, 0.7, 150, 500),
    Family(("*gpt-*-nano*", "*luna*"), S, 0.65, 150, 500),
    Family(("*gpt-4o-mini*",), S, 0.62, 100, 600),
    Family(("*gpt-*-mini*", "o[134]-mini*", "*/o[134]-mini*"), S, 0.7, 100, 800),
    Family(("*terra*",), S, 0.76, 110, 800),
    Family(("*gpt-*-pro*", "o[134]-pro*", "*/o[134]-pro*", "*astra*"), L, 0.88, 30, 8000),
    Family(("o[134]", "o[134]-*", "*/o[134]", "*/o[134]-*"), M, 0.8, 60, 5000),
    Family(("*gpt-4-*", "*gpt-4"), M, 0.64, 40, 1000),
    Family(("*gpt-4o*", "*gpt-4.1*"), M, 0.74, 70, 800),
    Family(("*gpt-[5-9]*", "*gpt-6*-sol*"), M, 0.82, 70, 1500),
    # Google.
    Family(("*gemini*-flash-8b*",), S, 0.58, 250, 400),
    Family(("*gemini*-flash-lite*",), S, 0.7, 250, 400),
    Family(("*gemini-1*-flash*",), S, 0.66, 180, 500),
    Family(("*gemini*-flash*", "*gemini*-nano*"), S, 0.76, 180, 600),
    Family(("*gemini*-ultra*", "*gemini*-argon*"), L, 0.87, 80, 3000),
    Family(("*gemini-1.5-pro*",), M, 0.74, 60, 900),
    Family(("*gemini-1.0-pro*", "*gemini-pro"), S, 0.5, 60, 900),
    Family(("*gemini*-pro*",), M, 0.83, 90, 2500),
    Family(("*gemma*-[1-4]b*", "*gemma*:[1-4]b*"), T, 0.4, 40, 500),
    Family(("*gemma*",), S, 0.58, 40, 600),
    # Others that are served in many places.
    Family(("*grok*-fast*", "*grok*-mini*"), S, 0.7, 150, 700),
    Family(("*grok*",), M, 0.8, 70, 1200),
    Family(("*deepseek*r1*", "*deepseek*reason*"), M, 0.8, 40, 4000),
    Family(("*deepseek*",), M, 0.78, 50, 1500),
    Family(("*nova-micro*", "*nova-lite*"), S, 0.58, 180, 500),
    Family(("*nova-premier*",), M, 0.75, 60, 1200),
    Family(("*nova-pro*", "*nova-2*"), M, 0.7, 90, 900),
    Family(("*mistral-large*", "*mistral-medium*", "*magistral-medium*"), M, 0.75, 60, 900),
    Family(("*ministral*",), T, 0.5, 120, 400),
    Family(("*mistral-7b*", "*mistral:7b*", "*open-mistral*"), T, 0.3, 100, 400),
    Family(("*mathstral*",), T, 0.42, 100, 400),
    Family(("*mixtral*8x22b*",), S, 0.54, 70, 600),
    Family(("*mixtral*",), S, 0.42, 100, 500),
    Family(("*mistral*", "*codestral*", "*magistral*"), S, 0.6, 100, 500),
    Family(("*jamba*large*",), M, 0.52, 60, 900),
    Family(("*jamba*",), S, 0.4, 100, 600),
    Family(("*command-a*",), M, 0.66, 60, 900),
    Family(("*command-r-plus*",), M, 0.44, 60, 900),
    Family(("*command*",), S, 0.38, 90, 600),
    Family(("*llama*405b*", "*llama*maverick*"), M, 0.72, 60, 900),
    Family(("*llama*-[1-3]b*", "*llama*:[1-3]b*"), T, 0.35, 60, 400),
    Family(("*llama*-7b*", "*llama*:7b*", "*llama*13b*", "*llama2*"), T, 0.25, 100, 400),
    Family(("*llama*-8b*", "*llama*:8b*"), S, 0.44, 100, 400),
    Family(("*llama*70b*", "*llama*90b*", "*llama*scout*"), S, 0.63, 100, 500),
    Family(("*qwen*-0.[0-9]b*", "*qwen*:0.[0-9]b*"), T, 0.25, 80, 300),
    Family(("*qwen*[-:]1.[0-9]b*", "*qwen*[-:][1-4]b*"), T, 0.42, 60, 400),
    Family(("*qwen1.5*72b*", "*qwen1.5*110b*"), M, 0.52, 60, 900),
    Family(("*qwen1.5*",), S, 0.38, 90, 500),
    Family(("*qwen*max*", "*qwen*235b*", "*qwen*-plus*"), M, 0.78, 60, 1200),
    Family(("*glm-[4-9]*", "*kimi*", "*minimax*"), M, 0.76, 60, 1200),
    Family(("*phi-3*", "*phi3*"), T, 0.46, 60, 400),
    Family(("*phi-*", "*phi[4-9]*"), T, 0.6, 60, 400),
    Family(("*smollm*", "*tinyllama*"), T, 0.15, 60, 400),
    # Sizes in words, for makers that are not here and for hints that name nothing else.
    Family(("*-nano*", "nano", "*-tiny*", "tiny"), T, 0.4, 150, 400),
    Family(("*-mini*", "mini", "*-small*", "small", "*-lite*", "lite", "flash"), S, 0.6, 120, 600),
    Family(("large", "pro", "ultra", "*-ultra*"), L, 0.8, 50, 2000),
    Family(("medium",), M, 0.7, 70, 1200),
    # Names without a class.
    Family(("*claude*", "*gpt*", "*gemini*"), None, 0.75, 70, 1500),
    Family(("*qwen*", "*llama*"), None, 0.6, 70, 700),
)
UNKNOWN = Family(("*",), None, 0.6, 60, 1000)
"""What is expected of a model that no row knows."""
del L, M, S, T


def family_of(model: str) -> Family:
    """The row of a model's name, or of a hint."""
    return _family_of(model[:NAME])


@lru_cache(maxsize=1024)
def _family_of(model: str) -> Family:
    name = model.strip().lower()
    for row in FAMILIES:
        if any(fnmatchcase(name, pattern) for pattern in row.patterns):
            return row
    return UNKNOWN


def equivalent(hint: str, model: str) -> bool:
    """Whether a model of any maker is of the class that a hint names."""
    kind = family_of(hint).kind
    return kind is not None and family_of(model).kind is kind
