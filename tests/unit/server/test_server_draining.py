"""SIGTERM with `drain_s`: `/ready` answers 503 while requests are still answered."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import pytest

from penstock.config.server import ServerConfig
from tests.unit.server.test_server_process import Served, served
from tests.unit.server.test_server_workers import fleet

FAKE = '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n[server]\ndrain_s = {}\n'


def ready(url: str) -> int:
    return httpx.get(f"{url}/ready", timeout=30).status_code


def ask(gateway: Served) -> str:
    messages = [{"role": "user", "content": "Hello"}]
    answer = gateway.post("/v1/chat/completions", messages=messages, max_tokens=9)
    return answer["choices"][0]["message"]["content"]


def test_it_is_unready_and_answers_until_the_drain_is_over(tmp_path: Path) -> None:
    with served(tmp_path, FAKE.format(600)) as gateway:
        assert ready(gateway.url) == 200
        gateway.process.send_signal(signal.SIGTERM)
        gateway.read_until("Draining: /ready answers 503 for 600 s")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{gateway.url}/ready", timeout=30)
        assert caught.value.code == 503
        assert "the gateway stops soon" in json.load(caught.value)["problems"][0]
        assert ask(gateway) == "Hello"
        gateway.process.send_signal(signal.SIGTERM)
        code, out, err = gateway.finish()
    assert (code, "Stopped." in out, err) == (0, True, "")


def test_it_stops_by_itself_when_the_drain_is_over(tmp_path: Path) -> None:
    with served(tmp_path, FAKE.format(0.5)) as gateway:
        gateway.process.send_signal(signal.SIGTERM)
        code, out, err = gateway.finish()
    assert (code, "Draining" in out, "Cutting" in out, err) == (0, True, False, "")


def test_an_interrupt_stops_at_once(tmp_path: Path) -> None:
    with served(tmp_path, FAKE.format(600)) as gateway:
        gateway.process.send_signal(signal.SIGINT)
        code, out, _ = gateway.finish()
        assert (code, "Draining" in out) == (0, False)


def test_all_workers_are_unready(tmp_path: Path) -> None:
    with fleet(tmp_path, "[server]\ndrain_s = 600\n") as gateway:
        gateway.process.send_signal(signal.SIGTERM)
        in_a_row, deadline = 0, time.monotonic() + 60
        # Each connection may reach another worker: twenty in a row are of both.
        while in_a_row < 20:
            in_a_row = in_a_row + 1 if ready(gateway.url) == 503 else 0
            assert time.monotonic() < deadline
        assert gateway.ask().status_code == 200
        assert gateway.stop() == 0


def test_the_variable_of_the_container_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ServerConfig().drain_s == 0
    monkeypatch.setenv("PENSTOCK_DRAIN_S", "2.5")
    assert ServerConfig().drain_s == 2.5
    assert ServerConfig(drain_s=0).drain_s == 0
    monkeypatch.setenv("PENSTOCK_DRAIN_S", "soon")
    with pytest.raises(ValueError, match="PENSTOCK_DRAIN_S is 'soon'"):
        ServerConfig()
