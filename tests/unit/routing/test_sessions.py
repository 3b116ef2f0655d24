"""Sessions that stay with the target that has served them."""

from typing import Any

import msgspec
import pytest

from penstock.config.settings import Config
from penstock.contract.errors import ProviderUnavailable
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from penstock.providers.fake.provider import FakeProvider
from penstock.routing.sessions import Sessions, session_of
from penstock.testing import Recorder
from tests.unit.routing.test_strategies import served


def config(**model: Any) -> Config:
    return Config.model_validate(
        {
            "providers": {"fake": {}, "other": {"kind": "fake"}},
            "models": {"m": {"targets": ["fake/one", "other/two"], **model}},
            "pool": {"retries": 0},
        }
    )


async def test_a_session_stays_where_it_was_served_while_that_can_be_asked() -> None:
    down = ProviderUnavailable("busy", retryable=False)
    async with Engine(config(sticky=True)) as engine:
        engine.use(FakeProvider([down], name="fake"))

        async def ask(session: str | None, key: str | None = None) -> str:
            metadata = {} if session is None else {"session_id": session}
            result = await engine.create_message(
                "Hi", max_tokens=9, model="m", metadata=metadata, caller=Caller(key)
            )
            return result.metadata.provider

        assert await ask("s1") == "other"  # the first target failed just this once
        engine.mark_up("fake/one")
        assert await ask("s1") == "other"
        assert await ask("s2") == "fake"
        assert await ask(None) == "fake"
        # Another key's session of that name is another session.
        assert await ask("s1", "stranger") == "fake"
        decision = await engine.route("Hi", model="m", metadata={"session_id": "s1"})
        assert decision.reason.startswith(
            "other/two is first of 2 targets (ordered): it has served"
        )
        engine.mark_down("other/two", "maintenance")
        assert await ask("s1") == "fake"
        engine.mark_up("other/two")
        assert await ask("s1") == "fake"


async def test_sessions_and_experience_outlive_a_new_configuration() -> None:
    before = Engine(config(sticky=True, routing="fastest"))
    before.mark_down("fake/one", "maintenance")
    before.mark_down("other/two", "maintenance")
    before.mark_up("other/two")
    await before.create_message("Hi", max_tokens=9, model="m", metadata={"user": "u"})
    async with await before.reconfigured(config(sticky=True)) as engine:
        engine.mark_up("fake/one")
        route = await engine.route("Hi", model="m", metadata={"user": "u"})
        assert str(route.targets[0]) == "other/two"
        assert (await engine.route("Hi", model="m")).targets[0] == Target("fake", "one")
        expected = {str(each.target): each.latency_ms or 0 for each in route.ranked}
        # One has answered, which takes no time here; of the other only the catalogue is known.
        assert expected["other/two"] < expected["fake/one"]


async def test_the_decision_of_a_strategy_is_kept_with_the_request() -> None:
    prices = {
        "fake/one": {"input": 2.0, "output": 2.0},
        "other/two": {"input": 1.0, "output": 1.0},
    }
    async with Engine(config(routing="cheapest", prices=prices)) as engine:
        recorder = Recorder()
        engine.hooks.subscribe(recorder)
        await engine.create_message("Hi", max_tokens=9, model="m")
        stream = await engine.create_message_stream("Hi", max_tokens=9, model="m")
        async for _ in stream:
            pass
    for record in recorder.requests:
        assert record.decision is not None
        assert [str(each) for each in record.decision.targets] == ["other/two", "fake/one"]
        assert record.decision.strategy == "cheapest"
        assert record.decision.ranked[0].cost_usd
        assert record.provider == "other"
    assert len(recorder.requests) == 2


@pytest.mark.parametrize(
    ("model", "recorded"),
    [
        # Priorities of a request compare the measured times of several targets.
        ({}, True),
        ({"priorities": "off"}, False),
        ({"targets": ["fake/one"]}, False),
        ({"priorities": "off", "sticky": True}, True),
        ({"priorities": "off", "routing": "cheapest"}, True),
    ],
    ids=["priorities", "no_priorities", "one_target", "sticky", "cheapest"],
)
async def test_requests_are_recorded_only_where_routing_needs_them(
    model: dict[str, Any], recorded: bool
) -> None:
    assert Engine(config(**model)).hooks.active == recorded


def test_few_sessions_are_remembered_and_the_oldest_goes() -> None:
    sessions = Sessions(most=2)
    target = Target("a", "x")

    def session(name: str) -> Any:
        request = SamplingRequest(messages=(user("Hi"),), max_tokens=1, metadata={"user": name})
        return session_of(request, "m", None)

    for number, name in enumerate(("first", "second", "third")):
        sessions.begin(str(number), session(name))
        sessions(served(target, request_id=str(number)))
    assert sessions.target(session("first")) is None
    assert sessions.target(session("second")) == sessions.target(session("third")) == target
    sessions.begin("9", session("fourth"))
    sessions(served(target, request_id="9", outcome="failed"))
    assert sessions.target(session("fourth")) is None


def test_a_session_is_named_by_the_metadata_and_by_the_closest_name() -> None:
    def named(**metadata: Any) -> Any:
        request = SamplingRequest(messages=(user("Hi"),), max_tokens=1, metadata=metadata)
        return session_of(request, "m", "k")

    assert named() is None
    assert named(user="", session={"not": "a name"}) is None
    assert named(user="u") != named(user="v")
    assert named(user="u", session_id="s") == named(session_id="s") == named(session="s")


def test_a_number_that_no_text_can_hold_is_no_session() -> None:
    request = SamplingRequest(messages=(user("Hi"),), max_tokens=9)
    named = msgspec.structs.replace(request, metadata={"session_id": 7})
    endless = msgspec.structs.replace(request, metadata={"session_id": 10**6000})
    assert session_of(named, "m", None) is not None
    assert session_of(endless, "m", None) is None
