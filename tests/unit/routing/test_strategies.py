"""Strategies among targets that are equal otherwise, and what they are told by experience."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities, ModelPreferences
from penstock.contract.ports import RouteDecision, Target
from penstock.routing.catalogue import family_of
from penstock.routing.forecast import Outlook
from penstock.routing.latency_history import Experience
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.model import LearnerSettings
from penstock.routing.learning.prompt_features import Reader
from penstock.routing.learning.router import LearnedRouter, RoutingSettings
from penstock.routing.learning.service import Learning
from penstock.routing.learning.strategy import Learned
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from penstock.routing.router import TargetTable, Ways
from penstock.routing.strategies import Cheapest, Fastest, Opinion, Strategy
from penstock.telemetry.records import AttemptRecord, Outcome, RequestRecord
from tests.unit.routing.test_ranking import Down

BEST = Target("openai", "gpt-6-astra")
QUICK = Target("google", "gemini-3.1-flash-lite")
CHEAP = Target("local", "smollm2")
PRICES = {BEST: (10.0, 50.0), QUICK: (0.25, 1.5), CHEAP: (0.0, 0.0)}
MODEL = (BEST, QUICK, CHEAP)


def price(target: Target, read: int, written: int) -> float | None:
    if target not in PRICES:
        return None
    per_input, per_output = PRICES[target]
    return (per_input * read + per_output * written) / 1e6


def outlook(*records: RequestRecord) -> Outlook:
    experience = Experience()
    for record in records:
        experience(record)
    return Outlook(experience, price)


def table(
    strategy: Strategy | None, *down: Target, targets: Sequence[Target] = MODEL
) -> TargetTable:
    providers = {target.provider for target in targets}
    able = dict.fromkeys(targets, Capabilities())
    ways = Ways(able.__getitem__, {} if strategy is None else {"m": strategy})
    return TargetTable({"m": tuple(targets)}, providers, "m", health=Down(*down), ways=ways)


def learned(ahead: Outlook) -> Learned:
    """The strategy of a model that has learnt nothing, and throws no dice."""
    maker = FeatureMaker()
    others = [Target(provider, name) for provider in "ab" for name in NAMES]
    priors = {target: family_of(target.model).quality for target in (*MODEL, *others)}
    settings = RoutingSettings(learner=LearnerSettings(priors=priors), floor=0.0)
    learning = Learning(
        ["m"],
        lambda _: LearnedRouter(maker, settings),
        Reader(maker),
        SqliteOutcomes(Path("/nowhere/p.db")),
    )
    return Learned("m", learning, ahead)


def with_preferences(
    preferences: ModelPreferences | None, max_tokens: int = 200
) -> SamplingRequest:
    return SamplingRequest(
        messages=(user("Why is the sky blue?"),),
        max_tokens=max_tokens,
        model="m",
        model_preferences=preferences,
    )


def ask(*hints: str, max_tokens: int = 200, cost: float | None = None) -> SamplingRequest:
    return with_preferences(ModelPreferences(hints, cost), max_tokens)


def served(
    target: Target,
    *,
    seconds: float = 1.0,
    output: int | None = 20,
    outcome: Outcome = "ok",
    request_id: str = "r",
) -> RequestRecord:
    usage = None if output is None else Usage(input_tokens=10, output_tokens=output)
    attempt = AttemptRecord(
        request_id=request_id,
        number=1,
        provider=target.provider,
        model=target.model,
        started=0.0,
        duration_s=seconds,
        outcome=outcome,
        usage=usage,
    )
    return RequestRecord(
        request_id=request_id,
        operation="chat",
        started=0.0,
        duration_s=seconds,
        outcome=outcome,
        attempts=(attempt,),
    )


@pytest.mark.parametrize(
    ("preferences", "winner"),
    [
        (ModelPreferences(cost=1.0), CHEAP),
        (ModelPreferences(speed=1.0), QUICK),
        (ModelPreferences(intelligence=1.0), BEST),
    ],
)
async def test_priorities_at_their_extremes_pick_the_cheapest_the_fastest_and_the_best(
    preferences: ModelPreferences, winner: Target
) -> None:
    for targets in (MODEL, MODEL[::-1]):
        router = table(learned(outlook()), targets=targets)
        decision = await router.explain(with_preferences(preferences))
        assert decision.targets[0] == winner
        assert decision.strategy == "learned"
        assert decision.reason.startswith(f"{winner} is first of 3 targets (learned): it has the")
        scores = [each.score for each in decision.ranked]
        assert scores == sorted(scores, reverse=True)


async def test_hints_beat_priorities_and_health_beats_hints() -> None:
    strategy = learned(outlook())
    assert (await table(strategy).rank(ask("astra", cost=1.0)))[0] == BEST
    assert (await table(strategy, BEST).rank(ask("astra", cost=1.0))) == (CHEAP, QUICK, BEST)


@pytest.mark.parametrize("strategy", [None, Cheapest, Fastest, learned])
async def test_an_open_breaker_is_never_first(
    strategy: Callable[[Outlook], Strategy] | None,
) -> None:
    for down in MODEL:
        router = table(None if strategy is None else strategy(outlook()), down)
        assert (await router.rank(ask()))[-1] == down


async def test_an_unmatched_hint_reaches_what_is_like_it_and_a_match_goes_before() -> None:
    sol, haiku = Target("openai", "gpt-6.1-sol"), Target("claude", "claude-haiku-5")
    router = table(None, targets=(haiku, sol, BEST))
    assert await router.rank(ask("sonnet")) == (sol, haiku, BEST)
    # What is named, if only by the second hint, goes before what is merely like the first.
    assert await router.rank(ask("sonnet", "haiku")) == (haiku, sol, BEST)
    assert await router.rank(ask("sonnet", "opus")) == (sol, BEST, haiku)
    decision = await router.explain(ask("sonnet"))
    assert decision.ranked[0].hint == "sonnet"
    assert decision.ranked[0].reasons[0] == "is of the class of hint 1, 'sonnet'"
    assert decision.ranked[1].hint is None
    # With one of that name there, nobody else stands in for it.
    sonnet = Target("claude", "claude-sonnet-5")
    both = table(None, targets=(haiku, sol, sonnet))
    assert await both.rank(ask("sonnet")) == (sonnet, haiku, sol)


async def test_the_cheapest_is_so_for_the_answer_that_is_expected() -> None:
    wordy, terse = Target("a", "x"), Target("b", "y")
    prices = {wordy: 1.0, terse: 2.0}
    seen = outlook(served(wordy, output=100), served(terse, output=10)).experience
    router = table(
        Cheapest(Outlook(seen, lambda target, read, written: prices[target] * written)),
        targets=(wordy, terse),
    )
    decision = await router.explain(ask())
    assert decision.targets == (terse, wordy)
    assert decision.ranked[0].cost_usd == pytest.approx(20, rel=0.05)
    assert decision.reason == (
        "b/y is first of 2 targets (cheapest): it is expected to cost $20.00, the least."
    )
    # No answer is longer than the request allows.
    assert (await router.rank(ask(max_tokens=5))) == (wordy, terse)


async def test_a_target_without_a_price_is_the_dearest() -> None:
    unknown = Target("x", "y")
    assert (await table(Cheapest(outlook()), targets=(unknown, *MODEL)).rank(ask())) == (
        CHEAP,
        QUICK,
        BEST,
        unknown,
    )


async def test_the_fastest_is_known_by_experience_and_before_that_by_the_catalogue() -> None:
    assert (await table(Fastest(outlook())).rank(ask()))[0] == QUICK
    slow = [served(QUICK, seconds=90.0)] * 3
    decision = await table(Fastest(outlook(*slow, served(CHEAP, seconds=0.1)))).explain(ask())
    assert decision.targets[0] == CHEAP
    assert decision.targets[-1] == QUICK
    assert decision.ranked[0].latency_ms == pytest.approx(100)
    assert "100 ms, the least, by its last answers" in decision.reason


def test_what_failed_teaches_nothing_and_little_is_remembered() -> None:
    experience = Experience(most=2)
    experience(served(BEST, outcome="failed"))
    assert len(experience) == 0
    for target in (BEST, QUICK, BEST, CHEAP):
        experience(served(target))
    assert len(experience) == 2
    assert experience.expected(QUICK, 10).latency_ms is None
    assert experience.expected(BEST, 10).output_tokens == pytest.approx(20)
    assert experience.expected(CHEAP, 10).latency_ms == pytest.approx(1000)


class Dice:
    """Notes how it is asked, and puts the last first when it decides."""

    name = "dice"

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[Target, ...], bool, str | None, str | None]] = []

    async def judge(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        *,
        deciding: bool,
        request_id: str | None,
        key: str | None,
    ) -> Sequence[Opinion]:
        self.asked.append((tuple(targets), deciding, request_id, key))
        last = len(targets) - 1
        return [
            Opinion(
                place=-float(number) if deciding else float(number),
                explored=deciding and number == last,
                propensity=0.5,
                note="was thrown",
            )
            for number in range(len(targets))
        ]


async def test_dice_are_thrown_for_the_front_of_a_real_request_only() -> None:
    dice = Dice()
    router = table(dice, BEST)
    told: list[RouteDecision] = []
    ranked = await router.rank(ask(), request_id="r1", key="ci", told=told.append)
    assert ranked == (CHEAP, QUICK, BEST)
    assert dice.asked == [
        ((QUICK, CHEAP), True, "r1", "ci"),
        ((BEST,), False, None, "ci"),
    ]
    (decision,) = told
    assert (decision.targets, decision.strategy, decision.explored) == (ranked, "dice", True)
    assert [each.propensity for each in decision.ranked] == [0.5, 0.5, None]
    assert decision.reason == (
        "local/smollm2 is first of 3 targets (dice): it is tried to learn about it and was thrown."
    )
    dice.asked.clear()
    assert (await router.explain(ask())).targets == (QUICK, CHEAP, BEST)
    assert await router.rank(ask()) == (QUICK, CHEAP, BEST)
    assert {deciding for _, deciding, _, _ in dice.asked} == {False}


async def test_the_configured_order_is_told_to_nobody() -> None:
    told: list[RouteDecision] = []
    assert await table(None).rank(ask(), request_id="r", told=told.append) == MODEL
    assert told == []


NAMES = ("gpt-6-astra", "gemini-3.1-flash-lite", "smollm2", "claude-sonnet-5", "o3", "unheard-of")
TARGETS = st.lists(
    st.builds(Target, st.sampled_from("ab"), st.sampled_from(NAMES)),
    min_size=1,
    max_size=6,
    unique=True,
)
ABLE = st.builds(
    Capabilities,
    tools=st.booleans(),
    context_window=st.sampled_from([None, 64, 100_000]),
    max_output=st.sampled_from([None, 50, 5000]),
)
UNIT = st.none() | st.floats(0, 1)


@given(
    targets=TARGETS,
    able=st.lists(ABLE, min_size=6, max_size=6),
    down=st.sets(st.builds(Target, st.sampled_from("ab"), st.sampled_from(NAMES))),
    hints=st.lists(st.sampled_from(["sonnet", "opus", "a/", "smol", "nothing"]), max_size=3),
    priorities=st.tuples(UNIT, UNIT, UNIT),
    max_tokens=st.sampled_from([1, 100, 10_000]),
    strategy=st.sampled_from([None, Cheapest, Fastest, learned]),
    streaming=st.booleans(),
)
async def test_every_strategy_does_what_it_explains_and_loses_no_target(
    *,
    targets: list[Target],
    able: list[Capabilities],
    down: set[Target],
    hints: list[str],
    priorities: tuple[float | None, float | None, float | None],
    max_tokens: int,
    strategy: Callable[[Outlook], Strategy] | None,
    streaming: bool,
) -> None:
    abilities = dict(zip(targets, able, strict=False))
    ways = Ways(abilities.__getitem__, {} if strategy is None else {"m": strategy(outlook())})
    router = TargetTable({"m": tuple(targets)}, "ab", "m", health=Down(*down), ways=ways)
    request = SamplingRequest(
        messages=(user("Why is the sky blue?"),),
        max_tokens=max_tokens,
        model_preferences=ModelPreferences(tuple(hints), *priorities),
    )
    decision = await router.explain(request, streaming=streaming)
    assert await router.rank(request, streaming=streaming) == decision.targets
    assert await router.rank(request, streaming=streaming, request_id="r") == decision.targets
    told = [each.target for each in (*decision.ranked, *decision.left_out)]
    assert sorted(map(str, told)) == sorted(map(str, targets))
    assert decision.ranked
    assert decision.reason.startswith(f"{decision.targets[0]} is ")
    available = [each.available for each in decision.ranked]
    assert available == sorted(available, reverse=True)
