"""What a key allows, as the pipeline asks for it."""

from contextlib import closing
from pathlib import Path

import pytest

from penstock.contract.errors import ModelNotFound, RateLimited
from penstock.contract.options import ModelPreferences
from penstock.contract.requests import build_request
from penstock.keys.policy import KeyTerms
from penstock.keys.rate_limit import WindowOf, window_of
from penstock.keys.records import Key, KeyHash, hash_of, new_text
from penstock.keys.shared_rate_limit import SharedWindows
from penstock.testing import FakeProvider
from tests.support.keyed import keyed_engine

MODELS = {"default": ["fake/echo"], "assistant": ["fake/echo-2"], "secret": ["fake/hidden"]}


def terms_of(*models: str, tokens: int | None = None) -> KeyTerms:
    hashes = (KeyHash(hash_of(new_text())),)
    key = Key(name="ci", hashes=hashes, models=models, tokens_per_minute=tokens)
    return KeyTerms(key, MODELS)


async def test_hints_do_not_lead_to_models_of_others() -> None:
    fake = FakeProvider()
    engine, _ = keyed_engine(fake)
    hints = ModelPreferences(hints=("hidden", "echo-2"))
    async with engine:
        ask = engine.create_message
        caller = terms_of("default", "assistant").caller
        result = await ask("Hi", max_tokens=5, model_preferences=hints, caller=caller)
        assert result.metadata.model == "echo-2"
        # Without the key's terms the first hint would have been followed.
        result = await ask("Hi", max_tokens=5, model_preferences=hints)
        assert result.metadata.model == "hidden"
        with pytest.raises(ModelNotFound, match="names no model"):
            await ask("Hi", max_tokens=5, caller=terms_of("assistant").caller)


async def test_tokens_that_were_taken_in_vain_come_back() -> None:
    fake = FakeProvider([ModelNotFound("gone"), "ok"])
    engine, _ = keyed_engine(fake)
    terms = terms_of(tokens=1000)
    async with engine:
        with pytest.raises(ModelNotFound, match="gone"):
            await engine.create_message("Hi", max_tokens=500, caller=terms.caller)
        assert terms.tokens is not None
        assert terms.tokens.remaining == 1000
        await engine.create_message("Hi", max_tokens=500, caller=terms.caller)
        assert 990 < terms.tokens.remaining < 1000


async def test_a_stream_that_is_left_costs_what_was_said() -> None:
    engine, _ = keyed_engine(FakeProvider(["one two three four five six"]))
    terms = terms_of(tokens=1000)
    assert terms.tokens is not None
    async with engine:
        request = build_request("Hi", {"max_tokens": 900})
        handle = await engine.create_message_stream(request, caller=terms.caller)
        assert terms.tokens.remaining < 100
        with pytest.raises(RateLimited, match=r"try again in \d+ s") as caught:
            await engine.create_message(request, caller=terms.caller)
        assert caught.value.retry_after is not None
        async with handle:
            async for _ in handle:
                break
        assert 900 < terms.tokens.remaining < 1000


def limited(requests: int | None, windows: WindowOf, before: KeyTerms | None = None) -> KeyTerms:
    hashes = (KeyHash(hash_of(new_text())),)
    key = Key(name="ci", hashes=hashes, requests_per_minute=requests)
    return KeyTerms(key, MODELS, before, windows)


def test_messages_are_limited_across_processes(tmp_path: Path) -> None:
    file = tmp_path / "windows"
    with closing(SharedWindows(file)) as one, closing(SharedWindows(file)) as other:
        here, there = limited(30, one), limited(30, other)
        windows = [terms.messages("messages") for terms in (here, there)]
        assert windows[0] is not None
        assert windows[1] is not None
        assert windows[0].limit == windows[1].limit == 6_000
        assert windows[0].take(6_000) is not None
        assert windows[1].take(1) is None
        cancels = there.messages("cancels")
        assert cancels is not None
        assert cancels.take(1) is not None


def test_a_changed_key_keeps_the_count_of_its_messages() -> None:
    before = limited(30, window_of)
    window = before.messages("messages")
    assert window is not None
    window.take(5_000)
    after = limited(1_000, window_of, before).messages("messages")
    assert after is not None
    assert (after.limit, after.remaining) == (20_000, 15_000)
    assert limited(None, window_of, before).messages("messages") is None
