"""Servers that want too much, lie, or go away while somebody decides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tracemalloc
from typing import Any

import pytest

from penstock import RateLimited
from penstock.mcp import (
    ApprovalQueue,
    Decision,
    SamplingHost,
    SamplingPolicy,
    ServerRule,
    sampling_callback,
)
from penstock.mcp.host.queue import Waiting
from penstock.telemetry.records import Record
from penstock.testing import FakeProvider, FakeReply, Recorder, engine_with
from tests.mcp.host.connections import (
    Connected,
    Era,
    RefusedError,
    connected,
    params,
)
from tests.mcp.host.test_revisions import by_hand
from tests.mcp.sampling.checks.support import WEATHER, Asked, scene
from tests.mcp.sampling.requirement import Way

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "way", [("memory", "legacy"), ("memory", "modern"), ("http", "modern")], ids="-".join
)
async def test_fifty_megabytes_are_refused(way: Way) -> None:
    asked = Asked()
    async with scene(way, approval=asked) as there:
        with pytest.raises(RefusedError, match="20,000,000 bytes") as caught:
            await there.server.outcome("ask_much", size=50 * MEGABYTE)
        assert (await there.server.ask())["role"] == "assistant"
        assert len(there.model.requests) == 1
    assert caught.value.code == -32602
    assert len(caught.value.message) < 300
    assert [review.request.messages[0].text for review in asked.shown] == ["Hello", "Hello"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_over_stdio_the_same_limit_holds(era: Era) -> None:
    """With a lower one: the SDK takes minutes to read a line of fifty megabytes."""
    policy = SamplingPolicy(servers={"asking": ServerRule(max_prompt_bytes=MEGABYTE)})
    async with scene(("stdio", era), policy=policy) as there:
        with pytest.raises(RefusedError, match="1,000,000 bytes"):
            await there.server.outcome("ask_much", size=MEGABYTE)
        assert (await there.server.ask())["role"] == "assistant"


async def test_the_transport_refuses_an_event_of_fifty_megabytes() -> None:
    async with scene(("http", "legacy")) as there:
        with pytest.raises(RefusedError, match="byte limit"):
            await there.server.outcome("ask_much", size=50 * MEGABYTE)
        assert there.model.requests == []
        assert (await there.server.ask())["role"] == "assistant"


async def test_what_is_too_large_is_not_copied() -> None:
    from mcp_types import CreateMessageRequestParams

    text = "ä" * (25 * MEGABYTE)
    asked = CreateMessageRequestParams.model_validate(params(text))
    async with engine_with(FakeProvider()) as engine:
        callback = sampling_callback(engine, approval="always")

        class Session:
            protocol_version = None

        class Context:
            session: Any = Session()

        tracemalloc.start()
        try:
            answer = await callback(Context(), asked)  # pyright: ignore[reportArgumentType]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "20,000,000" in answer.model_dump_json()
    # One pass over the text, in UTF-8; never the request as JSON, and then as parts, and so on.
    assert peak < 60 * MEGABYTE


async def test_a_loop_is_stopped_by_the_limit() -> None:
    policy = SamplingPolicy(servers={"asking": ServerRule(requests_per_minute=5)})
    async with scene(("memory", "legacy"), policy=policy) as there:
        ends = json.loads(await there.server.text("ask_again_and_again", times=40))
        assert len(there.model.requests) == 5
    assert ends == ["answered"] * 5 + [-32000] * 35


async def test_tokens_are_limited_by_the_minute() -> None:
    rule = ServerRule(tokens_per_minute=250, max_tokens=100)
    async with scene(("memory", "legacy"), policy=SamplingPolicy(servers={"*": rule})) as there:
        # Each may take a hundred and takes few: what was not used is there again.
        for _ in range(5):
            await there.server.ask()
        with pytest.raises(RefusedError, match="250 tokens a minute") as caught:
            await there.server.ask(params("word " * 400))
    assert caught.value.data == {"reason": "rate_limit_exceeded", "retryable": False}


@pytest.mark.parametrize(
    "name", ["clear\x1b[2J", "bell\x07", "turn\u202e", "two\nlines", "no\u200bspace"]
)
async def test_names_with_control_characters_are_refused(name: str) -> None:
    asked = Asked()
    async with scene(("memory", "legacy"), approval=asked) as there:
        with pytest.raises(RefusedError) as caught:
            await there.server.ask(tools=[WEATHER, {**WEATHER, "name": name}])
        assert there.model.requests == []
    assert caught.value.code == -32602
    assert caught.value.message.startswith("tools[1].name")
    assert caught.value.message.isprintable()
    assert asked.shown == []


async def test_a_server_that_dies_takes_its_question_along() -> None:
    queue, waits, gone = ApprovalQueue(), asyncio.Event(), asyncio.Event()
    decisions: list[Decision | None] = []
    queue.on_asked = lambda _waiting: waits.set()

    def ended(_waiting: Waiting, decision: Decision | None) -> None:
        decisions.append(decision)
        gone.set()

    queue.on_ended = ended
    model = FakeProvider()
    async with engine_with(model) as engine:
        host = SamplingHost(engine, approval=queue)
        with contextlib.suppress(Exception):
            async with host.client("mortal", by_hand(), mode="legacy") as client:
                server = Connected(client)
                process = int(await server.text("process"))
                asking = asyncio.create_task(server.ask())
                await waits.wait()
                os.kill(process, signal.SIGKILL)
                await asyncio.gather(asking, return_exceptions=True)
        await gone.wait()
        assert queue.waiting() == []
        assert decisions == [None]
        assert host.limits("mortal").running == 0
    assert model.requests == []


async def test_a_cancelled_request_stops_upstream() -> None:
    recorder = Recorder()
    started, ended = asyncio.Event(), asyncio.Event()

    def heard(record: Record) -> None:
        recorder(record)
        if recorder.attempted:
            started.set()
        if recorder.requests:
            ended.set()

    async with engine_with(FakeProvider([FakeReply(text="Never.", delay_s=60)])) as engine:
        engine.hooks.subscribe(heard)
        host = SamplingHost(engine, approval="always")
        async with host.client("fickle", by_hand(), mode="legacy") as client:
            server = Connected(client)
            asking = asyncio.create_task(server.ask())
            await started.wait()
            assert len(json.loads(await server.text("cancel"))) == 1
            await ended.wait()
            # It is not answered, so the server never answers the call either.
            assert not asking.done()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    assert [record.outcome for record in recorder.requests] == ["cancelled"]
    assert host.limits("fickle").running == 0


async def test_errors_of_a_provider_and_of_the_host_are_told_apart() -> None:
    busy = RateLimited("org-42 has 0 left", retry_after=7)
    async with scene(("memory", "legacy"), busy) as there:
        with pytest.raises(RefusedError) as caught:
            await there.server.ask()
    assert "org-42" not in str(caught.value)
    assert caught.value.data["retryAfter"] == 7


async def test_an_approver_that_fails_is_no_yes() -> None:
    async def broken(_: object) -> Decision:
        raise RuntimeError("the window at 10.0.0.7 is closed")

    async def forgetful(_: object) -> Decision:
        return None  # pyright: ignore[reportReturnType]

    for approver, code in ((broken, -32603), (forgetful, -1)):
        async with scene(("memory", "legacy"), approval=approver) as there:
            with pytest.raises(RefusedError) as caught:
                await there.server.ask()
            assert there.model.requests == []
        assert caught.value.code == code
        assert "10.0.0.7" not in str(caught.value)


async def test_a_server_cannot_name_itself_into_a_rule() -> None:
    """The rule is for the server that the host calls so, and not for whoever says it is."""
    policy = SamplingPolicy(servers={"asking": ServerRule()})
    async with engine_with(FakeProvider()) as engine:
        host = SamplingHost(engine, policy=policy)
        async with connected(host, server="stranger") as server:
            info = server.client.server_info
            assert info is not None
            assert info.name == "asking"
            with pytest.raises(RefusedError, match="'stranger'") as caught:
                await server.ask()
    assert caught.value.code == -1
