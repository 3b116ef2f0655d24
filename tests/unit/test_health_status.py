"""How providers and targets are: `up`, `degraded` or `down`, since when, and by what evidence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from penstock.config.settings import Config
from penstock.contract.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.ports import ModelInfo
from penstock.engine.engine import Engine
from penstock.engine.health import ProviderHealth
from penstock.pool.targets.states import TargetHealth
from tests.support.stub import HELLO, StubProvider

CONFIG = Config.model_validate(
    {
        "providers": {"a": {"kind": "fake"}, "b": {"kind": "fake"}},
        "models": {
            "m": {"targets": ["a/one", "b/one"]},
            "two": {"targets": ["a/two"]},
            "three": {"targets": ["a/dir/three"]},
        },
        "pool": {"retries": 0, "breaker_failures": 2},
    }
)


class Site:
    """An engine on two providers whose every answer a test decides about."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.a, self.b = StubProvider(name="a"), StubProvider(name="b")
        engine.use(self.a)
        engine.use(self.b)

    async def ask(self, model: str, error: PenstockError | None = None) -> None:
        self.a.steps = HELLO if error is None else (error,)
        expected = contextlib.nullcontext() if error is None else pytest.raises(PenstockError)
        with expected:
            await self.engine.create_message("Hi", max_tokens=9, model=model)

    async def check(self, error: PenstockError | None = None) -> None:
        self.a.listed = () if error is None else error
        await self.engine.provider_health()

    def target(self, name: str) -> TargetHealth:
        (found,) = (each for each in self.engine.target_health() if each.target == name)
        assert (found.evidence is None) == (found.checked_at is None)
        return found

    def provider(self, name: str = "a") -> ProviderHealth:
        (found,) = self.engine.last_provider_health([name])
        return found

    def seen(self, name: str = "a/one") -> tuple[str, str | None]:
        found = self.target(name)
        return found.status, found.evidence


@asynccontextmanager
async def site() -> AsyncGenerator[Site]:
    async with Engine(CONFIG) as engine:
        yield Site(engine)


async def test_what_was_never_asked_is_taken_to_be_up_without_evidence() -> None:
    async with site() as there:
        assert there.engine.target_health() == []
        assert there.provider() == ProviderHealth("a", "up", 0)
        assert [each.provider for each in there.engine.last_provider_health()] == ["a", "b"]


async def test_requests_are_evidence() -> None:
    async with site() as there:
        before = time.time()
        await there.ask("a/one")
        assert there.seen() == ("up", "requests")
        assert before <= (there.target("a/one").checked_at or 0) <= time.time()
        await there.ask("a/one", ProviderUnavailable("overloaded"))
        assert there.seen() == ("degraded", "requests")
        assert there.provider().status == "degraded"
        await there.ask("a/one", ProviderUnavailable("overloaded"))
        assert there.seen() == ("down", "requests")
        down = there.provider()
        assert (down.status, down.evidence) == ("down", "requests")
        assert down.error == "a/one: ProviderUnavailable: overloaded"


@pytest.mark.parametrize("error", [AuthenticationFailed("bad key"), ModelNotFound("no such")])
async def test_a_target_that_will_be_refused_again_is_down(error: PenstockError) -> None:
    async with site() as there:
        await there.ask("a/one", error)
        assert there.seen() == ("down", "requests")
        await there.ask("a/two")
        assert there.provider().status == "degraded"


async def test_a_target_that_asked_for_a_pause_is_degraded() -> None:
    async with site() as there:
        await there.ask("a/one", RateLimited("slow down", retry_after=90))
        assert there.seen() == ("degraded", "requests")
        assert 80 < there.target("a/one").retry_in_s <= 90


async def test_checks_are_evidence_and_requests_are_better_evidence() -> None:
    async with site() as there:
        await there.ask("a/one")
        await there.check(ProviderUnavailable("no connection"))
        # It has answered since the last check, which says more.
        assert there.seen() == ("up", "requests")
        await there.check(ProviderUnavailable("no connection"))
        assert there.seen() == ("up", "requests")
        await there.ask("a/one", ProviderUnavailable("no connection"))
        await there.check(ProviderUnavailable("no connection"))
        assert there.seen() == ("down", "check")
        assert "its health check failed" in there.target("a/one").reason
        await there.check()
        assert there.seen() == ("degraded", "requests"), "a check is no success"
        await there.ask("a/one")
        await there.check()
        assert there.seen() == ("up", "check")


async def test_a_provider_whose_targets_were_never_asked_is_judged_by_its_check() -> None:
    async with site() as there:
        there.a.listed = AuthenticationFailed("bad key")
        before = time.time()
        (down, up) = await there.engine.provider_health()
        assert (down.status, down.evidence, up.status, up.evidence) == (
            "down",
            "check",
            "up",
            "check",
        )
        assert before <= (down.checked_at or 0) <= time.time()
        last = there.provider()
        assert (last.status, last.evidence, last.models) == ("down", "check", ())
        assert last.error == "its health check failed: AuthenticationFailed: bad key"
        there.a.listed = (ModelInfo("one"),)
        (up, _) = await there.engine.provider_health()
        assert (up.status, up.models, up.error) == ("up", (ModelInfo("one"),), None)
        assert there.provider().status == "up"


async def test_a_list_that_is_well_does_not_hide_that_no_model_answers() -> None:
    async with site() as there:
        for _ in range(2):
            await there.ask("a/one", ProviderUnavailable("503"))
        (found,) = await there.engine.provider_health(["a"])
        assert (found.status, found.evidence) == ("degraded", "requests"), "a probe is allowed now"
        await there.ask("a/one", ProviderUnavailable("503"))
        (found,) = await there.engine.provider_health(["a"])
        assert (found.status, found.evidence) == ("down", "requests")


async def test_a_server_without_a_list_is_judged_by_its_requests() -> None:
    async with site() as there:
        await there.ask("a/one")
        there.a.listed = ModelNotFound("no such page")
        (found,) = await there.engine.provider_health(["a"])
        assert (found.status, found.evidence) == ("up", "requests")


async def test_marks_are_evidence() -> None:
    async with site() as there:
        before = time.time()
        assert there.engine.mark_down("a", "maintenance") == ["a/dir/three", "a/one", "a/two"]
        for name in ("a/one", "a/two", "a/dir/three"):
            assert there.seen(name) == ("down", "mark")
        marked = there.provider()
        assert (marked.status, marked.evidence) == ("down", "mark")
        assert marked.error == "marked down: maintenance"
        assert before <= (marked.checked_at or 0) <= time.time()
        assert there.provider("b").evidence is None
        assert there.engine.mark_up("a/one") == ["a/one"]
        assert there.seen() == ("up", None)


async def test_a_provider_that_is_marked_down_covers_targets_that_are_asked_for_later() -> None:
    async with site() as there:
        there.engine.mark_down("a", "maintenance")
        with pytest.raises(ProviderUnavailable, match="marked down: maintenance"):
            await there.engine.create_message("Hi", max_tokens=9, model="a/made-up")
        assert there.a.requests == []
        result = await there.engine.create_message("Hi", max_tokens=9, model="m")
        assert (result.metadata.provider, result.metadata.attempts) == ("b", 1)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("a/one", ["a/one"]),
        ("a/dir/three", ["a/dir/three"]),
        ("a/t*", ["a/two"]),
        ("*/one", ["a/one", "b/one"]),
        ("?", ["a/dir/three", "a/one", "a/two", "b/one"]),
        ("embedded", ["embedded/*"]),
    ],
)
async def test_marking_returns_what_it_covers(pattern: str, matched: list[str]) -> None:
    async with site() as there:
        assert there.engine.mark_down(pattern, "maintenance") == matched
        assert there.engine.mark_up(pattern) == matched
        assert there.engine.held_back().marks == []


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a/on", "; did you mean 'a/one'?"),
        ("a/x-*", "'a/x-*' matches no target"),
        ("nobody/x", "known: a/dir/three, a/one, a/two, b/one"),
        ("embeded", "did you mean 'embedded'?"),
        ("zzz", "'zzz' matches no provider; known: a, b"),
        ("", "write provider/model, a provider, or a pattern such as provider/*"),
        ("a/", "'a/' is not a target"),
        ("/one", "'/one' is not a target"),
        ("a/" + "x" * 1000, "is not a target"),
    ],
)
async def test_what_matches_nothing_is_refused_and_changes_nothing(pattern: str, says: str) -> None:
    async with site() as there:
        for mark in (
            lambda: there.engine.mark_down(pattern, "typo"),
            lambda: there.engine.mark_up(pattern),
        ):
            with pytest.raises(ConfigurationError) as caught:
                mark()
            assert says in str(caught.value)
        assert there.engine.target_health() == []
        assert there.engine.held_back().marks == []


async def test_a_target_that_was_asked_for_can_be_marked_though_it_is_not_configured() -> None:
    async with site() as there:
        await there.ask("a/made-up")
        assert there.engine.mark_down("a/made-up", "odd") == ["a/made-up"]
        assert there.engine.mark_down("a/elsewhere", "odd", seen=["a/elsewhere"]) == ["a/elsewhere"]
        assert there.seen("a/elsewhere") == ("down", "mark")


async def test_a_mark_outlasts_a_reload_that_changes_every_connection() -> None:
    engine = Engine(CONFIG)
    engine.use(StubProvider([RateLimited("slow down", retry_after=120)], name="b"))
    engine.mark_down("a", "maintenance")
    with pytest.raises(PenstockError):
        await engine.create_message("Hi", max_tokens=9, model="b/one")
    changed = CONFIG.model_copy(
        update={"pool": CONFIG.pool.model_copy(update={"connect_timeout_s": 7.0})}
    )
    now = await engine.reconfigured(changed)
    found = {each.target: each for each in now.target_health()}
    assert (found["b/one"].status, found["b/one"].evidence) == ("degraded", "requests")
    assert found["b/one"].checked_at is not None
    (provider,) = now.last_provider_health(["a"])
    assert provider.evidence == "mark"
    with pytest.raises(ProviderUnavailable, match="maintenance"):
        await now.create_message("Hi", max_tokens=9, model="a/one")
    await now.aclose()
