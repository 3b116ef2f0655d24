"""What single models and providers do differently, as data.

Every dialect has a `Catalogue`. Each rule whose provider kind and model pattern match is applied in
order, so a later rule refines an earlier one. A model that no rule knows may do all that its
dialect can: its server will say no itself. To teach Penstock a quirk, add a row to a dialect's
catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import msgspec

from penstock.contract.options import Capabilities


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The quirks of one model on one wire; every field is data that an encoder reads."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Dialect-specific switches, such as `{"max_tokens_field": "max_completion_tokens"}`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: for whom it holds, and what it changes. Patterns are globs on lower-case names."""

    models: tuple[str, ...] = ("*",)
    kind: str = "*"
    option: tuple[str, str] | None = None
    """A setting of the provider that must have this value, such as `api_version`."""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Where a dialect starts from, and the rules that refine it."""

    base: Capabilities = field(default_factory=Capabilities)
    rules: tuple[Rule, ...] = ()

    def profile(self, kind: str, model: str, options: Mapping[str, Any]) -> ModelProfile:
        """The profile of this model at this kind of provider; `options` are the provider's own."""
        name = model.lower()
        capabilities: dict[str, Any] = {}
        switches: dict[str, Any] = {}
        for rule in self.rules:
            if (
                fnmatchcase(kind, rule.kind)
                and any(fnmatchcase(name, pattern) for pattern in rule.models)
                and (rule.option is None or options.get(rule.option[0]) == rule.option[1])
            ):
                capabilities |= rule.capabilities
                switches |= rule.options
        return ModelProfile(
            msgspec.structs.replace(self.base, **capabilities),
            MappingProxyType({**switches, **options}),
        )
