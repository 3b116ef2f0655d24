"""Every dialect and every model of its catalogue, for tests of what becomes of an option there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import NamedTuple

from penstock.contract.options import Capabilities
from penstock.providers.embedded.provider import EmbeddedProvider
from penstock.providers.profiles import Catalogue, Rule
from penstock.providers.registry import BUILT_IN

DIALECTS = {
    "openai": "openai_responses",
    "openai-chat": "openai_chat",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "bedrock": "bedrock",
    "ollama": "ollama",
}


class OptionRow(NamedTuple):
    """One model, or all of a dialect that no rule knows."""

    kind: str
    models: str
    """A pattern of the catalogue; empty for models that no rule knows."""
    able: Capabilities
    provider: str = ""
    """The kind of provider that has it: another one of the same dialect, or the same."""


def catalogue_of(kind: str) -> Catalogue:
    """The catalogue of the dialect that this kind of provider speaks."""
    package = importlib.import_module(f"penstock.providers.{DIALECTS[kind]}")
    return package.DIALECT.catalogue


def rows() -> Iterator[OptionRow]:
    """Each dialect, then the models of its catalogue."""
    for kind in DIALECTS:
        catalogue = catalogue_of(kind)
        yield OptionRow(kind, "", catalogue.base)
        seen: set[tuple[str, str]] = set()
        for rule in catalogue.rules:
            for of, pattern in _patterns(rule, kind):
                if (of, pattern) not in seen:
                    seen.add((of, pattern))
                    profile = catalogue.profile(
                        of, sample(pattern), dict([rule.option or ("", "")])
                    )
                    yield OptionRow(kind, pattern, profile.capabilities, of)
    yield OptionRow("embedded", "", EmbeddedProvider().capabilities("default"))


def sample(pattern: str) -> str:
    """A model's name that fits the pattern."""
    return pattern.replace("*", "") or "any"


def _patterns(rule: Rule, kind: str) -> Iterator[tuple[str, str]]:
    of = rule.kind if rule.kind in BUILT_IN else kind
    for pattern in rule.models:
        yield of, pattern
