"""An id that a caller chooses names a request of its own key, and of no other."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from penstock.telemetry.exporters.prometheus import PrometheusMetrics
from penstock.telemetry.recent import RecentRequests
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import ADMIN, bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway, until
from tests.unit.server.sampling_support import CREATE, SOCKET, params
from tests.unit.server.test_server_workers import fleet

SLOW = FakeReply(text="a b c", delay_s=60)
QUICK = FakeReply(text="ok")
SAME = "my-request"
FEEDBACK = "/v1/feedback"


async def sample(gateway: Gateway, key: str) -> httpx.Response:
    headers = {**bearer(key), "x-request-id": SAME}
    return await gateway.client.post(CREATE, json=params(model="default"), headers=headers)


async def test_two_keys_use_the_same_id_at_once() -> None:
    fake = FakeProvider([SLOW, QUICK, SLOW])
    engine, texts = keyed_engine(fake, one={}, two={})
    metrics, recent = PrometheusMetrics(), RecentRequests()
    engine.hooks.subscribe(metrics)
    engine.hooks.subscribe(recent)
    async with running_gateway(engine) as gateway:
        mine = asyncio.create_task(sample(gateway, texts["one"]))
        await until(lambda: len(fake.requests) == 1)
        theirs = await sample(gateway, texts["two"])
        assert (theirs.status_code, theirs.headers["x-request-id"]) == (200, SAME)
        # What has ended was the other's: mine still runs, and is listed and counted.
        assert [each.begun.key for each in recent.running()] == ["one"]
        assert b'in_progress{operation="chat"} 1.0' in metrics.exposition()[0]
        listed = await requests_of(gateway)
        assert {(each["key"], each["state"]) for each in listed} == {
            ("one", "running"),
            ("two", "ended"),
        }
        stop = f"/v1/requests/{SAME}"
        assert (await gateway.client.delete(stop, headers=bearer(texts["two"]))).status_code == 404
        assert not mine.done()
        again = await sample(gateway, texts["one"])
        assert again.status_code == 400
        assert "still runs" in again.text
        assert (await gateway.client.delete(stop, headers=bearer(texts["one"]))).status_code == 204
        assert (await mine).status_code == 499


async def requests_of(gateway: Gateway) -> list[dict[str, Any]]:
    answer = await gateway.client.get("/admin/v1/requests", headers=bearer(ADMIN))
    return [each for each in answer.json()["requests"] if each["request_id"] == SAME]


async def test_an_administrator_chooses_among_keys_with_the_same_id() -> None:
    fake = FakeProvider([SLOW, SLOW, QUICK])
    engine, texts = keyed_engine(fake, one={}, two={})
    async with running_gateway(engine) as gateway:
        running = {
            name: asyncio.create_task(sample(gateway, texts[name])) for name in ("one", "two")
        }
        await until(lambda: len(fake.requests) == 2)
        path, admin = f"/admin/v1/requests/{SAME}", bearer(ADMIN)
        for name in running:
            found = await gateway.client.get(f"{path}?key={name}", headers=admin)
            assert found.json()["key"] == name
        assert (await gateway.client.get(f"{path}?key=three", headers=admin)).status_code == 404
        assert (await gateway.client.delete(f"{path}?key=two", headers=admin)).status_code == 204
        assert (await running["two"]).status_code == 499
        assert not running["one"].done()
        assert (await gateway.client.delete(path, headers=admin)).status_code == 204
        assert (await running["one"]).status_code == 499


async def test_a_socket_cancels_no_request_of_another_key() -> None:
    fake = FakeProvider([SLOW, SLOW])
    engine, texts = keyed_engine(fake, one={}, two={})
    async with running_gateway(engine) as gateway:
        mine = asyncio.create_task(sample(gateway, texts["one"]))
        await until(lambda: len(fake.requests) == 1)
        address = gateway.url.replace("http", "ws") + SOCKET
        async with connect(address, additional_headers=bearer(texts["two"])) as client:
            asked = {"id": 1, "requestId": SAME, "params": params(model="default")}
            await client.send(json.dumps({"type": "createMessage", **asked}))
            await until(lambda: len(fake.requests) == 2)
            await client.send(json.dumps({"type": "cancel", "id": 1}))
            assert json.loads(await client.recv())["type"] == "cancelled"
        assert not mine.done()
        assert await engine.cancel_request(SAME, key="one")
        assert (await mine).status_code == 499


async def test_feedback_reaches_only_the_answer_of_its_own_key(tmp_path: Path) -> None:
    texts = {name: new_text() for name in ("one", "two", "three")}
    config = Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/a", "fake/b"], "routing": "learned"}},
            "storage": {"url": f"sqlite:///{tmp_path / 'p.db'}"},
            "keys": {name: {"hash": hash_of(text)} for name, text in texts.items()},
        }
    )
    async with running_gateway(Engine(config)) as gateway:
        for name in ("one", "two"):
            assert (await sample(gateway, texts[name])).status_code == 200
        said = {"request_id": SAME, "score": 0.25}
        rated = await gateway.client.post(FEEDBACK, json=said, headers=bearer(texts["one"]))
        assert rated.status_code == 204
        # A chosen id can be guessed, and says nothing to a key that has no such request.
        rated = await gateway.client.post(FEEDBACK, json=said, headers=bearer(texts["three"]))
        assert rated.status_code == 404
        assert gateway.engine.learning is not None
        await gateway.engine.learning.catch_up()
        found = SqliteOutcomes(tmp_path / "p.db").find(SAME)
        assert {each.served.key: len(each.labels) for each in found} == {"one": 1, "two": 0}


class _Silent:
    """An upstream that takes requests and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []
        self._arrived = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._accept)

    def _accept(self) -> None:
        while True:
            try:
                self._held.append(self._listener.accept()[0])
            except OSError:
                return
            self._arrived.release()

    def wait(self, number: int) -> None:
        """Until so many more requests have come."""
        for _ in range(number):
            assert self._arrived.acquire(timeout=30)

    def __enter__(self) -> _Silent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for each in self._held:
            each.close()


def test_a_request_is_found_and_stopped_in_whichever_worker_it_runs(tmp_path: Path) -> None:
    texts = {name: new_text() for name in ("one", "two")}
    hashes = "".join(f'[keys.{name}]\nhash = "{hash_of(text)}"\n' for name, text in texts.items())
    ids = [f"mine-{number}" for number in range(8)]
    with _Silent() as upstream, ThreadPoolExecutor(len(ids)) as threads:
        more = f"""[server]
admin_key = "{ADMIN}"
[providers.up]
kind = "openai-chat"
url = "http://127.0.0.1:{upstream.port}/v1"
auth_token = "x"
[models.slow]
targets = ["up/m"]
prices."up/m" = {{ input = 1.0, output = 1.0 }}
{hashes}"""
        with fleet(tmp_path, more) as gateway:

            def ask(request_id: str) -> int:
                headers = {**bearer(texts["one"]), "x-request-id": request_id}
                body = params(model="slow")
                url = gateway.url + CREATE
                return httpx.post(url, json=body, headers=headers, timeout=60).status_code

            # Each call comes on a connection of its own, which any worker may take.
            asked = [threads.submit(ask, each) for each in ids]
            upstream.wait(len(ids))
            admin, one, two = bearer(ADMIN), bearer(texts["one"]), bearer(texts["two"])
            for number, each in enumerate(ids):
                own, theirs = f"{gateway.url}/v1/requests/{each}", f"/admin/v1/requests/{each}"
                assert httpx.delete(own, headers=two, timeout=30).status_code == 404
                found = httpx.get(gateway.url + theirs, headers=admin, timeout=30)
                assert (found.status_code, found.json()["state"]) == (200, "running")
                if number % 2:
                    stopped = httpx.delete(own, headers=one, timeout=30)
                else:
                    stopped = httpx.delete(gateway.url + theirs, headers=admin, timeout=30)
                assert stopped.status_code == 204
            assert [each.result() for each in asked] == [499] * len(ids)
            assert gateway.stop() == 0
