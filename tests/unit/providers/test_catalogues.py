"""The current models of every dialect are known, and so is what sets them apart."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from penstock.contract.options import Capabilities
from penstock.providers.profiles import Catalogue
from penstock.providers.registry import BUILT_IN

MILLION = 1_000_000


def catalogue_of(kind: str) -> Catalogue:
    return importlib.import_module(
        f"penstock.providers.{BUILT_IN[kind].dialect}.catalogue"
    ).CATALOGUE


def able(kind: str, model: str) -> Capabilities:
    return catalogue_of(kind).profile(kind, model, {}).capabilities


@pytest.mark.parametrize(
    ("kind", "model", "window", "facts"),
    [
        ("openai", "gpt-6-astra", 1_050_000, {"temperature": False}),
        ("openai", "gpt-6.1-sol", 1_050_000, {"temperature": False, "prefill": False}),
        ("openai", "gpt-6.1-terra", 1_050_000, {"temperature": False, "reasoning_off": True}),
        ("openai", "gpt-6-luna", 1_050_000, {"temperature": False}),
        ("openai", "gpt-5.6-terra", 1_050_000, {"temperature": True}),
        ("openai", "gpt-5.4-mini", 400_000, {}),
        ("openai", "gpt-5.2-pro", 400_000, {}),
        ("openai-chat", "gpt-6.1-sol", 1_050_000, {"temperature": False}),
        ("openai-chat", "gpt-4o", 128_000, {"max_output": 16_384}),
        ("openai-chat", "gpt-5-mini", 400_000, {"max_output": 128_000}),
        ("anthropic", "claude-opus-5-5", MILLION, {"max_output": 128_000, "reasoning_off": False}),
        ("anthropic", "claude-fable-5-1", MILLION, {"prefill": False, "reasoning_off": False}),
        ("anthropic", "claude-sonnet-5-5", MILLION, {"prefill": False, "temperature": False}),
        ("anthropic", "claude-haiku-5-5", MILLION, {"prefill": False, "max_output": 128_000}),
        ("gemini", "gemini-4-argon", 1_048_576, {"max_output": 65_536, "prefill": False}),
        ("gemini", "gemini-3.8-flash", 1_048_576, {"reasoning_off": True}),
        ("gemini", "gemini-3.1-flash-lite", 1_048_576, {"prefill": True}),
        ("gemini", "gemma-4-31b-it", 262_144, {"audio": False}),
        ("bedrock", "global.anthropic.claude-opus-5-5", MILLION, {"reasoning_off": False}),
        ("bedrock", "global.anthropic.claude-sonnet-5-5", MILLION, {"temperature": False}),
        ("bedrock", "global.anthropic.claude-haiku-5-5", MILLION, {"max_output": 128_000}),
        ("bedrock", "amazon.nova-micro-v1:0", 128_000, {"images": False, "prefill": True}),
        ("bedrock", "global.openai.gpt-6.1-sol", MILLION, {"temperature": False, "audio": False}),
        ("bedrock", "deepseek.r1-v1:0", 128_000, {"reasoning": False}),
    ],
)
def test_current_models(kind: str, model: str, window: int, facts: dict[str, Any]) -> None:
    found = able(kind, model)
    assert found.context_window == window
    assert {name: getattr(found, name) for name in facts} == facts


DIALECTS = sorted({kind.dialect: name for name, kind in BUILT_IN.items() if kind.dialect}.values())


@pytest.mark.parametrize("kind", DIALECTS)
def test_every_rule_names_real_capabilities(kind: str) -> None:
    for rule in catalogue_of(kind).rules:
        assert set(rule.capabilities) <= set(Capabilities.__struct_fields__)
