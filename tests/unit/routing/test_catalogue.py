"""What names tell: the class of a model, what to expect of it, and its predecessor."""

from itertools import pairwise, permutations

import pytest

from penstock.contract.ports import Target
from penstock.routing.catalogue import FAMILIES, UNKNOWN, Class, equivalent, family_of
from penstock.routing.versions import predecessor


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-opus-5-5", Class.LARGE),
        ("gpt-5-pro", Class.LARGE),
        ("global.anthropic.claude-sonnet-5-5", Class.MEDIUM),
        ("gpt-6.1-sol", Class.MEDIUM),
        ("gemini-1.5-pro", Class.MEDIUM),
        ("o3", Class.MEDIUM),
        ("o4-mini", Class.SMALL),
        ("GPT-4o-Mini", Class.SMALL),
        ("gemini-3.8-flash", Class.SMALL),
        ("claude-3-5-haiku-latest", Class.SMALL),
        ("smollm2", Class.TINY),
        ("claude", None),
        ("gpt", None),
        ("nobody-knows", None),
    ],
)
def test_a_name_tells_the_class(model: str, kind: Class | None) -> None:
    assert family_of(model).kind is kind


def test_every_row_is_reached_by_some_name_and_plausible() -> None:
    for row in (*FAMILIES, UNKNOWN):
        assert 0 < row.quality < 1
        assert row.tokens_per_s > 0
        assert row.first_token_ms > 0
        assert row.latency_ms(100) > row.first_token_ms
    patterns = [pattern for row in FAMILIES for pattern in row.patterns]
    assert len(patterns) == len(set(patterns))


def test_a_larger_class_of_a_maker_is_expected_to_be_better() -> None:
    for line in (
        ("claude-haiku-5", "claude-sonnet-5", "claude-opus-5"),
        ("gpt-6-luna", "gpt-6.1-sol", "gpt-6-astra"),
        ("gemini-4-flash-lite", "gemini-4-flash", "gemini-4-pro"),
    ):
        for lesser, better in pairwise(line):
            assert family_of(lesser).quality < family_of(better).quality


@pytest.mark.parametrize(
    ("hint", "model", "alike"),
    [
        ("sonnet", "gpt-6.1-sol", True),
        ("claude-3-5-sonnet-20241022", "gemini-2.5-pro", True),
        ("haiku", "gpt-5-mini", True),
        ("flash", "claude-haiku-5-5", True),
        ("opus", "gpt-5-pro", True),
        ("opus", "gpt-5-mini", False),
        ("claude", "gpt-6.1-sol", False),
        ("sonnet", "nobody-knows", False),
    ],
)
def test_models_of_one_class_stand_in_for_one_another(hint: str, model: str, alike: bool) -> None:
    assert equivalent(hint, model) is alike


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("claude-sonnet-5", "claude-sonnet-5-5"),
        ("claude-3-5-sonnet-20241022", "claude-sonnet-4-5"),
        ("claude-3-5-sonnet-20240620", "claude-3-5-sonnet-20241022"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06"),
        ("gpt-6-sol", "gpt-6.1-sol"),
        ("anthropic.claude-sonnet-5-v1:0", "global.anthropic.claude-sonnet-5-5"),
        ("llama-3.1-70b-instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("qwen2.5:7b", "qwen3:7b"),
        ("o3", "o4"),
    ],
)
def test_a_new_version_finds_the_one_before(older: str, newer: str) -> None:
    before, after = Target("a", older), Target("b", newer)
    assert predecessor(after, [before]) == before
    assert predecessor(before, [after]) is None


@pytest.mark.parametrize(
    "models",
    [
        ("gpt-6-sol", "gpt-6.1-terra"),
        ("llama-3.1-8b", "llama-3.3-70b"),
        ("gpt-4-0613", "gpt-4-1106-preview"),
        ("gpt-4o", "gpt-4o-mini"),
        ("claude-sonnet-5", "claude-opus-5-5"),
    ],
)
def test_other_lines_and_dates_without_a_year_are_no_versions(models: tuple[str, str]) -> None:
    one, two = (Target("a", model) for model in models)
    assert predecessor(one, [two]) is None
    assert predecessor(two, [one]) is None


def test_the_newest_of_those_before_counts_and_at_the_same_provider_first() -> None:
    first, second = Target("a", "claude-sonnet-4"), Target("b", "claude-sonnet-5")
    same, newest = Target("a", "claude-sonnet-5"), Target("a", "claude-sonnet-5-5")
    for among in permutations((first, second, same, newest)):
        assert predecessor(newest, among) == same
        assert predecessor(same, among) == first
        assert predecessor(first, among) is None
