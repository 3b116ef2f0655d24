"""What is told of a request afterwards: attempts, calls and tokens, the broken ones included."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Chunk, Engine, RequestCancelled, Usage
from penstock.tokens import estimate_text, family_of
from tests.faults.answer import PROMPT_TOKENS, WHOLE, WORDS, first_words
from tests.faults.asking import AMPLE_S, BOTH, DIALECTS, Ask, engine_on, streamed, whole
from tests.faults.manifest import proves
from tests.faults.server import FaultServer

ANSWER = Usage(PROMPT_TOKENS, len(WORDS))
"""What one whole answer takes by the provider's own count."""


def estimated(words: str, model: str) -> int:
    return estimate_text(words, family_of(model))


async def rows(engine: Engine) -> dict[tuple[str | None, str | None], tuple[int, dict[str, int]]]:
    """How many requests ended at each target, and the failures among them."""
    stats = await engine.usage_stats()
    return {(row.provider, row.model): (row.requests, row.failures) for row in stats.models}


def tokens(usage: Usage) -> tuple[int | None, int | None]:
    return usage.input_tokens, usage.output_tokens


@proves("failed-attempts")
@BOTH
@pytest.mark.parametrize("kind", DIALECTS)
async def test_attempts_that_bring_nothing_count_as_calls_and_take_no_tokens(
    kind: str, ask: Ask
) -> None:
    pool = {"retries": 1}
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "500.forever", "500.once", kind=kind, pool=pool) as engine,
    ):
        got = await ask(engine)
        assert got.result is not None
        metadata = got.result.metadata
        assert (metadata.provider, metadata.attempts, metadata.api_calls) == ("second", 4, 4)
        assert len(server.requests) == 4
        assert tokens(metadata.usage) == tokens(ANSWER)
        assert not metadata.usage.estimated
        assert await rows(engine) == {("second", "500.once"): (1, {})}
        assert (await engine.usage_stats()).total.usage == metadata.usage


@proves("failed-request")
@BOTH
async def test_a_request_that_fails_counts_once_where_it_ended(ask: Ask) -> None:
    async with FaultServer() as server:
        async with engine_on(server, "429.forever", pool={"retries": 1}) as engine:
            await ask(engine)
            assert await rows(engine) == {("primary", "429.forever"): (1, {"RateLimited": 1})}
            assert len(server.requests) == 2
        async with engine_on(server, "500.forever", "429.long", pool={"retries": 1}) as engine:
            await ask(engine)
            assert await rows(engine) == {(None, None): (1, {"AllTargetsFailed": 1})}
            total = (await engine.usage_stats()).total
            assert (total.requests, total.failed, tokens(total.usage)) == (1, 1, (None, None))


@proves("failed-request")
@BOTH
async def test_requests_that_fail_and_that_do_not_are_told_apart(ask: Ask) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "refused.bad", "healthy.b") as engine,
    ):
        for _ in range(2):
            await ask(engine)
        for _ in range(3):
            assert (await ask(engine, model="second/healthy.b")).text == WHOLE
        assert await rows(engine) == {
            ("primary", "refused.bad"): (2, {"InvalidRequest": 2}),
            ("second", "healthy.b"): (3, {}),
        }
        total = (await engine.usage_stats()).total
        assert tokens(total.usage) == (3 * PROMPT_TOKENS, 3 * len(WORDS))
        assert len(server.requests) == 5


# ---- streams


@proves("cut-usage")
@pytest.mark.parametrize("fault", ["cut.40", "inband.openai-chat-overloaded.40"])
async def test_the_part_of_a_broken_stream_is_estimated_and_added(fault: str) -> None:
    async with FaultServer() as server, engine_on(server, fault, "healthy.b") as engine:
        got = await streamed(engine)
        assert got.result is not None
        metadata = got.result.metadata
        assert (metadata.attempts, metadata.api_calls) == (2, 2) == (len(server.requests), 2)
        assert metadata.usage.estimated
        assert metadata.usage.output_tokens == len(WORDS) + estimated(first_words(40), fault)
        assert metadata.usage.input_tokens is not None
        assert metadata.usage.input_tokens > PROMPT_TOKENS
        # The request counts where it ended, and its tokens where they were taken.
        assert await rows(engine) == {
            ("primary", fault): (0, {}),
            ("second", "healthy.b"): (1, {}),
        }
        assert (await engine.usage_stats()).total.usage == metadata.usage


@proves("cut-usage")
async def test_what_is_gone_on_with_is_not_counted_anew() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "cut.40", "prefill@healthy.b") as engine,
    ):
        got = await streamed(engine)
        assert got.result is not None
        assert len(server.of("healthy.b")) == 1
        expected = 20 + estimated(first_words(40), "cut.40")
        assert got.result.usage.output_tokens == expected


@proves("cut-usage")
@pytest.mark.parametrize(
    ("models", "second"),
    [
        pytest.param(("cut.20", "cut.40", "healthy.c"), first_words(40), id="anew"),
        pytest.param(
            ("cut.20", "prefill@cut.40", "prefill@healthy.c"),
            "".join(WORDS[20:40]),
            id="gone-on",
        ),
        pytest.param(
            ("cut.40", "cut.20", "healthy.c"),
            first_words(20),
            id="shorter",
        ),
    ],
)
async def test_a_second_break_adds_its_own_part_only(models: tuple[str, ...], second: str) -> None:
    # Without an instruction, whose last words are billed as well.
    pool = {"mid_stream": "continue" if models[-1].startswith("prefill@") else "restart_only"}
    async with FaultServer() as server, engine_on(server, *models, pool=pool) as engine:
        got = await streamed(engine)
        assert (got.text, len(server.requests)) == (WHOLE, 3)
        assert got.result is not None
        first = first_words(int(models[0].removeprefix("cut.")))
        answered = 20 if models[-1].startswith("prefill@") else len(WORDS)
        expected = answered + estimated(first, "cut") + estimated(second, "cut")
        # A word at the seam of two parts may count for one more, or one less.
        assert got.result.usage.output_tokens == pytest.approx(expected, abs=2)


@proves("cut-usage", "failed-request")
async def test_a_stream_that_nobody_ends_counts_where_its_error_came_from() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "cut.20", "cut.40", pool={"retries": 0}) as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.result) == (first_words(40), None)
        assert got.error is not None
        assert len(server.requests) == 2
        assert (got.error.provider, got.error.model) == ("second", "cut.40")
        assert await rows(engine) == {
            ("primary", "cut.20"): (0, {}),
            ("second", "cut.40"): (1, {"StreamInterrupted": 1}),
        }


@proves("cancelled-usage")
@pytest.mark.parametrize("by_id", [False, True], ids=["closed", "cancelled"])
async def test_a_stream_that_is_left_is_one_cancellation(by_id: bool) -> None:
    async with FaultServer() as server, engine_on(server, "stall.3") as engine:
        stream = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
        said = ""
        async for event in stream:
            assert isinstance(event, Chunk)
            said += event.text
            if said == first_words(3):
                break
        await (engine.cancel_request(stream.request_id) if by_id else stream.aclose())
        async with asyncio.timeout(30):
            await server.gone.wait()
        assert await rows(engine) == {("primary", "stall.3"): (1, {"RequestCancelled": 1})}
        usage = (await engine.usage_stats()).total.usage
        assert (usage.output_tokens, usage.estimated) == (estimated(said, "stall.3"), True)
        assert len(server.requests) == 1


@proves("cancelled-usage")
@BOTH
async def test_a_request_that_is_cancelled_before_any_token_counts_once(ask: Ask) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "silence", pool={"request_timeout_s": AMPLE_S}) as engine,
    ):
        asking = asyncio.ensure_future(ask(engine))
        await server.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(30):
            await server.gone.wait()
        total = (await engine.usage_stats()).total
        assert (total.requests, total.failures) == (1, {RequestCancelled.__name__: 1})


@proves("cancelled-usage")
async def test_an_answer_that_was_read_to_its_end_is_no_cancellation() -> None:
    async with FaultServer() as server, engine_on(server, "no-end") as engine:
        got = await streamed(engine)
        assert got.result is not None
        assert await rows(engine) == {("primary", "no-end"): (1, {})}
        assert (await whole(engine, model="primary/healthy.b")).text == WHOLE
        total = (await engine.usage_stats()).total
        assert (total.requests, total.failed) == (2, 0)
        assert tokens(total.usage) == (2 * PROMPT_TOKENS, 2 * len(WORDS))
        assert len(server.requests) == 2
