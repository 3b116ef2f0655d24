"""The catalogue of quirks: a model's name in, its profile out."""

from typing import Any

import pytest

from penstock.contract.options import Capabilities
from penstock.providers.anthropic.catalogue import CATALOGUE
from penstock.providers.profiles import Catalogue, ModelProfile, Rule


def profile_of(model: str, **options: Any) -> ModelProfile:
    return CATALOGUE.profile("anthropic", model, options)


NEW = {"temperature": False, "prefill": False, "context_window": 1_000_000, "max_output": 128_000}
OLD = {"temperature": True, "prefill": True, "context_window": 200_000, "max_output": 64_000}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5-5", {**NEW, "tool_choice": False, "reasoning_off": False}),
        ("claude-fable-5-2", {**NEW, "tool_choice": False, "reasoning_off": False}),
        ("claude-mythos-5", {**NEW, "tool_choice": False, "reasoning_off": False}),
        ("claude-sonnet-5-5", {**NEW, "tool_choice": False, "reasoning_off": True}),
        ("claude-haiku-5-5", {**NEW, "tool_choice": True}),
        ("claude-sonnet-5", {**NEW, "tool_choice": True}),
        ("claude-opus-5", NEW),
        ("claude-opus-4-8", NEW),
        ("Claude-Opus-4-7", NEW),
        ("claude-of-tomorrow", NEW),
        ("claude-opus-4-6", {**NEW, "temperature": True}),
        ("claude-sonnet-4-6", {**NEW, "temperature": True, "max_output": 64_000}),
        ("claude-haiku-4-5-20251001", {**OLD, "min_reasoning_tokens": 1024}),
        ("claude-sonnet-4-5", {**OLD, "output_schema": True}),
        ("claude-opus-4-1-20250805", {**OLD, "max_output": 32_000, "output_schema": True}),
        ("claude-opus-4-20250514", {**OLD, "max_output": 32_000, "output_schema": False}),
        ("claude-sonnet-4-20250514", {**OLD, "reasoning": True}),
        ("claude-3-7-sonnet-latest", {**OLD, "reasoning": True}),
        ("claude-3-5-haiku-latest", {"max_output": 8_192, "reasoning": False, "prefill": True}),
        ("claude-3-haiku-20240307", {"max_output": 4_096, "reasoning": False}),
        ("qwen3", {"temperature": True, "prefill": True, "context_window": None}),
        ("qwen3", {"audio": False, "embeddings": False, "max_temperature": 1.0}),
    ],
)
def test_what_models_take(model: str, expected: dict[str, Any]) -> None:
    capabilities = profile_of(model).capabilities
    assert {name: getattr(capabilities, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5-5", {"thinking_display": "summarized"}),
        ("claude-fable-5", {"thinking_display": "summarized"}),
        ("claude-sonnet-5-5", {"thinking_off": "between_tools", "thinking_display": "summarized"}),
        ("claude-haiku-5-5", {"thinking_display": "summarized"}),
        ("claude-sonnet-4-6", {"thinking_display": None}),
        ("claude-haiku-4-5", {"thinking": "budget", "thinking_display": None}),
        ("qwen3", {}),
    ],
)
def test_how_models_think(model: str, expected: dict[str, Any]) -> None:
    family = {"origin": "anthropic-claude"} if model.startswith("claude") else {}
    assert profile_of(model).options == expected | family


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-opus-5-5", "qwen3"])
def test_the_new_version_of_the_api_takes_no_temperature(model: str) -> None:
    assert not profile_of(model, api_version="2026-10-21").capabilities.temperature
    old = profile_of(model, api_version="2023-06-01")
    assert old.capabilities == profile_of(model).capabilities
    assert old.options["api_version"] == "2023-06-01"


def test_a_rule_may_depend_on_a_setting_of_the_provider() -> None:
    rule = Rule(("a*",), option=("mode", "x"), capabilities={"tools": False}, options={"y": 1})
    catalogue = Catalogue(Capabilities(), (rule,))
    for model, options, applies in (
        ("a1", {"mode": "x"}, True),
        ("a1", {"mode": "z"}, False),
        ("a1", {}, False),
        ("b1", {"mode": "x"}, False),
    ):
        profile = catalogue.profile("any", model, options)
        assert profile.capabilities.tools is not applies
        assert ("y" in profile.options) is applies
