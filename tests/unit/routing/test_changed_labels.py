"""Labels that are changed, versions that are replaced, and what files tell to every key."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import penstock
from penstock import Config, Engine
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.engine.build.learning import features_of
from penstock.routing.learning import router as learned
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.router import Decided, LearnedRouter, RoutingSettings
from penstock.routing.learning.service import Learning
from penstock.routing.learning.trust import Evidence
from penstock.routing.outcomes.outcome import Logged, Outcome, Quality
from penstock.routing.outcomes.training import train

ONE, TWO = Target("fake", "one"), Target("fake", "two")


def _router(**settings: Any) -> LearnedRouter:
    return LearnedRouter(FeatureMaker(), RoutingSettings(seed=3, **settings))


def _decided(router: LearnedRouter, number: int, key: str | None = None) -> Decided:
    features = router.features(f"Question {number} about the weather in {number % 7} towns")
    return router.decide(features, 9, [ONE, TWO], key=key)


def _outcome(decided: Decided, score: float) -> Outcome:
    return Outcome(
        target=decided.targets[0],
        features=decided.features,
        prompt_tokens=9,
        quality=Quality(score),
        logged=decided.logged(),
        key=decided.key,
    )


def _qualities(router: LearnedRouter) -> list[float]:
    features = router.features("Question 3 about the weather in 3 towns")
    ranked = router.explain(features, 9, [ONE, TWO]).ranked
    return [each.offer.quality for each in sorted(ranked, key=lambda each: str(each.target))]


def _said(outcome: Outcome, about: int, score: float | None = None) -> Outcome:
    """The outcome with its label's name, and with another score if one is given."""
    quality = outcome.quality if score is None else Quality(score)
    return msgspec.structs.replace(outcome, quality=quality, label=(about, "feedback"))


def _same(one: LearnedRouter, other: LearnedRouter) -> None:
    assert _qualities(one) == pytest.approx(_qualities(other), abs=1e-4)
    now, then = one.verdict(), other.verdict()
    assert (now.in_force, now.outcomes) == (then.in_force, then.outcomes)
    assert now.gain == pytest.approx(then.gain, abs=1e-9)
    assert now.error == pytest.approx(then.error, abs=1e-9)


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("later", [False, True])
def test_a_label_that_is_changed_is_as_if_it_had_been_right_at_once(
    times: int, later: bool
) -> None:
    mended, right = _router(), _router()
    # 64: what all targets have in common is taken in after the last one, too.
    outcomes = [_outcome(_decided(mended, n), float(n % 3 == 0)) for n in range(64)]
    late: list[Outcome] = []
    for number, outcome in enumerate(outcomes):
        right.learn(_said(outcome, number))
        for turn in range(times if number % 4 == 0 else 0):
            mended.learn(_said(outcome, number, 1.0 if turn % 2 else 0.3))
        if later and number % 4 == 0:
            late.append(_said(outcome, number))
        else:
            mended.learn(_said(outcome, number))
    for outcome in late:
        mended.learn(outcome)
    # By the next ones it is taken in what the late changes have told of all targets.
    for number in range(64, 80):
        told = _said(_outcome(_decided(right, number), 1.0), number)
        mended.learn(told)
        right.learn(told)
    _same(mended, right)


def test_a_label_of_before_a_drift_is_corrected_by_as_much_as_is_left_of_it() -> None:
    router = _router(in_force=True)
    decided = [_decided(router, number) for number in range(560)]
    for number, each in enumerate(decided):
        good = number < 500
        told = msgspec.structs.replace(_outcome(each, float(good)), target=ONE)
        router.learn(_said(told, number))
    before = _qualities(router)[0]
    assert before < 0.6
    for number, each in enumerate(decided[:100]):
        told = msgspec.structs.replace(_outcome(each, 0.0), target=ONE)
        router.learn(_said(told, number))
    assert before - 0.15 < _qualities(router)[0] <= before


def test_an_old_label_that_is_changed_speaks_as_softly_as_it_does_by_now() -> None:
    evidence = Evidence()
    logged = Logged(1, 0.005, ONE, TWO, (0.5, 0.5, 0.5))
    features = FeatureMaker().vector("x")
    first = Outcome(
        target=ONE, features=features, prompt_tokens=9, quality=Quality(0.0), logged=logged
    )
    evidence.add(first)
    at = evidence.outcomes
    other = msgspec.structs.replace(logged, learned=TWO)
    for _ in range(5999):
        evidence.add(msgspec.structs.replace(first, logged=other, quality=Quality(0.5)))
    evidence.correct(msgspec.structs.replace(first, quality=Quality(0.5)), 0.0, at)
    assert evidence.verdict().gain == pytest.approx(0.0, abs=1e-9)
    assert not evidence.in_force


def test_a_key_that_was_forgotten_learns_its_labels_anew() -> None:
    router = _router(isolated=True)
    outcomes = [_outcome(_decided(router, number, key="mine"), 1.0) for number in range(30)]
    for number, outcome in enumerate(outcomes):
        router.learn(_said(outcome, number))
    for number in range(learned.MOST_KEYS):
        _decided(router, number, key=f"other {number}")
    for number, outcome in enumerate(outcomes):
        router.learn(_said(outcome, number, 0.9))
    assert router.verdict("mine").outcomes == 30


def test_only_so_many_labels_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MOST_LABELS", 3)
    router = _router()
    outcomes = [_outcome(_decided(router, number), 1.0) for number in range(4)]
    for number, outcome in enumerate(outcomes):
        router.learn(_said(outcome, number))
    router.learn(_said(outcomes[3], 3))
    assert router.verdict().outcomes == 4
    router.learn(_said(outcomes[0], 0))
    assert router.verdict().outcomes == 5


def _config(folder: Path, *targets: str, **routing: Any) -> Config:
    return Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {"m": {"targets": targets or ("fake/one", "fake/two"), "routing": "learned"}},
            "storage": {"url": f"sqlite:///{folder / 'p.db'}"},
            "routing": {"seed": 7, **routing},
        }
    )


def _learning(engine: Engine) -> Learning:
    assert engine.learning is not None
    return engine.learning


async def test_saying_the_same_again_and_again_is_no_evidence(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        learning = _learning(engine)
        asked = [await engine.create_message(f"Count to {n}", max_tokens=9) for n in range(12)]
        for turn in range(6):
            for number, result in enumerate(asked):
                # The first of them changes its mind each time, the others say the same.
                score = float(turn % 2) if number == 0 else 1.0
                await engine.record_feedback(result.request_id, score=score)
            await learning.catch_up()
        before = learning.verdict("m")
        told = await engine.route("Count to 5", model="m")
    async with penstock.open(_config(tmp_path)) as engine:
        learning = _learning(engine)
        await learning.catch_up()
        after = learning.verdict("m")
        again = await engine.route("Count to 5", model="m")
    assert before.outcomes == after.outcomes == 12
    assert after.gain == pytest.approx(before.gain, abs=1e-3)
    for one, other in zip(told.ranked, again.ranked, strict=True):
        assert (one.target, one.quality) == (other.target, pytest.approx(other.quality, abs=1e-3))


def _train(folder: Path, config: Config, *targets: str) -> None:
    rows = [f"Count to {n},{target},{n % 2}" for n in range(40) for target in targets]
    (folder / "o.csv").write_text("\n".join(["prompt,model,score", *rows]))
    models = {"m": [Target(*each.split("/")) for each in targets]}
    train(folder / "p.db", folder / "o.csv", models=models, features=features_of(config))


async def test_a_version_that_takes_the_place_of_another_inherits_from_it(tmp_path: Path) -> None:
    _train(tmp_path, _config(tmp_path), "fake/foo-5", "fake/small")
    async with penstock.open(_config(tmp_path, "fake/foo-6", "fake/small", "fake/bar")) as engine:
        decision = await engine.route("Count to 5", model="m")
    neighbours = {each.target.model: each.neighbours or 0 for each in decision.ranked}
    assert neighbours["foo-6"] == pytest.approx(neighbours["small"] / 2, rel=0.01)
    assert neighbours["foo-6"] > 5
    assert neighbours["bar"] == 0


async def test_with_isolation_every_key_knows_what_a_file_has_told(tmp_path: Path) -> None:
    config = _config(tmp_path, isolate_keys=True)
    _train(tmp_path, config, "fake/one", "fake/two")
    async with penstock.open(config) as engine:
        learning = _learning(engine)
        result = await engine.create_message("Count to 5", max_tokens=9, caller=Caller(key="a"))
        await engine.record_feedback(result.request_id, score=1.0, caller=Caller(key="a"))
        await learning.catch_up()
        mine, other, nobody = [
            await engine.route("Count to 5", model="m", caller=Caller(key=key))
            for key in ("a", "b", None)
        ]
    evidence = [
        sum(each.neighbours or 0 for each in decision.ranked) for decision in (mine, other, nobody)
    ]
    assert evidence[1] == evidence[2] > 10
    assert evidence[0] == pytest.approx(evidence[1] + 1, abs=0.1)


def test_with_isolation_a_key_hears_of_a_file_that_comes_later() -> None:
    router = _router(isolated=True)
    router.learn(_outcome(_decided(router, 1, key="early"), 1.0))
    given = Outcome(
        target=ONE,
        features=np.asarray(router.features("Question 2 about the weather")),
        prompt_tokens=9,
        quality=Quality(0.0),
        given=True,
    )
    router.learn(given)

    def evidence(key: str) -> float:
        features = router.features("Question 2 about the weather")
        ranked = router.explain(features, 9, [ONE, TWO], key=key).ranked
        return sum(each.offer.total for each in ranked)

    assert evidence("early") == pytest.approx(2, abs=0.01)
    assert evidence("late") == pytest.approx(1, abs=0.01)
    router.learn(_outcome(_decided(router, 3, key="late"), 1.0))
    assert evidence("late") == pytest.approx(2, abs=0.01)
    assert evidence("another") == pytest.approx(1, abs=0.01)
