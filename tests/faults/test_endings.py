"""What an answer says of its own end: empty, without a reason, or for an unknown one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.answer import WHOLE
from tests.faults.asking import BOTH, DIALECTS, Ask, engine_on, streamed, whole
from tests.faults.doors import DOORS
from tests.faults.gateways import gateway_on
from tests.faults.manifest import ANSWERS, proves, shows
from tests.faults.scenarios import KEPT_ALIVE, NO_REASON, PINGS
from tests.faults.server import FaultServer

KINDS = pytest.mark.parametrize("kind", DIALECTS)
UNKNOWN = "ended.of_tomorrow"
CUT = [("openai-chat", "length"), ("openai-chat", "model_length"), ("gemini", "MAX_TOKENS")]


@proves("empty")
@KINDS
@BOTH
async def test_an_empty_answer_is_asked_for_elsewhere_once(kind: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "empty", "healthy.b", "healthy.c", kind=kind) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.text == WHOLE
        assert (got.result.metadata.provider, got.result.metadata.attempts) == ("second", 2)
        assert [each.seen.model for each in server.requests] == ["empty", "healthy.b"]


@proves("empty")
@KINDS
@BOTH
async def test_the_only_target_may_answer_nothing(kind: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "empty", kind=kind) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == ("", None)
        assert got.result is not None
        assert (got.result.stop_reason, got.result.metadata.attempts) == ("endTurn", 1)
        assert len(server.requests) == 1


@proves("empty")
@BOTH
@pytest.mark.parametrize("fault", ["refused.bad", "refused.overloaded", "reset", "empty.b"])
async def test_an_empty_answer_is_better_than_the_failure_of_another(fault: str, ask: Ask) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "empty", fault, "healthy.c", pool={"retries": 1}) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == ("", None)
        assert got.result is not None
        answered = "second" if fault == "empty.b" else "primary"
        assert (got.result.metadata.provider, got.result.metadata.attempts) == (answered, 2)
        assert [each.seen.model for each in server.requests] == ["empty", fault]


@proves("empty")
async def test_an_answer_that_replaces_an_empty_one_may_break_as_any_other() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "empty", "cut.40", "prefill@healthy.c") as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert [each.seen.model for each in server.requests] == ["empty", "cut.40", "healthy.c"]


@proves("empty")
@BOTH
async def test_the_setting_turns_it_off(ask: Ask) -> None:
    pool = {"retry_empty_answers": False}
    async with (
        FaultServer() as server,
        engine_on(server, "empty", "healthy.b", pool=pool) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == ("", None)
        assert len(server.requests) == 1


@proves("no-reason")
@pytest.mark.parametrize(
    ("kind", "ask"),
    [(kind, streamed if form else whole) for kind, forms in NO_REASON.items() for form in forms],
)
async def test_a_service_without_reasons_can_be_used(kind: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "no-reason", "healthy.b", kind=kind) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert (got.result.stop_reason, got.result.metadata.stop_detail) == ("endTurn", "missing")
        assert got.result.metadata.as_dict()["stop_detail"] == "missing"
        assert len(server.requests) == 1


@proves("no-reason")
async def test_without_reason_and_without_done_a_stream_is_broken() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "no-terminal", "healthy.b") as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.requests) == 2


@proves("unknown-reason")
@BOTH
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic", "gemini", "ollama"])
async def test_an_unknown_reason_is_kept_by_its_name(kind: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, UNKNOWN, "healthy.b", kind=kind) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        metadata = got.result.metadata
        assert (got.result.stop_reason, metadata.stop_detail) == ("of_tomorrow", "of_tomorrow")
        assert len(server.requests) == 1


@BOTH
@pytest.mark.parametrize(("kind", "reason"), CUT)
async def test_a_reason_of_length_is_max_tokens(kind: str, reason: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, f"ended.{reason}", "healthy.b", kind=kind) as engine,
    ):
        got = await ask(engine)
        assert got.result is not None
        assert (got.result.stop_reason, got.result.metadata.stop_detail) == ("maxTokens", None)


def _events(said: str) -> list[Any]:
    lines = [line for line in said.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def _chat(said: str, stream: bool) -> str:
    answers = _events(said) if stream else [json.loads(said)]
    choices = [choice for answer in answers for choice in answer["choices"]]
    (reason,) = (choice["finish_reason"] for choice in choices if choice["finish_reason"])
    return reason


def _responses(said: str, stream: bool) -> tuple[str, Any]:
    response = _events(said)[-1]["response"] if stream else json.loads(said)
    return response["status"], response["incomplete_details"]


def _messages(said: str, stream: bool) -> str:
    return _events(said)[-2]["delta"]["stop_reason"] if stream else json.loads(said)["stop_reason"]


def _sampling(said: str, stream: bool) -> tuple[str, str]:
    answer = _events(said)[-1] if stream else json.loads(said)
    return answer["stopReason"], answer["_metadata"]["stop_detail"]


ENDS: dict[str, tuple[Callable[[str, bool], object], object]] = {
    "chat": (_chat, "length"),
    "responses": (_responses, ("incomplete", {"reason": "max_output_tokens"})),
    "messages": (_messages, "max_tokens"),
    "sampling": (_sampling, ("of_tomorrow", "of_tomorrow")),
}
"""How each endpoint says that an answer ended for an unknown reason."""


@shows(["unknown-reason"], ANSWERS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("door", ANSWERS)
async def test_no_endpoint_shows_an_unknown_reason_as_a_normal_end(
    door: str, stream: bool, tmp_path: Path
) -> None:
    async with gateway_on(tmp_path, {"m": (UNKNOWN, "healthy.b")}) as site:
        body = DOORS[door].body("m", stream)
        async with site.client.post(DOORS[door].path, json=body) as response:
            said = await response.text()
            assert response.status == 200
            detail = response.headers.get("x-penstock-stop-detail")
        read, expected = ENDS[door]
        assert read(said, stream) == expected
        assert detail == (None if stream else "of_tomorrow")
        assert len(site.server.of(UNKNOWN)) == 1
        await site.check_afterwards([door])


@proves("kept-alive")
@pytest.mark.parametrize("after", [0, 40])
@pytest.mark.parametrize("kind", [kind for kind, _ in PINGS])
async def test_pings_are_no_silence(kind: str, after: int) -> None:
    fault = f"kept-alive.{after}"
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind, pool=KEPT_ALIVE) as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.requests) == 1


@proves("kept-alive")
@KINDS
async def test_blank_lines_are_no_silence_of_a_whole_answer(kind: str) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "kept-alive.0", "healthy.b", kind=kind, pool=KEPT_ALIVE) as engine,
    ):
        got = await whole(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.requests) == 1


@proves("kept-alive")
@pytest.mark.parametrize("what", ["lines", "blank", "text"])
async def test_a_whole_answer_that_only_shows_life_is_left_in_the_end(what: str) -> None:
    limits = {
        "body_timeout_s": 600.0,
        "request_timeout_s": 600.0,
        "first_token_timeout_s": 0.5,
        "keep_alive_timeout_s": 1.0,
    }
    fault = f"drip.{what}"
    async with (
        FaultServer() as server,
        engine_on(server, fault, "healthy.b", pool=limits) as engine,
        asyncio.timeout(30),
    ):
        got = await whole(engine)
        assert (got.text, got.error) == (WHOLE, None)
        first, second = server.requests
        assert (first.seen.model, second.seen.model) == (fault, "healthy.b")
        assert second.at - first.at > 1.4


@pytest.mark.parametrize("kind", ["openai-chat", "ollama"])
async def test_an_answer_that_was_broken_off_is_no_answer(kind: str) -> None:
    """Whatever is billed for it, the caller gets the answer of the next target."""
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "ended.error", "healthy.b", kind=kind, pool={"retries": 0}) as engine,
    ):
        for ask in (whole, streamed):
            got = await ask(engine)
            assert (got.text, got.error) == (WHOLE, None)
            assert got.result is not None
            assert got.result.metadata.provider == "second"
            assert got.result.metadata.attempts == 2
