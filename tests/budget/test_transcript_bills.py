"""Transcripts: who pays for them, and how much where their provider counts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import BudgetExceeded, Caller, Engine, ProviderTimeout, Usage
from penstock.budget.entries import Entry
from penstock.config.settings import Config
from penstock.contract.exchange import Transcript
from penstock.contract.options import Capabilities
from penstock.testing import FakeProvider
from penstock.tokens import estimate_sound, estimate_text, family_of
from tests.budget.test_engine_books import INPUT, OUTPUT, PRICE, bookkeeper
from tests.support.raw import Peer, RawServer
from tests.support.sound import wav

SECONDS = 3
WORDS = "one two three four five six"
MINUTE = {"input": 0.0, "output": 0.0, "audio_minute": 0.006}
A_SECOND = 100_000
"""Nano-dollars, at that price."""


def recording() -> penstock.Audio:
    return penstock.audio(wav(SECONDS))


async def closing(engine: Engine) -> list[Entry]:
    ledger = await engine.ledger()
    assert not await ledger.verify()
    return [each async for each in ledger.entries() if each.kind != "hold"]


def priced(price: dict[str, float]) -> dict[str, Any]:
    return {"models": {"default": {"targets": ["fake/echo"], "prices": {"fake/echo": price}}}}


async def settled(folder: Path, told: Transcript, price: dict[str, float]) -> Entry:
    async with bookkeeper(folder, FakeProvider(transcripts=[told]), **priced(price)) as engine:
        await engine.transcribe(recording())
        (entry,) = await closing(engine)
        (hold,) = [e async for e in (await engine.ledger()).entries() if e.kind == "hold"]
        assert entry.amount_nanos <= hold.amount_nanos
        return entry


async def test_tokens_are_paid_as_they_are_counted(tmp_path: Path) -> None:
    entry = await settled(tmp_path, Transcript(text=WORDS, usage=Usage(40, 6)), PRICE)
    assert (entry.amount_nanos, entry.estimated) == (40 * INPUT + 6 * OUTPUT, False)


async def test_seconds_are_paid_as_they_are_counted(tmp_path: Path) -> None:
    told = Transcript(text=WORDS, usage=Usage(audio_seconds=2.5))
    entry = await settled(tmp_path, told, MINUTE)
    assert (entry.amount_nanos, entry.estimated) == (250_000, False)


async def test_seconds_that_are_not_counted_are_those_of_the_recording(tmp_path: Path) -> None:
    entry = await settled(tmp_path, Transcript(text=WORDS), MINUTE)
    assert entry.estimated
    assert SECONDS * A_SECOND <= entry.amount_nanos <= (SECONDS + 1) * A_SECOND


async def test_a_length_that_was_told_goes_before_our_guess(tmp_path: Path) -> None:
    entry = await settled(tmp_path, Transcript(text=WORDS, duration_s=2.0), MINUTE)
    assert (entry.amount_nanos, entry.estimated) == (2 * A_SECOND, True)


async def test_tokens_that_are_not_counted_are_estimated(tmp_path: Path) -> None:
    entry = await settled(tmp_path, Transcript(text=WORDS), PRICE)
    family = family_of("echo")
    read, written = estimate_sound(recording(), family), estimate_text(WORDS, family)
    assert (entry.input_tokens, entry.output_tokens) == (read, written)
    assert (entry.amount_nanos, entry.estimated) == (read * INPUT + written * OUTPUT, True)


async def test_a_count_that_the_price_is_not_for_is_charged_as_what_was_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = Transcript(text=WORDS, usage=Usage(audio_seconds=2.5))
    entry = await settled(tmp_path, told, PRICE)
    assert entry.estimated
    assert entry.amount_nanos > 0
    assert "counts nothing that its price is for: what was held is charged" in caplog.text


async def test_a_transcript_belongs_to_its_callers_key(tmp_path: Path) -> None:
    budgets = {"ci": {"limit_usd": 0.0, "key": "ci"}}
    provider = FakeProvider(transcripts=[WORDS, WORDS])
    async with bookkeeper(tmp_path, provider, budgets=budgets) as engine:
        caller = Caller(key="other", tags={"team": "blue"})
        await engine.transcribe(recording(), caller=caller)
        (entry,) = await closing(engine)
        assert (entry.key, entry.tags) == ("other", {"team": "blue"})
        assert [row.key for row in (await engine.usage_stats()).keys] == ["other"]
        with pytest.raises(BudgetExceeded, match="'ci'"):
            await engine.transcribe(recording(), caller=Caller(key="ci"))
        assert len(provider.recordings) == 1


class Hears(FakeProvider):
    """A provider that runs nowhere near, with models that nobody has a price for."""

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(transcription=True)


async def test_hard_budgets_refuse_a_transcript_that_nobody_knows_the_price_of(
    tmp_path: Path,
) -> None:
    sections: dict[str, Any] = {
        "providers": {"cloud": {"kind": "openai", "auth_token": "k"}},
        "models": {"default": {"targets": ["cloud/no-such-model"]}},
    }
    provider = Hears(name="cloud", transcripts=[WORDS])
    async with bookkeeper(tmp_path, provider, **sections) as engine:
        await engine.transcribe(recording())
        (entry,) = await closing(engine)
        assert (entry.amount_nanos, entry.price_source) == (0, "unknown")
        await engine.set_budget(5.0)
        with pytest.raises(BudgetExceeded, match="no price for cloud/no-such-model"):
            await engine.transcribe(recording())


# ---- over the wire


@asynccontextmanager
async def whisper(folder: Path, url: str) -> AsyncGenerator[Engine]:
    target = "p/whisper-1"
    config = {
        "providers": {"p": {"kind": "openai", "url": url, "auth_token": "k"}},
        "models": {"default": {"targets": [target], "prices": {target: MINUTE}}},
        "pool": {"retries": 0},
        "storage": {"url": f"sqlite:///{folder / 'books.db'}"},
    }
    async with Engine(Config.model_validate(config)) as engine:
        yield engine


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
async def test_a_recording_that_was_sent_in_vain_costs_its_seconds(
    tmp_path: Path, how: str
) -> None:
    heard = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.request()
        heard.set()
        await peer.gone()

    async with RawServer(silent) as server, whisper(tmp_path, server.url) as engine:
        if how == "timeout":
            with pytest.raises(ProviderTimeout):
                await engine.transcribe(recording(), timeout=3.0)
            assert heard.is_set()
        else:
            asking = asyncio.ensure_future(engine.transcribe(recording()))
            await heard.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        (entry,) = await closing(engine)
        assert (entry.kind, entry.estimated) == ("settle", True)
        assert SECONDS * A_SECOND <= entry.amount_nanos <= (SECONDS + 1) * A_SECOND
