"""Streams that break after their first token, and streams that are whole in spite of everything."""

from __future__ import annotations

import pytest

from penstock import (
    Error,
    MalformedResponse,
    OutputSchema,
    ProviderUnavailable,
    StreamInterrupted,
    ToolDefinition,
)
from tests.faults.answer import OTHER, WHOLE, first_words
from tests.faults.asking import DIALECTS, engine_on, streamed, whole
from tests.faults.manifest import proves
from tests.faults.scenarios import BREAKS, SSE
from tests.faults.server import FaultServer
from tests.support.wire.seen import Seen

LOOK = ToolDefinition("look", "Look it up.", {"type": "object", "properties": {"query": {}}})
RESTART_ONLY = {"mid_stream": "restart_only"}
KINDS = pytest.mark.parametrize("kind", DIALECTS)

ROWS = proves("cut", "truncated", "stall", "no-terminal", "malformed-event", "in-band-later")


@ROWS
@proves("prefill-refused")
@pytest.mark.parametrize("fault", BREAKS)
@pytest.mark.parametrize("way", ["prefill@healthy.b", "plain@healthy.b", "prefill@no-prefill.b"])
async def test_a_broken_stream_is_gone_on_with(fault: str, way: str) -> None:
    """With the beginning where the model takes one, else anew, with what was read skipped."""
    model = way.partition("@")[2]
    async with FaultServer() as server, engine_on(server, fault, way) as engine:
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.text == WHOLE
        assert got.result.metadata.provider == "second"
        assert got.result.usage.estimated
        asked = server.of(model)
        assert len(server.of(fault)) == 1
        if way.startswith("prefill@"):
            assert asked[0].begun
            assert asked[0].begun == WHOLE[: len(asked[0].begun)].rstrip()
        assert len(asked) == (2 if "no-prefill" in way else 1)
        assert got.result.metadata.attempts == 1 + len(asked)


@ROWS
@KINDS
@pytest.mark.parametrize("fault", ["cut.40", "ends.40", "stall.40", "no-terminal", "malformed"])
async def test_it_is_gone_on_with_on_every_wire(kind: str, fault: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind) as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert [len(server.of(model)) for model in (fault, "healthy.b")] == [1, 1]


@proves("malformed-event")
@pytest.mark.parametrize("kind", SSE)
async def test_a_line_with_a_damaged_field_breaks_a_stream(kind: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "malformed.prefix", kind=kind, pool={"retries": 0}) as engine,
    ):
        got = await streamed(engine)
        assert isinstance(got.error, StreamInterrupted)
        assert got.text == first_words(20)


@proves("joined")
@KINDS
@pytest.mark.parametrize("way", ["follows.repeating", "follows.bare"])
async def test_a_model_with_other_words_continues_the_text(kind: str, way: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "cut.40", way, kind=kind) as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (first_words(40) + OTHER[len(first_words(40)) :], None)
        assert got.result is not None
        assert got.result.text == got.text
        assert got.result.metadata.continued_by == f"second/{way}"


@proves("joined")
@pytest.mark.parametrize("fault", BREAKS)
async def test_both_parts_are_joined_whatever_the_break(fault: str) -> None:
    async with FaultServer() as server, engine_on(server, fault, "other.b") as engine:
        got = await streamed(engine)
        assert got.error is None
        assert got.text.endswith(OTHER)
        assert WHOLE.startswith(got.text.removesuffix(OTHER))
        assert got.result is not None
        assert got.result.text == got.text
        assert got.result.metadata.continued_by == "second/other.b"


@proves("joined")
async def test_a_model_that_refuses_the_instruction_answers_again() -> None:
    async with FaultServer() as server, engine_on(server, "cut.40", "no-turns.b") as engine:
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.of("no-turns.b")) == 2


@proves("cut-call")
@KINDS
@pytest.mark.parametrize("policy", ["continue", "restart_only"])
@pytest.mark.parametrize("fault", ["cut-call.half", "cut-call.whole"])
async def test_a_cut_tool_call_is_never_continued(kind: str, fault: str, policy: str) -> None:
    pool = {"mid_stream": policy, "retries": 0}
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind, pool=pool) as engine,
    ):
        stream = await engine.create_message_stream(
            "Say it.", max_tokens=99, model="m", tools=[LOOK]
        )
        *_, end = [event async for event in stream]
        assert isinstance(end, Error)
        assert isinstance(end.error, StreamInterrupted | ProviderUnavailable)
        assert server.of("healthy.b") == []


@proves("joined")
async def test_a_schema_is_never_joined() -> None:
    async with FaultServer() as server, engine_on(server, "cut.5", "other.b") as engine:
        stream = await engine.create_message_stream(
            "Say it.", max_tokens=99, model="m", output_schema=OutputSchema({"type": "object"})
        )
        events = [event async for event in stream]
        assert isinstance(events[-1], Error)
        seen = server.of("other.b")[0].seen
        assert isinstance(seen, Seen)
        assert len(seen.messages) == 1


@proves("another-answer")
@pytest.mark.parametrize("fault", BREAKS)
async def test_another_answer_is_not_joined_with_restart_only(fault: str) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, fault, "other.b", pool=RESTART_ONLY) as engine,
    ):
        got = await streamed(engine)
        assert WHOLE.startswith(got.text)
        assert got.result is None
        assert isinstance(got.error, StreamInterrupted)
        assert got.error.partial == got.text


@proves("another-answer")
async def test_a_target_that_answers_otherwise_is_not_blamed_for_it() -> None:
    pool = {"retries": 0, "breaker_failures": 1, **RESTART_ONLY}
    async with FaultServer() as server, engine_on(server, "cut.5", "other.b", pool=pool) as engine:
        assert isinstance((await streamed(engine)).error, StreamInterrupted)
        assert (await whole(engine, model="second/other.b")).error is None
        assert len(server.of("other.b")) == 2


@proves("mid-stream-error")
@pytest.mark.parametrize("fault", BREAKS)
async def test_a_broken_stream_is_an_error_where_that_is_wished(fault: str) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, fault, "healthy.b", pool={"mid_stream": "error"}) as engine,
    ):
        got = await streamed(engine)
        assert got.result is None
        assert isinstance(got.error, ProviderUnavailable)
        assert server.of("healthy.b") == []
        assert len(server.of(fault)) == 1
        assert WHOLE.startswith(got.text)


@proves("cut-twice")
async def test_a_third_target_goes_on_when_the_second_breaks_too() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "cut.20", "cut.40", "healthy.c") as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.metadata.attempts == 3
        assert [len(server.of(each)) for each in ("cut.20", "cut.40", "healthy.c")] == [1, 1, 1]


@proves("cut", "truncated")
@pytest.mark.parametrize("fault", ["cut.40", "ends.40"])
async def test_a_stream_that_breaks_alone_is_tried_again_and_never_torn(fault: str) -> None:
    async with FaultServer() as server, engine_on(server, fault) as engine:
        got = await streamed(engine)
        assert got.result is None
        assert isinstance(got.error, StreamInterrupted)
        assert got.error.partial == got.text == first_words(40)
        assert len(server.of(fault)) == 3


@proves("stall")
async def test_a_stream_that_stalls_alone_is_an_error_with_its_part() -> None:
    async with FaultServer() as server, engine_on(server, "stall.40") as engine:
        got = await streamed(engine)
        assert got.result is None
        assert isinstance(got.error, StreamInterrupted)
        assert got.error.partial == got.text == first_words(40)
        assert len(server.of("stall.40")) == 1


@proves("no-done", "no-end")
@KINDS
@pytest.mark.parametrize("fault", ["no-done", "no-end"])
async def test_a_whole_stream_is_whole(kind: str, fault: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind) as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.text == WHOLE
        assert len(server.requests) == 1


@proves("cut-whole", "malformed-whole")
@KINDS
@pytest.mark.parametrize(
    ("fault", "error"), [("cut", ProviderUnavailable), ("malformed", MalformedResponse)]
)
async def test_half_an_answer_is_none(
    kind: str, fault: str, error: type[ProviderUnavailable]
) -> None:
    pool = {"retries": 1}
    async with FaultServer(DIALECTS[kind]) as server:
        async with engine_on(server, fault, kind=kind, pool=pool) as engine:
            got = await whole(engine)
            assert isinstance(got.error, error)
            assert len(server.requests) == 2
        async with engine_on(server, fault, "healthy.b", kind=kind, pool=pool) as engine:
            assert (await whole(engine)).text == WHOLE
            assert [len(server.of(model)) for model in (fault, "healthy.b")] == [4, 1]
