"""Labels that are changed, versions that are replaced, and what files tell to every key."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import Config, Engine
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.memory.training import train
from penstock.routing import taught
from penstock.routing.features import FeatureMaker
from penstock.routing.learned import Decided, LearnedRouter, RoutingSettings
from penstock.routing.learning import Learning
from penstock.routing.outcomes import Outcome, Quality
from penstock.routing.store import Event
from penstock.routing.taught import Taught
from penstock.wiring import features_of

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


def _learn(to: Taught, seq: int, outcome: Outcome, about: int) -> None:
    to.learn(Event(seq, "m", outcome, own=True, label=(about, "feedback")))


def _qualities(router: LearnedRouter) -> list[float]:
    features = router.features("Question 3 about the weather in 3 towns")
    ranked = router.explain(features, 9, [ONE, TWO]).ranked
    return [each.offer.quality for each in sorted(ranked, key=lambda each: str(each.target))]


@pytest.mark.parametrize("times", [1, 5])
def test_a_label_that_is_changed_is_as_if_it_had_been_right_at_once(times: int) -> None:
    mended, right = Taught({"m": _router()}), Taught({"m": _router()})
    outcomes = [_outcome(_decided(mended.routers["m"], n), float(n % 3 == 0)) for n in range(60)]
    for number, outcome in enumerate(outcomes):
        wrong = number % 4 == 0
        for turn in range(times if wrong else 0):
            said = Quality(1.0 if turn % 2 else 0.3)
            _learn(mended, number, _with(outcome, said), number)
        _learn(mended, number, outcome, number)
        _learn(right, number, outcome, number)
    now, at_once = mended.routers["m"], right.routers["m"]
    assert _qualities(now) == pytest.approx(_qualities(at_once), abs=1e-4)
    assert now.verdict().outcomes == at_once.verdict().outcomes == 60
    assert now.verdict().gain == pytest.approx(at_once.verdict().gain, abs=1e-9)
    assert now.verdict().error == pytest.approx(at_once.verdict().error, abs=1e-9)


def _with(outcome: Outcome, quality: Quality) -> Outcome:
    return Outcome(
        target=outcome.target,
        features=outcome.features,
        prompt_tokens=outcome.prompt_tokens,
        quality=quality,
        logged=outcome.logged,
        key=outcome.key,
    )


def test_only_so_many_labels_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taught, "MOST_LABELS", 3)
    all_of_them = Taught({"m": _router()})
    router = all_of_them.routers["m"]
    outcomes = [_outcome(_decided(router, number), 1.0) for number in range(4)]
    for number, outcome in enumerate(outcomes):
        _learn(all_of_them, number, outcome, number)
    _learn(all_of_them, 5, outcomes[3], 3)
    assert router.verdict().outcomes == 4
    _learn(all_of_them, 6, outcomes[0], 0)
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
