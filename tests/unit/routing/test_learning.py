"""An engine that learns: outcomes are written down, labels are learnt from, and nothing is lost.

The provider is the shipped fake, whose models answer alike; how good they are is what each test
says in its feedback.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, field_validator

import penstock
from penstock import (
    Config,
    InvalidRequest,
    ModelPreferences,
    ProviderUnavailable,
    RankedTarget,
    StructuredOutputInvalid,
)
from penstock.config.routing import RoutingConfig
from penstock.config.settings import ModelConfig, PriceConfig, ProviderConfig, StorageConfig
from penstock.contract.exchange import EmbeddingRequest
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.engine.build.learning import features_of
from penstock.engine.engine import Engine
from penstock.routing.index.graph import warned_once
from penstock.routing.learning.features import SIZE
from penstock.routing.learning.service import PATIENCE_S, Learning
from penstock.routing.outcomes.outcome import Source
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from penstock.routing.outcomes.training import train
from penstock.testing import FakeProvider, FakeReply
from tests.support.services import missing_package

SUMS = "What is {} plus {}, and how many apples are left when each of the {} friends takes one?"
POEMS = "Write a short and cheerful poem about the weather in a garden in month {} of year {} {}"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def _config(path: Path, *targets: str, **routing: Any) -> Config:
    return Config(
        providers={"fake": ProviderConfig()},
        models={"m": ModelConfig(targets=targets or ("fake/one", "fake/two"), routing="learned")},
        storage=StorageConfig(url=f"sqlite:///{path / 'p.db'}"),
        routing=RoutingConfig.model_validate({"seed": 7, "trust": "always", **routing}),
    )


def _learning(engine: Engine) -> Learning:
    assert engine.learning is not None
    return engine.learning


async def _asked(engine: Engine, prompt: str, *, key: str | None = None) -> tuple[str, str]:
    caller = Caller(key=key)
    result = await engine.create_message(prompt, max_tokens=20, model="m", caller=caller)
    return result.request_id, result.metadata.model


async def _taught(
    engine: Engine, rounds: int, score: Callable[[str, str], float], *, key: str | None = None
) -> list[str]:
    """Ask and say how good each answer was; the models that answered."""
    answered: list[str] = []
    for number in range(rounds):
        prompt = (SUMS, POEMS)[number % 2].format(number, number + 3, number % 7)
        request_id, model = await _asked(engine, prompt, key=key)
        label = score(prompt, model)
        await engine.record_feedback(request_id, score=label, caller=Caller(key=key))
        answered.append(model)
        if number % 10 == 9:
            await _learning(engine).catch_up()
    await _learning(engine).catch_up()
    return answered


async def _qualities(engine: Engine, prompt: str = SUMS) -> dict[str, RankedTarget]:
    decision = await engine.route(prompt.format(1, 2, 3), model="m")
    return {each.target.model: each for each in decision.ranked}


async def test_it_learns_which_target_is_better_at_what(tmp_path: Path) -> None:
    def score(prompt: str, model: str) -> float:
        return float(("apples" in prompt) == (model == "two"))

    async with penstock.open(_config(tmp_path)) as engine:
        answered = await _taught(engine, 160, score)
        late = answered[100:]
        right = sum(model == ("two", "one")[at % 2] for at, model in enumerate(late))
        assert right / len(late) > 0.8
        sums, poems = await _qualities(engine), await _qualities(engine, POEMS)
    assert next(iter(sums)) == "two"
    assert next(iter(poems)) == "one"
    assert (sums["two"].neighbours or 0) > 5
    assert (sums["two"].uncertainty or 1) < 0.2


async def test_the_configured_order_is_kept_until_outcomes_speak_against_it(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path, trust="evidence", explore=0.2)) as engine:
        first = await _taught(engine, 40, lambda _, model: float(model == "two"))
        assert first.count("one") > 25
        decision = await engine.route("And now?", model="m")
        assert decision.targets[0].model == "one"
        assert "advice only" in decision.reason
        later = await _taught(engine, 360, lambda _, model: float(model == "two"))
        assert later[-60:].count("two") > 45
        decision = await engine.route("And now?", model="m")
    assert decision.targets[0].model == "two"
    assert "advice" not in decision.reason


async def test_what_a_file_has_taught_is_told_as_advice(tmp_path: Path) -> None:
    config = _config(tmp_path, trust="evidence")
    rows = [
        f'"{SUMS.format(n, n, n)}",fake/{name},{good}'
        for n in range(40)
        for name, good in (("one", 0), ("two", 1))
    ]
    (tmp_path / "o.csv").write_text("\n".join(["prompt,model,score", *rows]))
    models = {"m": [Target("fake", "one"), Target("fake", "two")]}
    train(tmp_path / "p.db", tmp_path / "o.csv", models=models, features=features_of(config))
    async with penstock.open(config) as engine:
        decision = await engine.route(SUMS.format(1, 2, 3), model="m")
    assert decision.targets[0].model == "one"
    assert "advice only until labels of requests served here show a gain" in decision.reason


async def test_without_a_price_the_cost_that_counts_is_what_answers_have_cost(
    tmp_path: Path,
) -> None:
    cloud = ProviderConfig(kind="openai", auth_token=SecretStr("none"))
    config = _config(tmp_path, "cloud/dear", "cloud/unheard")
    config = config.model_copy(update={"providers": {"cloud": cloud}})
    targets = [Target("cloud", "dear"), Target("cloud", "unheard")]
    rows = [
        f'"{SUMS.format(n, n, n)}",cloud/{name},1,{cost}'
        for n in range(40)
        for name, cost in (("dear", 0.02), ("unheard", ""))
    ]
    (tmp_path / "o.csv").write_text("\n".join(["prompt,model,score,cost_usd", *rows]))
    train(
        tmp_path / "p.db", tmp_path / "o.csv", models={"m": targets}, features=features_of(config)
    )
    async with penstock.open(config) as engine:
        found = await _qualities(engine)
    assert found["dear"].cost_usd == pytest.approx(0.02, rel=0.05)
    assert "$0.02" in found["dear"].reasons[0]
    assert found["unheard"].cost_usd is None
    assert "no known price" in found["unheard"].reasons[0]


async def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    config = _config(tmp_path)
    async with penstock.open(config) as engine:
        await _taught(engine, 60, lambda _, model: float(model == "two"))
        before = await _qualities(engine)
    async with penstock.open(config) as engine:
        await _learning(engine).catch_up()
        after = await _qualities(engine)
        count = (await _taught(engine, 20, lambda _, model: float(model == "two"))).count("two")
    assert count > 14
    for name, was in before.items():
        now = after[name]
        assert (now.quality, now.uncertainty) == pytest.approx((was.quality, was.uncertainty))
        assert now.neighbours == pytest.approx(was.neighbours)


@pytest.mark.parametrize(
    ("index", "spoilt"),
    [
        ("auto", b""),
        ("auto", b"\x00"),
        ("exact", b"\x00\x3c" * 9),
        ("usearch", b"\x00\x7e" * SIZE),  # not a number
        ("ruvector", b"\x00\x7c" * SIZE),  # infinite
    ],
)
async def test_an_index_is_made_again_without_what_is_spoilt(
    tmp_path: Path, index: str, spoilt: bytes
) -> None:
    if index in {"usearch", "ruvector"} and importlib.util.find_spec(index) is None:
        missing_package(index)
    config = _config(tmp_path, index=index)
    async with penstock.open(config) as engine:
        await _taught(engine, 40, lambda _, model: float(model == "two"))
        before = await _qualities(engine)
    with sqlite3.connect(tmp_path / "p.db") as connection:
        connection.execute("UPDATE routing_prompts SET features = ? WHERE id % 5 = 0", (spoilt,))
    connection.close()
    # Nothing else is on the disk that could be spoilt.
    assert {file.name for file in tmp_path.iterdir()} <= {"p.db", "p.db-wal", "p.db-shm"}
    async with penstock.open(config) as engine:
        await _learning(engine).catch_up()
        after = await _qualities(engine)
    left = sum(each.neighbours or 0 for each in after.values())
    assert 0.3 < left / sum(each.neighbours or 0 for each in before.values()) < 0.98
    assert (after["two"].quality or 0) > (after["one"].quality or 1)


async def test_what_answers_take_is_known_after_a_restart_too(tmp_path: Path) -> None:
    config = _config(tmp_path)
    prices = {target: PriceConfig(input=1.0, output=10.0) for target in ("fake/one", "fake/two")}
    model = config.models["m"].model_copy(update={"prices": prices})
    config = config.model_copy(update={"models": {"m": model}})
    async with penstock.open(config) as engine:
        await _taught(engine, 20, lambda _, __: 1.0)
        before = await _qualities(engine)
    async with penstock.open(config) as engine:
        await _learning(engine).catch_up()
        after = await _qualities(engine)
    for name, was in before.items():
        # An echo of some tokens, and not the 500 that are taken for usual; the store keeps it all.
        assert after[name].cost_usd == pytest.approx(was.cost_usd, rel=0.2)
        assert 0 < (after[name].cost_usd or 0) < 0.001
        assert after[name].score > 0


async def test_engines_that_share_a_store_learn_from_each_other(tmp_path: Path) -> None:
    config = _config(tmp_path)
    async with penstock.open(config) as one, penstock.open(config) as two:
        await _taught(one, 40, lambda _, model: float(model == "two"))
        request_id, _ = await _asked(one, "Whose request is this?")
        await two.record_feedback(request_id, score=0.0)
        await _learning(two).catch_up()
        mine, theirs = await _qualities(one), await _qualities(two)
        assert (theirs["two"].quality or 0) > (theirs["one"].quality or 1)
        await _learning(one).catch_up()
        mine = await _qualities(one)
    assert mine["one"].quality == pytest.approx(theirs["one"].quality)
    assert mine["two"].quality == pytest.approx(theirs["two"].quality)


async def test_with_isolation_keys_teach_themselves_only(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path, isolate_keys=True)) as engine:
        await _taught(engine, 40, lambda _, model: float(model == "one"), key="a")
        request_id, _ = await _asked(engine, "Whose request is this?", key="a")
        # What another key says of it is not heard, and not even that there is such a request.
        began = time.monotonic()
        with pytest.raises(InvalidRequest, match="is not a remembered request"):
            await engine.record_feedback(request_id, score=0.0, caller=Caller(key="b"))
        # One that nobody knows is looked for as long.
        assert time.monotonic() - began >= PATIENCE_S
        await _taught(engine, 40, lambda _, model: float(model == "two"), key="b")
        late_a = [await _asked(engine, SUMS.format(n, n, n), key="a") for n in range(20)]
        late_b = [await _asked(engine, SUMS.format(n, n, n), key="b") for n in range(20)]
    assert sum(model == "one" for _, model in late_a) > 14
    assert sum(model == "two" for _, model in late_b) > 14


async def test_with_isolation_a_key_is_told_what_is_decided_for_it(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path, isolate_keys=True)) as engine:
        await _taught(engine, 30, lambda _, model: float(model == "one"), key="a")
        await _taught(engine, 30, lambda _, model: float(model == "two"), key="b")
        asked = SUMS.format(1, 2, 3)
        told = {
            key: await engine.route(asked, model="m", caller=Caller(key=key))
            for key in ("a", "b", "new")
        }
        nobody = await engine.route(asked, model="m")
    assert told["a"].targets[0].model == "one"
    assert told["b"].targets[0].model == "two"
    assert told["new"].ranked == nobody.ranked
    assert all(each.neighbours == 0 for each in nobody.ranked)


async def test_what_is_forgotten_is_not_known_any_more(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        before = await _qualities(engine)
        await _taught(engine, 30, lambda _, model: float(model == "two"), key="gone")
        assert (await _qualities(engine))["two"].neighbours
        # As another process does it, behind the engine's back.
        await asyncio.to_thread(lambda: SqliteOutcomes(tmp_path / "p.db").forget(key="gone"))
        await _learning(engine).catch_up()
        after = await _qualities(engine)
    for name, was in before.items():
        assert after[name].quality == pytest.approx(was.quality)
        assert after[name].neighbours == 0


async def test_a_new_configuration_goes_on_with_what_was_learnt(tmp_path: Path) -> None:
    config = _config(tmp_path)
    async with penstock.open(config) as engine:
        await _taught(engine, 40, lambda _, model: float(model == "two"))
        before = await _qualities(engine)
        wider = config.models["m"].model_copy(
            update={"targets": ("fake/one", "fake/two", "fake/new")}
        )
        same = await engine.reconfigured(config)
        assert await _qualities(same) == before
        heir = await same.reconfigured(config.model_copy(update={"models": {"m": wider}}))
        after = await _qualities(heir)
        await heir.aclose()
    assert after["two"].quality == pytest.approx(before["two"].quality)
    assert after["new"].neighbours == 0


async def test_answers_in_a_form_that_was_asked_for_label_themselves(tmp_path: Path) -> None:
    config = _config(tmp_path, "json/one", "prose/two", explore=0.5)
    providers = {name: ProviderConfig(kind="fake") for name in ("json", "prose")}
    async with penstock.open(config.model_copy(update={"providers": providers})) as engine:
        engine.use(FakeProvider(['{"n": 3}'] * 30, name="json"))
        engine.use(FakeProvider(["three"] * 30, name="prose"))
        for number in range(30):
            await engine.create_message(
                SUMS.format(number, 2, 3), max_tokens=20, model="m", output_schema=SCHEMA
            )
        await _learning(engine).catch_up()
        found = await _qualities(engine)
    assert (found["one"].quality or 0) > 0.75
    assert (found["two"].quality or 1) < 0.5


async def test_a_session_that_asks_the_same_again_was_not_content(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path)) as engine:

        async def ask(text: str, **metadata: str) -> str:
            result = await engine.create_message(text, max_tokens=9, model="m", metadata=metadata)
            return result.request_id

        again = [await ask("Why?", session_id="s") for _ in range(2)]
        others = [
            await ask("How?", session_id="s"),
            await ask("How?", session_id="t"),
            await ask("Who?"),
            await ask("Who?"),
        ]
        await _learning(engine).catch_up()
        store = SqliteOutcomes(tmp_path / "p.db")
        labels = {name: store.find(name)[0].labels for name in (*again, *others)}
    (said,) = labels.pop(again[0])
    assert (said.quality.score, said.quality.source) == (0.0, Source.RETRY)
    assert set(labels.values()) == {()}


async def test_failures_are_outcomes_without_a_quality(tmp_path: Path) -> None:
    class Broken(FakeProvider):
        async def generate(self, model: str, request: penstock.SamplingRequest) -> Any:
            if model == "one":
                raise ProviderUnavailable("down", provider="fake", retryable=False)
            return await super().generate(model, request)

    async with penstock.open(_config(tmp_path, explore=0)) as engine:
        engine.use(Broken())
        request_id, model = await _asked(engine, "Hello?")
        assert model == "two"
        await engine.record_feedback(request_id, score=1.0)
        await _learning(engine).catch_up()
        found = SqliteOutcomes(tmp_path / "p.db").find(request_id)
        rated = await _qualities(engine)
    kept = {each.served.target.model: each for each in found}
    assert kept["two"].served.ok
    assert [label.quality.score for label in kept["two"].labels] == [1.0]
    if "one" in kept:
        assert (kept["one"].served.ok, kept["one"].labels) == (False, ())
        assert kept["one"].served.error == "ProviderUnavailable"
    assert rated["one"].neighbours == 0


async def test_streams_are_outcomes_too(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        handle = await engine.create_message_stream("Hello?", max_tokens=20, model="m")
        async for _ in handle:
            pass
        await engine.record_feedback(handle.request_id, score=0.5)
        (kept,) = SqliteOutcomes(tmp_path / "p.db").find(handle.request_id)
    assert kept.served.first_token_ms is not None
    assert kept.served.output_tokens


@pytest.mark.parametrize("kept", [False, True])
async def test_prompts_are_kept_only_when_asked_for(tmp_path: Path, kept: bool) -> None:
    secret = "the recipe of grandmother's marmalade"
    async with penstock.open(_config(tmp_path, keep_prompts=kept)) as engine:
        request_id, _ = await _asked(engine, secret)
        await engine.record_feedback(request_id, score=1.0)
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert (secret.encode() in written) is kept


async def test_old_outcomes_go_by_themselves(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        await _taught(engine, 10, lambda _, __: 1.0)
    with sqlite3.connect(tmp_path / "p.db") as connection:
        connection.execute("UPDATE routing_outcomes SET at = at - 10 * 86400 WHERE seq < 12")
    connection.close()
    async with asyncio.timeout(20), penstock.open(_config(tmp_path, keep_days=7)) as engine:
        store = SqliteOutcomes(tmp_path / "p.db")
        while (await asyncio.to_thread(store.counts)).outcomes == 10:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.02)
        left = await asyncio.to_thread(store.counts)
    assert 0 < left.outcomes < 10


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"score": 1.5}, "score: is 1.5; give a number from 0"),
        ({"score": float("nan")}, "score: is nan"),
        ({"score": "good"}, "score: is 'good'"),
        ({"score": 10**5000}, "score: is a very long int; give a number"),
        ({"score": 1.0, "source": "rumour"}, "source: is 'rumour'; it must be one of feedback"),
        ({"score": 1.0}, "request_id: 'req_unknown' is not a remembered request"),
    ],
)
async def test_what_cannot_be_taken_is_refused(
    tmp_path: Path, said: Mapping[str, Any], problem: str
) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await engine.record_feedback("req_unknown", **said)
    assert problem in str(refused.value)


@pytest.mark.parametrize("request_id", ["", "\ud800", "x" * 1_000_000, None, 7, object()])
async def test_what_is_no_id_of_a_request_is_refused(tmp_path: Path, request_id: Any) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        with pytest.raises(InvalidRequest, match="give the `request_id` of an answer") as refused:
            await engine.record_feedback(request_id, score=1.0)
    assert len(str(refused.value)) < 200


async def test_an_engine_that_does_not_learn_says_so() -> None:
    async with penstock.open(Config(providers={"fake": ProviderConfig()})) as engine:
        with pytest.raises(InvalidRequest, match='no model of the configuration has routing = "l'):
            await engine.record_feedback("req_1", score=1.0)


async def test_a_providers_embeddings_may_tell_what_prompts_are_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sometimes(FakeProvider):
        async def embed(self, model: str, request: EmbeddingRequest) -> Any:
            if "fails" in request.texts[0]:
                raise ProviderUnavailable("no vectors today", provider="fake", retryable=False)
            return await super().embed(model, request)

    async with penstock.open(_config(tmp_path, embedder="fake/vectors")) as engine:
        engine.use(Sometimes())
        await _taught(engine, 10, lambda _, __: 1.0)
        with caplog.at_level(logging.WARNING):
            await _asked(engine, "This one fails.")
            await _asked(engine, "This one fails too.")
        assert caplog.text.count("routing does without the meaning of some prompts") == 1
    assert {"fake/vectors" in each for each in _makers(tmp_path)} == {True}


def _makers(path: Path) -> list[str]:
    with sqlite3.connect(path / "p.db") as connection:
        rows = connection.execute("SELECT made_by FROM routing_prompts").fetchall()
    connection.close()
    return [made_by for (made_by,) in rows]


async def test_priorities_at_their_extremes_are_obeyed_before_anything_is_learnt(
    tmp_path: Path,
) -> None:
    config = _config(tmp_path, "fake/gpt-5", "fake/gpt-4o-mini", trust="evidence")
    async with penstock.open(config) as engine:
        best, cheap = [
            await engine.route("Hello?", model="m", model_preferences=preferences)
            for preferences in (
                ModelPreferences(intelligence=1.0),
                ModelPreferences(speed=1.0),
            )
        ]
    assert best.targets[0].model == "gpt-5"
    assert cheap.targets[0].model == "gpt-4o-mini"


async def test_generators_say_whether_an_answer_was_of_their_type(tmp_path: Path) -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def is_even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("it is odd")
            return n

    fenced = 'Here it is:\n```json\n{"n": "4"}\n```'
    cut = FakeReply(text='{"n": 1', stop_reason="maxTokens")
    async with penstock.open(_config(tmp_path)) as engine:
        engine.use(FakeProvider(['{"n": 3}', fenced, cut]))
        generator = engine.structured_generator(Even, "An even number?", model="m")
        value, _ = await generator.generate()
        assert value.n == 4
        with pytest.raises(StructuredOutputInvalid) as refused:
            await generator.generate()
        await _learning(engine).catch_up()
    assert refused.value.request_id is not None
    with sqlite3.connect(tmp_path / "p.db") as connection:
        rows = connection.execute(
            "SELECT l.source, l.score FROM routing_outcomes o "
            "LEFT JOIN routing_labels l ON l.outcome = o.seq ORDER BY o.seq"
        ).fetchall()
    connection.close()
    assert rows == [("validation", 0.0), ("validation", 1.0), (None, None)]


async def test_a_missing_index_package_does_not_keep_an_engine_from_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ruvector", None)
    warned_once.cache_clear()
    for _ in range(2):
        async with penstock.open(_config(tmp_path, index="ruvector")) as engine:
            await _taught(engine, 20, lambda _, model: float(model == "two"))
            qualities = await _qualities(engine)
            assert (qualities["two"].quality or 0) > (qualities["one"].quality or 1)
    warnings = [each for each in caplog.records if "the exact index is used" in each.getMessage()]
    assert len(warnings) == 1
