"""What the learning router does, over streams of made-up requests with known qualities."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Target
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.model import Learner, LearnerSettings
from penstock.routing.learning.router import (
    MOST_KEYS,
    Decided,
    Known,
    LearnedRouter,
    RoutingSettings,
)
from penstock.routing.outcomes.outcome import Outcome, Quality
from penstock.routing.selection import Weights

LARGE, SMALL, NEW = (Target("p", name) for name in ("large", "small", "new"))
LARGE_2, LARGE_3 = (Target("p", name) for name in ("large-2", "large-3"))
BEST = Weights(1.0, 0.0, 0.0)
KINDS = {
    "sums": [
        "how",
        "many",
        "apples",
        "cost",
        "12",
        "dollars",
        "if",
        "each",
        "of",
        "the",
        "7",
        "costs",
        "more",
        "than",
        "total",
    ],
    "talk": [
        "tell",
        "a",
        "story",
        "of",
        "the",
        "garden",
        "and",
        "my",
        "friend",
        "who",
        "sings",
        "in",
        "the",
        "morning",
        "rain",
    ],
}
Chances = Mapping[Target, Mapping[str, float]]


def even(**chances: float) -> Chances:
    return {Target("p", name): dict.fromkeys(KINDS, chance) for name, chance in chances.items()}


class Stream:
    """Requests of two kinds, and answers that are right as often as they are told to be."""

    def __init__(self, router: LearnedRouter, seed: int = 1) -> None:
        self.router = router
        self.dice = random.Random(seed)

    def serve(
        self,
        number: int,
        targets: Sequence[Target],
        chances: Chances,
        *,
        kind: str | None = None,
        key: str | None = None,
    ) -> Counter[Target]:
        """Serve so many; how often each target was chosen."""
        chosen: Counter[Target] = Counter()
        for _ in range(number):
            asked = kind or self.dice.choice(list(KINDS))
            text = " ".join(self.dice.choices(KINDS[asked], k=12))
            decided = self.router.decide(self.router.features(text), 12, targets, BEST, key=key)
            target = decided.targets[0]
            chosen[target] += 1
            right = float(self.dice.random() < chances[target][asked])
            self.router.learn(outcome(decided, target, right))
        return chosen


def outcome(decided: Decided, target: Target, score: float) -> Outcome:
    return Outcome(
        target=target,
        features=decided.features,
        prompt_tokens=decided.prompt_tokens,
        quality=Quality(score),
        logged=decided.logged(target),
        key=decided.key,
    )


def router(**settings: object) -> LearnedRouter:
    values: dict[str, object] = {"in_force": True, "seed": 5, **settings}
    return LearnedRouter(FeatureMaker(), RoutingSettings(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("preferences", "first"),
    [
        (ModelPreferences(cost=1.0), SMALL),
        (ModelPreferences(speed=1.0), NEW),
        (ModelPreferences(intelligence=1.0), LARGE),
    ],
)
def test_a_single_priority_picks_the_cheapest_the_fastest_or_the_best(
    preferences: ModelPreferences, first: Target
) -> None:
    learned = router(
        learner=LearnerSettings(priors={LARGE: 0.9, SMALL: 0.4, NEW: 0.5}), floor=0.0, noise=0.0
    )
    known = {LARGE: Known(0.01, 900.0), SMALL: Known(0.001, 800.0), NEW: Known(0.005, 90.0)}
    features = learned.features("anything")
    for _ in range(20):
        decided = learned.decide(
            features, 9, [LARGE, SMALL, NEW], Weights.of(preferences), known=known
        )
        assert decided.targets[0] == first


def test_a_request_that_cares_for_cost_only_is_never_used_to_explore() -> None:
    learned = router(floor=0.5)
    known = {LARGE: Known(0.01), SMALL: Known(0.001)}
    features = learned.features("anything")
    chosen = {
        learned.decide(features, 9, [LARGE, SMALL], Weights(0, 1, 0), known=known).targets[0]
        for _ in range(200)
    }
    assert chosen == {SMALL}


def test_each_kind_of_prompt_goes_to_the_target_that_is_good_at_it() -> None:
    chances = {LARGE: {"sums": 0.9, "talk": 0.4}, SMALL: {"sums": 0.3, "talk": 0.9}}
    stream = Stream(router())
    stream.serve(300, [LARGE, SMALL], chances)
    assert stream.serve(100, [LARGE, SMALL], chances, kind="sums")[LARGE] > 85
    assert stream.serve(100, [LARGE, SMALL], chances, kind="talk")[SMALL] > 85


@pytest.mark.parametrize(("quality", "adopted"), [(0.95, True), (0.2, False)])
def test_a_new_target_is_tried_and_then_adopted_or_dropped(quality: float, adopted: bool) -> None:
    chances = even(large=0.7, small=0.5, new=quality)
    stream = Stream(router())
    stream.serve(200, [LARGE, SMALL], chances)
    met = stream.serve(400, [LARGE, SMALL, NEW], chances)
    assert met[NEW] >= 20
    late = stream.serve(150, [LARGE, SMALL, NEW], chances)
    assert (late[NEW] > 100) if adopted else (late[NEW] < 15)


def test_a_target_that_was_dropped_is_not_tried_all_over_because_its_evidence_ages() -> None:
    stream = Stream(router(learner=LearnerSettings(half_life=300)))
    chances = even(large=0.9, small=0.2)
    stream.serve(600, (LARGE, SMALL), chances)
    # Evidence of 20 outcomes would have to be made up for 90 times in so many requests.
    assert stream.serve(2_000, (LARGE, SMALL), chances)[SMALL] < 20


def test_after_a_swap_of_qualities_the_router_follows_within_500_requests() -> None:
    stream = Stream(router())
    before = stream.serve(600, [LARGE, SMALL], even(large=0.9, small=0.4))
    assert before[LARGE] > 520
    swapped = even(large=0.4, small=0.9)
    stream.serve(500, [LARGE, SMALL], swapped)
    assert stream.serve(100, [LARGE, SMALL], swapped)[SMALL] > 80


def test_a_new_version_begins_with_what_its_predecessor_had_shown() -> None:
    stream = Stream(router())
    stream.serve(250, [LARGE, SMALL], even(large=0.9, small=0.3))
    features = stream.router.features("how many apples cost 12")
    ranked = stream.router.explain(features, 9, [SMALL, LARGE_2], BEST).ranked
    assert ranked[0].target == LARGE_2
    assert ranked[0].offer.quality == pytest.approx(0.9, abs=0.15)


@pytest.mark.parametrize("silent", [SMALL, LARGE_2])
def test_a_new_version_is_after_a_restart_what_it_was(silent: Target) -> None:
    served, again = router(), router()
    # All are there from the first: nothing is known of any when they are first asked about.
    targets = [LARGE, silent, LARGE_3]
    for number in range(90):
        decided = served.decide(served.features(f"question {number}"), 5, targets, BEST)
        # The newest answers late, and the silent one never.
        target = LARGE_3 if number > 60 and number % 5 == 0 else LARGE
        told = outcome(decided, target, float(target == LARGE))
        served.learn(told)
        again.learn(told)
    features, heard = served.features("question 3"), [LARGE, LARGE_3]
    found = [each.explain(features, 5, heard, BEST).ranked for each in (served, again)]
    now, then = ({s.target: s.offer for s in ranked} for ranked in found)
    for target in heard:
        assert then[target].quality == pytest.approx(now[target].quality, abs=1e-4)
        assert then[target].total == pytest.approx(now[target].total)
    assert now[LARGE_3].total > 20


def test_a_new_version_is_tried_however_often_its_predecessor_was() -> None:
    learner = Learner()
    features = FeatureMaker().vector("a prompt")
    for _ in range(60):
        learner.learn(
            Outcome(target=LARGE, features=features, prompt_tokens=12, quality=Quality(0.0))
        )
    older, newer = learner.estimates(features, 12, (LARGE, LARGE_2))
    assert (older.asked, newer.asked) == (60, 0)
    assert newer.total == pytest.approx(30)


def test_identical_seeds_make_identical_decisions() -> None:
    chances = even(large=0.6, small=0.55)

    def choices(seed: int) -> list[tuple[Target, float]]:
        learned = router(seed=seed)
        dice = random.Random(3)
        found: list[tuple[Target, float]] = []
        for _ in range(80):
            text = " ".join(dice.choices(KINDS["talk"], k=9))
            decided = learned.decide(learned.features(text), 9, [LARGE, SMALL], BEST)
            target = decided.targets[0]
            found.append((target, decided.choice.chosen.propensity))
            learned.learn(outcome(decided, target, float(dice.random() < chances[target]["talk"])))
        return found

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


@pytest.mark.parametrize("isolated", [True, False])
def test_with_isolation_another_key_cannot_poison_a_keys_routing(isolated: bool) -> None:
    stream = Stream(router(isolated=isolated))
    stream.serve(100, [LARGE, SMALL], even(large=0.9, small=0.3), key="mine")
    lies = even(large=0.0, small=1.0)
    stream.serve(300, [LARGE, SMALL], lies, key="theirs")
    features = stream.router.features("how many apples cost 12 dollars")
    first = stream.router.explain(features, 9, [LARGE, SMALL], BEST, key="mine").best.target
    assert first == (LARGE if isolated else SMALL)


def test_propensities_are_those_of_the_choice_and_add_up_to_one() -> None:
    learned = router(floor=0.2)
    features = learned.features("anything")
    decided = [learned.decide(features, 9, [LARGE, SMALL, NEW], BEST) for _ in range(300)]
    for each in decided:
        shares = [scored.propensity for scored in each.choice.ranked]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) >= 0.2 / 3 - 1e-9
    expected = np.mean(
        [next(s.propensity for s in each.choice.ranked if s.target == SMALL) for each in decided]
    )
    happened = sum(each.targets[0] == SMALL for each in decided) / len(decided)
    assert happened == pytest.approx(float(expected), abs=0.12)


def test_advice_keeps_the_order_until_outcomes_speak_for_the_learned_one_and_falls_back() -> None:
    stream = Stream(router(in_force=False, floor=0.1))
    better = even(small=0.9, large=0.3)
    early = stream.serve(100, [LARGE, SMALL], better)
    assert early[LARGE] > 80
    assert not stream.router.verdict().in_force
    stream.serve(500, [LARGE, SMALL], better)
    verdict = stream.router.verdict()
    assert verdict.in_force
    assert verdict.gain > 0
    assert stream.serve(100, [LARGE, SMALL], better)[SMALL] > 80


def test_what_is_learnt_again_from_stored_outcomes_decides_the_same() -> None:
    stored: list[Outcome] = []

    class Storing(LearnedRouter):
        def learn(self, outcome: Outcome) -> None:
            stored.append(outcome)
            super().learn(outcome)

    first = Storing(FeatureMaker(), RoutingSettings(in_force=True, seed=5))
    Stream(first).serve(150, [LARGE, SMALL], even(large=0.8, small=0.5))
    again = router()
    for each in stored:
        again.learn(each)
    features = first.features("tell a story")
    assert again.explain(features, 9, [LARGE, SMALL], BEST) == first.explain(
        features, 9, [LARGE, SMALL], BEST
    )
    assert again.verdict() == first.verdict()


def test_questions_about_keys_that_never_asked_take_no_other_keys_place() -> None:
    stream = Stream(router(isolated=True))
    stream.serve(30, [LARGE, SMALL], even(large=0.9, small=0.3), key="mine")
    features = stream.router.features("how many apples cost 12 dollars")

    def told(key: str) -> float:
        choice = stream.router.explain(features, 9, [LARGE, SMALL], BEST, key=key)
        return sum(each.offer.total for each in choice.ranked)

    before = told("mine")
    assert [told(f"stranger {number}") for number in range(MOST_KEYS + 1)] == [0.0] * (
        MOST_KEYS + 1
    )
    assert told("mine") == before > 0


def test_a_target_whose_price_nobody_knows_is_not_cheaper_for_short_prompts() -> None:
    asked = router()
    features = asked.features("hi")
    for target, cost in ((LARGE, 0.02), (SMALL, None)):
        for _ in range(50):
            asked.learn(Outcome(target=target, features=features, prompt_tokens=900, cost_usd=cost))
    even = Weights(0.5, 0.5, 0.0)
    made = asked.explain(features, 9, [SMALL, LARGE], even, known={LARGE: Known(0.0002)})
    spent = {each.target: each.spent for each in made.ranked}
    assert spent[SMALL] == spent[LARGE] > 0
