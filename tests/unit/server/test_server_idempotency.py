"""`Idempotency-Key`: one call, one bill, one answer, however often it is asked for."""

import asyncio
import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.config.settings import Config
from penstock.contract.errors import (
    ContentRejected,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import ProviderStream
from penstock.engine.engine import Engine
from penstock.server.idempotency import keys
from penstock.server.idempotency.stored_answers import (
    LEASE_S,
    AnswerLimits,
    AnswerStore,
    StoredAnswer,
)
from penstock.testing import FakeProvider, FakeReply
from tests.support.clock import ManualClock
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until

SAID = {"role": "user", "content": "Hi there"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [SAID], "max_tokens": 20},
    "/v1/responses": {"input": "Hi there", "max_output_tokens": 20},
    "/v1/messages": {"messages": [SAID], "max_tokens": 20, "model": "default"},
    "/v1/sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi there"}}],
        "maxTokens": 20,
    },
}
EMBEDDINGS = "/v1/embeddings"
REPLAYED = "idempotency-replayed"


class HeldProvider(FakeProvider):
    """Answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.calls = 0

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        self.calls += 1
        await self.go.wait()
        async for batch in super().stream(model, request):
            yield batch


@asynccontextmanager
async def serving(fake: FakeProvider, **sections: Any) -> AsyncGenerator[Gateway]:
    config = Config.model_validate(
        {
            "providers": {"fake": {}},
            "pool": {"retries": 0},
            "models": {"default": {"targets": ["fake/echo"]}},
            **sections,
        }
    )
    engine = Engine(config, model_files=False, keep_books=True)
    engine.use(fake)
    async with running_gateway(engine) as gateway:
        yield gateway


async def post(
    gateway: Gateway, path: str = CHAT, key: str = "k1", **fields: Any
) -> httpx.Response:
    body = {**BODIES.get(path, {}), **fields}
    return await gateway.client.post(path, json=body, headers={"idempotency-key": key})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_a_repeated_request_gets_the_same_bytes_and_costs_nothing(
    path: str, stream: bool
) -> None:
    fake = FakeProvider()
    async with serving(fake) as gateway:
        first = await post(gateway, path, stream=stream)
        again = await post(gateway, path, stream=stream)
        assert (first.status_code, again.status_code) == (200, 200), first.text
        assert first.content == again.content
        assert len(fake.requests) == 1
        assert (first.headers[REPLAYED], again.headers[REPLAYED]) == ("false", "true")
        for name in ("content-type", "x-request-id", "x-penstock-provider", "x-penstock-model"):
            assert first.headers[name] == again.headers[name]
        total = (await (await gateway.engine.ledger()).usage())[0]
        assert total.requests == 1


async def test_embeddings_are_stored_too() -> None:
    async with serving(FakeProvider()) as gateway:
        body: dict[str, Any] = {"input": ["one"], "model": "default"}
        first = await post(gateway, EMBEDDINGS, **body)
        again = await post(gateway, EMBEDDINGS, **body)
        assert first.status_code == 200
        assert first.content == again.content
        assert again.headers[REPLAYED] == "true"


async def test_without_the_header_nothing_is_stored() -> None:
    fake = FakeProvider()
    async with serving(fake) as gateway:
        for _ in range(2):
            answer = await gateway.chat("Hi")
            assert REPLAYED not in answer.headers
        assert len(fake.requests) == 2
        assert not AnswerStore.beside(gateway.engine.config.storage.path).exists()


async def test_the_file_is_private_and_next_to_the_ledger() -> None:
    async with serving(FakeProvider()) as gateway:
        await post(gateway)
        ledger = gateway.engine.config.storage.path
        file = ledger.with_name("penstock-answers.db")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("path", [*BODIES, EMBEDDINGS])
async def test_another_request_with_the_same_key_is_refused_in_the_words_of_the_endpoint(
    path: str,
) -> None:
    fake = FakeProvider()
    embeds = path == EMBEDDINGS
    one: dict[str, Any] = {"input": ["a"], "model": "default"} if embeds else {}
    two: dict[str, Any] = {"input": ["b"], "model": "default"} if embeds else {"temperature": 0.5}
    async with serving(fake) as gateway:
        await post(gateway, path, **one)
        other = await post(gateway, path, **two)
        assert other.status_code == 422
        document = other.json()
        if path == "/v1/messages":
            assert document["type"] == "error"
            assert document["error"]["type"] == "invalid_request_error"
            assert "Idempotency-Key" in document["error"]["message"]
        elif path == "/v1/sampling/createMessage":
            assert document["error"]["data"]["reason"] == "idempotency_key_reused"
        else:
            assert document["error"]["code"] == "idempotency_key_reused"
            assert document["error"]["param"] == "Idempotency-Key"
        assert len(fake.requests) <= 1


async def test_the_same_body_with_another_adaptation_is_another_request() -> None:
    async with serving(FakeProvider()) as gateway:
        await post(gateway)
        headers = {"idempotency-key": "k1", "x-penstock-adapt": "refuse"}
        again = await gateway.client.post(CHAT, json=BODIES[CHAT], headers=headers)
        assert again.status_code == 422
        assert (await post(gateway)).headers[REPLAYED] == "true"


async def test_the_same_body_at_another_endpoint_is_another_request() -> None:
    async with serving(FakeProvider()) as gateway:
        body: dict[str, Any] = {"messages": [SAID], "max_tokens": 20, "model": "default"}
        await post(gateway, CHAT, **body)
        assert (await post(gateway, "/v1/messages", **body)).status_code == 422


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "\u00e4"])
async def test_a_key_that_is_none_is_refused(key: str) -> None:
    fake = FakeProvider()
    async with serving(fake) as gateway:
        headers = [(b"idempotency-key", key.encode("latin-1"))]
        answer = await gateway.client.post(CHAT, json=chat_body("Hi"), headers=headers)
        assert answer.status_code == 400
        assert "1 to 255" in answer.json()["error"]["message"]
        assert not fake.requests


async def test_a_long_key_is_a_key() -> None:
    async with serving(FakeProvider()) as gateway:
        assert (await post(gateway, key="x" * 255)).status_code == 200
        assert (await post(gateway, key="x" * 255)).headers[REPLAYED] == "true"


@pytest.mark.parametrize(
    ("error", "status"),
    [(ProviderUnavailable("down"), 502), (RateLimited("slow down"), 429)],
)
async def test_failures_are_not_stored(error: PenstockError, status: int) -> None:
    fake = FakeProvider([error])
    async with serving(fake) as gateway:
        assert (await post(gateway)).status_code == status
        again = await post(gateway)
        assert (again.status_code, again.headers[REPLAYED]) == (200, "false")
        assert len(fake.requests) == 2


async def test_a_stream_that_breaks_is_not_stored() -> None:
    fake = FakeProvider([FakeReply(text="one two", error=ProviderUnavailable("gone"))])
    async with serving(fake, pool={"retries": 0, "mid_stream": "error"}) as gateway:
        first = await post(gateway, stream=True)
        assert first.status_code == 200
        assert "gone" in first.text
        assert "[DONE]" not in first.text
        again = await post(gateway, stream=True)
        assert "[DONE]" in again.text
        assert again.headers[REPLAYED] == "false"


async def test_a_rejected_answer_is_stored_because_it_was_billed() -> None:
    fake = FakeProvider([ContentRejected("no such words")])
    async with serving(fake) as gateway:
        first = await post(gateway)
        again = await post(gateway)
        assert (first.status_code, again.status_code) == (400, 400)
        assert first.content == again.content
        assert again.headers[REPLAYED] == "true"
        assert len(fake.requests) == 1


async def test_a_duplicate_waits_for_the_first_request() -> None:
    fake = HeldProvider()
    async with serving(fake) as gateway:
        first = asyncio.create_task(post(gateway))
        await until(lambda: fake.calls)
        others = [asyncio.create_task(post(gateway)) for _ in range(5)]
        await asyncio.sleep(0)
        fake.go.set()
        answers = [await each for each in (first, *others)]
        assert len({answer.content for answer in answers}) == 1
        assert fake.calls == 1


async def test_a_duplicate_that_has_waited_long_enough_gets_409(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "WAIT_S", 0.0)
    fake = HeldProvider()
    async with serving(fake) as gateway:
        first = asyncio.create_task(post(gateway))
        await until(lambda: fake.calls)
        other = await post(gateway)
        assert other.status_code == 409
        assert other.json()["error"]["code"] == "idempotency_in_flight"
        assert other.headers["retry-after"] == "2"
        fake.go.set()
        assert (await first).status_code == 200
        assert fake.calls == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_goes_on_when_its_client_goes_away(stream: bool) -> None:
    fake = HeldProvider()
    async with serving(fake) as gateway:
        first = asyncio.create_task(post(gateway, stream=stream))
        await until(lambda: fake.calls)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = asyncio.create_task(post(gateway, stream=stream))
        fake.go.set()
        answer = await again
        assert answer.status_code == 200
        assert "Hi there" in answer.text or '"there"' in answer.text
        assert fake.calls == 1


async def test_a_cancelled_request_is_not_stored() -> None:
    fake = HeldProvider()
    async with serving(fake) as gateway:
        headers = {"idempotency-key": "k1", "x-request-id": "mine"}
        path = "/v1/sampling/createMessage"
        first = asyncio.create_task(gateway.client.post(path, json=BODIES[path], headers=headers))
        await until(lambda: fake.calls)
        assert (await gateway.client.delete("/v1/requests/mine")).status_code == 204
        assert (await first).status_code == 499
        fake.go.set()
        again = await gateway.client.post(path, json=BODIES[path], headers=headers)
        assert (again.status_code, again.headers[REPLAYED]) == (200, "false")


async def test_keys_of_callers_are_apart() -> None:
    fake = FakeProvider()
    engine, texts = keyed_engine(fake, one={}, two={})
    async with running_gateway(engine) as gateway:
        for name in texts:
            headers = {**bearer(texts[name]), "idempotency-key": "same"}
            answer = await gateway.client.post(CHAT, json=chat_body("Hi"), headers=headers)
            assert answer.headers[REPLAYED] == "false"
        assert len(fake.requests) == 2


async def test_the_limits_in_a_replay_are_those_of_the_moment() -> None:
    engine, texts = keyed_engine(FakeProvider(), one={"requests_per_minute": 9})
    async with running_gateway(engine) as gateway:
        headers = {**bearer(texts["one"]), "idempotency-key": "same"}
        left: list[str] = []
        for _ in range(2):
            answer = await gateway.client.post(CHAT, json=chat_body("Hi"), headers=headers)
            left.append(answer.headers["x-ratelimit-remaining-requests"])
        assert left == ["8", "7"]


async def test_an_answer_that_is_too_large_is_given_once_and_then_refused() -> None:
    fake = FakeProvider()
    async with serving(fake, limits={"max_idempotency_bytes": 50}) as gateway:
        assert (await post(gateway)).status_code == 200
        again = await post(gateway)
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "idempotency_answer_too_large"
        assert again.headers["x-should-retry"] == "false"
        assert len(fake.requests) == 1


async def test_it_can_be_switched_off() -> None:
    fake = FakeProvider()
    async with serving(fake, server={"idempotency_ttl_s": 0}) as gateway:
        for _ in range(2):
            assert REPLAYED not in (await post(gateway)).headers
        assert len(fake.requests) == 2


async def test_a_file_that_cannot_be_used_refuses_before_anything_is_paid() -> None:
    fake = FakeProvider()
    async with serving(fake) as gateway:
        file = AnswerStore.beside(gateway.engine.config.storage.path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("this is no database " * 100)
        answer = await post(gateway)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "storage_unavailable"
        assert not fake.requests
        # Whoever does not ask for it is served.
        assert (await gateway.chat("Hi")).status_code == 200


async def test_a_restart_keeps_the_answers() -> None:
    for number in range(2):
        fake = FakeProvider()
        async with serving(fake) as gateway:
            answer = await post(gateway)
            assert answer.headers[REPLAYED] == ("true" if number else "false")
            assert len(fake.requests) == 1 - number


async def test_a_request_that_was_cut_by_a_shutdown_is_made_again() -> None:
    held = HeldProvider()
    async with serving(held) as gateway:
        first = asyncio.create_task(post(gateway))
        await until(lambda: held.calls)
        gateway.server.stop()
        gateway.server.stop()
        assert (await first).status_code == 503
    async with serving(FakeProvider()) as gateway:
        # The claim was given up, so that nobody waits for the end of its lease.
        again = await post(gateway)
        assert (again.status_code, again.headers[REPLAYED]) == (200, "false")


# -- the file


def a_store(path: Path, clock: ManualClock | None = None, **limits: Any) -> AnswerStore:
    return AnswerStore(path / "answers.db", AnswerLimits(**limits), clock or ManualClock())


ANSWER = StoredAnswer(200, [("a", "b")], b"words")


async def test_a_claim_of_a_process_that_died_ends_with_its_lease(tmp_path: Path) -> None:
    clock = ManualClock()
    dead, heir = a_store(tmp_path, clock), a_store(tmp_path, clock)
    try:
        assert (await dead.claim("s", "k", b"f")).verdict == "mine"
        assert (await heir.claim("s", "k", b"f")).verdict == "running"
        clock.now += LEASE_S + 1
        assert (await heir.claim("s", "k", b"f")).verdict == "mine"
        # What comes too late does not replace the new claim.
        await dead.complete("s", "k", ANSWER)
        assert (await dead.claim("s", "k", b"f")).verdict == "running"
        await heir.complete("s", "k", ANSWER)
        assert (await dead.claim("s", "k", b"f")).answer == ANSWER
    finally:
        await dead.aclose()
        await heir.aclose()


async def test_answers_are_deleted_when_their_time_is_over(tmp_path: Path) -> None:
    clock = ManualClock()
    store = a_store(tmp_path, clock, ttl_s=100)
    try:
        await store.claim("s", "k", b"f")
        await store.complete("s", "k", ANSWER)
        clock.now += 99
        assert (await store.claim("s", "k", b"f")).verdict == "done"
        clock.now += 2
        assert (await store.claim("s", "k", b"other")).verdict == "mine"
    finally:
        await store.aclose()


@pytest.mark.parametrize(
    "limits",
    [
        {"max_answers_per_key": 3},
        {"max_answers": 3},
        {"max_total_bytes": 3 * len(ANSWER.body)},
    ],
)
async def test_the_oldest_answers_make_room(tmp_path: Path, limits: dict[str, int]) -> None:
    clock = ManualClock()
    store = a_store(tmp_path, clock, **limits)
    try:
        await store.claim("s", "runs", b"f")
        for number in range(10):
            clock.now += 0.1
            await store.claim("s", str(number), b"f")
            await store.complete("s", str(number), ANSWER)
        rows = sqlite3.connect(store.path).execute("SELECT state, size FROM answers").fetchall()
        assert len(rows) <= 4
        assert sum(size for _, size in rows) <= 3 * len(ANSWER.body)
        # What runs is never deleted.
        assert (await store.claim("s", "runs", b"f")).verdict == "running"
        assert (await store.claim("s", "9", b"f")).verdict == "done"
    finally:
        await store.aclose()


async def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    try:
        await store.claim("s", "k", b"f")
        store.path.unlink()
        assert (await store.claim("s", "k", b"f")).verdict == "mine"
    finally:
        await store.aclose()
