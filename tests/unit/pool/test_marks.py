"""Marks on targets, providers and patterns: which rule decides, and what they cover later."""

import pytest

from penstock.contract.errors import ConfigurationError, ProviderUnavailable
from penstock.contract.ports import Target
from penstock.pool.targets.marks import MAX_MARKS, Marks
from penstock.pool.targets.states import TargetStates

ONE, TWO = Target("openai", "gpt-one"), Target("openai", "other/two")
ELSEWHERE = Target("openai-eu", "gpt-one")


def is_down(states: TargetStates, target: Target) -> bool:
    asked = states.available(target)[0]
    assert (states[target].breaker.allow() is not None) == asked
    return not asked


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("openai/gpt-one", [ONE]),
        ("openai", [ONE, TWO]),
        ("openai/*", [ONE, TWO]),
        ("openai/gpt-*", [ONE]),
        ("openai*", [ONE, TWO, ELSEWHERE]),
        ("*/gpt-one", [ONE, ELSEWHERE]),
        ("*", [ONE, TWO, ELSEWHERE]),
        ("OPENAI", []),
    ],
)
@pytest.mark.parametrize("seen", [True, False])
def test_a_mark_covers_targets_that_are_known_and_those_seen_later(
    pattern: str, covered: list[Target], seen: bool
) -> None:
    states = TargetStates()
    targets = [ONE, TWO, ELSEWHERE]
    if seen:
        assert [states[each].target for each in targets] == targets
    states.mark_down(pattern, "maintenance")
    assert [each for each in targets if is_down(states, each)] == covered
    states.mark_up(pattern)
    assert [each for each in targets if is_down(states, each)] == []
    assert states.marks.rules == []


def test_the_last_rule_that_covers_a_target_decides() -> None:
    states = TargetStates()
    states.mark_down("openai", "maintenance")
    states.mark_up("openai/gpt-one")
    assert not is_down(states, ONE)
    assert is_down(states, TWO)
    assert states.available(TWO) == (False, "marked down: maintenance")
    states.mark_down("openai/gpt-*", "again")
    assert is_down(states, ONE)
    states.mark_up("openai")
    assert not is_down(states, ONE)
    assert not is_down(states, TWO)


def test_lifting_a_provider_lifts_the_marks_of_its_targets_and_of_no_others() -> None:
    states = TargetStates()
    for each in (ONE, TWO, ELSEWHERE):
        states.mark_down(str(each), "one by one")
    states.mark_up("openai")
    assert [is_down(states, each) for each in (ONE, TWO, ELSEWHERE)] == [False, False, True]


def test_a_name_with_the_signs_of_a_pattern_covers_itself() -> None:
    odd = Target("local", "model[1]")
    states = TargetStates()
    states.mark_down(odd, "by its name")
    assert is_down(states, odd)
    assert not is_down(states, Target("local", "model2"))


def test_a_mark_outlasts_a_change_of_the_configuration() -> None:
    before, now = TargetStates(), TargetStates()
    before.mark_down("openai", "maintenance")
    assert is_down(before, ONE)
    now.adopt(before, lambda provider: False)
    assert is_down(now, ONE)
    assert is_down(now, TWO)


def test_the_number_of_marks_has_a_limit() -> None:
    marks = Marks()
    for number in range(MAX_MARKS):
        marks.down(f"p/{number}", "x")
    marks.down("p/0", "the same name again")
    with pytest.raises(ConfigurationError, match="mark a whole provider"):
        marks.down("p/one-more", "x")
    marks.up("p")
    assert marks.rules == []


def test_rules_of_another_process_are_taken_over_unless_they_are_older() -> None:
    one, other = Marks(), Marks()
    one.down("openai", "first")
    other.adopt(one.rules)
    assert other.rules == one.rules
    one.up("openai/gpt-one")
    other.adopt(one.rules)
    mark = other.of("openai/two")
    assert mark is not None
    assert mark.reason == "first"
    assert other.of("openai/gpt-one") is None


def test_targets_that_callers_make_up_below_a_mark_take_no_memory_for_ever() -> None:
    states = TargetStates()
    states.mark_down("openai", "maintenance")
    for number in range(3000):
        assert is_down(states, Target("openai", f"made-up-{number}"))
    assert len(list(states)) <= 1024


def test_targets_that_callers_make_up_and_that_fail_take_no_memory_for_ever() -> None:
    states = TargetStates()
    for number in range(3000):
        state = states[Target("openai", f"made-up-{number}")]
        for _ in range(5):
            permit = state.breaker.allow()
            assert permit is not None
            state.failed(permit, ProviderUnavailable("down", retry_after=100))
    assert len(list(states)) <= 1024
