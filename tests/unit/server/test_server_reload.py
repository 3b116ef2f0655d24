"""A gateway whose configuration changes while it serves."""

import asyncio
import json
import logging
import os
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.server.http.listening import Certificates
from penstock.server.process.reload import Reloader
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import bearer
from tests.support.tls import Authority, make_authority
from tests.unit.cli.harness import started_penstock
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until
from tests.unit.server.sampling_support import socket_of

FIRST = '[providers.fake]\n[models.first]\ntargets = ["fake/echo"]\n'
SECOND = '[providers.fake]\n[models.second]\ntargets = ["fake/echo"]\n'


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"))


async def names(gateway: Gateway, **headers: str) -> list[str]:
    answer = await gateway.client.get("/v1/models", headers=headers)
    return [each["id"] for each in answer.json()["data"] if "/" not in each["id"]]


class Reloading:
    """A gateway of a file, and what reloads it."""

    def __init__(self, gateway: Gateway, file: Path, certificates: Certificates | None) -> None:
        self.gateway = gateway
        self.file = file
        self.reloader = Reloader(
            gateway.engine.config, (file,), lambda: load(file), gateway.app.change, certificates
        )

    async def write(self, text: str) -> None:
        self.file.write_text(text)
        await self.reloader.reload()


def engine_of(file: Path) -> Engine:
    return Engine(load(file), keep_books=True)


async def test_a_change_takes_effect(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    async with running_gateway(engine_of(file)) as gateway:
        reloading = Reloading(gateway, file, None)
        assert await names(gateway) == ["first"]
        await reloading.write(SECOND)
        assert await names(gateway) == ["second"]
        answer = await gateway.client.post(CHAT, json=chat_body("Hi", model="second"))
        assert answer.status_code == 200, answer.text
        assert (await gateway.chat("Hi", model="first")).status_code == 404
        metrics = (await gateway.client.get("/metrics")).text
        assert 'model="second"' in metrics


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.first]\ntargets = nothing\n", "line 2"),
        ('[models.first]\ntargets = ["nobody/x"]\n', "nobody"),
        (f'{SECOND}[storage]\nurl = "sqlite:////proc/none/x.db"\n', "storage.url"),
    ],
)
async def test_a_file_of_no_use_is_refused_and_what_runs_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    async with running_gateway(engine_of(file)) as gateway:
        reloading = Reloading(gateway, file, None)
        await reloading.write(text)
        assert await names(gateway) == ["first"]
        assert (await gateway.chat("Hi", model="first")).status_code == 200
        (record,) = [each for each in caplog.records if each.name == "penstock.server"]
        assert record.levelno == logging.ERROR
        assert said in record.getMessage()
        await reloading.write(SECOND)
        assert await names(gateway) == ["second"]


async def test_keys_limits_and_pages_change(tmp_path: Path) -> None:
    file, text = tmp_path / "penstock.toml", new_text()
    file.write_text(FIRST)
    async with running_gateway(engine_of(file)) as gateway:
        reloading = Reloading(gateway, file, None)
        assert await names(gateway) == ["first"]
        await reloading.write(
            f'{FIRST}[keys.ci]\nhash = "{hash_of(text)}"\nrequests_per_minute = 1\n'
            '[limits]\nmax_request_bytes = 500\n[server]\ncors_origins = ["https://a.example"]\n'
            'admin_key = "admin-admin-admin-admin"\n'
        )
        assert (await gateway.client.get("/v1/models")).status_code == 401
        assert await names(gateway, **bearer(text)) == ["first"]
        large = await gateway.client.post(
            CHAT, json=chat_body("x" * 600, model="first"), headers=bearer(text)
        )
        assert large.status_code == 413
        again = await gateway.client.post(CHAT, json=chat_body("Hi"), headers=bearer(text))
        assert again.status_code == 429
        page = await gateway.client.get(
            "/v1/models", headers={**bearer(text), "origin": "https://a.example"}
        )
        assert page.headers["access-control-allow-origin"] == "https://a.example"
        # What the key has used stays used, with another limit, too.
        await reloading.write(
            f'{FIRST}[keys.ci]\nhash = "{hash_of(text)}"\nrequests_per_minute = 3\n'
        )
        left = [
            await gateway.client.post(CHAT, json=chat_body("Hi"), headers=bearer(text))
            for _ in range(3)
        ]
        assert [each.status_code for each in left] == [200, 200, 429]


@pytest.mark.parametrize("pool", ["", "[pool]\nconnect_timeout_s = 3.0\n"])
async def test_a_stream_goes_on_through_a_reload(tmp_path: Path, pool: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    engine = engine_of(file)
    engine.use(FakeProvider([FakeReply(text="one two three four", delay_s=0.05)]))
    async with running_gateway(engine) as gateway:
        reloading = Reloading(gateway, file, None)
        body = chat_body("Hi", model="first", stream=True)
        async with gateway.client.stream("POST", CHAT, json=body) as answer:
            lines = answer.aiter_lines()
            read = [await anext(lines)]
            await reloading.write(SECOND + pool)
            assert await names(gateway) == ["second"]
            read += [line async for line in lines]
        assert read[-2] == "data: [DONE]"
        text = "".join(
            choice["delta"].get("content") or ""
            for line in read
            if line.startswith("data: {")
            for choice in json.loads(line.removeprefix("data: "))["choices"]
        )
        assert text == "one two three four"


async def test_a_request_that_comes_slowly_is_answered_through_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    async with running_gateway(engine_of(file)) as gateway:
        reloading = Reloading(gateway, file, None)
        body = json.dumps(chat_body("Hi", model="first")).encode()
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:10])
        await until(lambda: gateway.server.running_requests == 1)
        await reloading.write(SECOND)
        # Asked and answered by the new one: the old one had time to close.
        assert (await gateway.chat("Hi", model="second")).status_code == 200
        writer.write(body[10:])
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200"), answer


async def test_a_websocket_goes_on_with_the_new_configuration(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    async with running_gateway(engine_of(file)) as gateway, socket_of(gateway) as socket:
        reloading = Reloading(gateway, file, None)
        await socket.ask(1, "one", model="first")
        assert (await socket.end(1))["type"] == "complete"
        await reloading.write(f"{SECOND}[limits]\nmax_temperature = 0.5\n")
        await socket.ask(2, "two", model="second")
        assert (await socket.end(2))["type"] == "complete"
        assert socket.text(2) == "two"
        await socket.ask(3, "three", model="first")
        assert (await socket.end(3))["type"] == "error"


async def test_what_cannot_change_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    caplog.set_level(logging.INFO, "penstock.server")
    async with running_gateway(engine_of(file)) as gateway:
        reloading = Reloading(gateway, file, None)
        telemetry = '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\n'
        await reloading.write(f"{FIRST}[server]\nport = 9\ngrace_s = 3.0\n{telemetry}")
        said = [each.getMessage() for each in caplog.records if each.name == "penstock.server"]
        assert said == [
            f"reloaded {file}: server, telemetry",
            "server.port, server.grace_s, telemetry: takes effect after a restart of the gateway",
        ]
        caplog.clear()
        await reloading.reloader.reload()
        (again,) = [each.getMessage() for each in caplog.records if each.name == "penstock.server"]
        assert again == f"{file}: no changes"


async def test_it_watches_the_file_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.process.reload.LOOK_S", 0.01)
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    applied: list[Config] = []

    async def apply(config: Config) -> None:
        applied.append(config)

    reloader = Reloader(load(file), (file,), lambda: load(file), apply)
    watching = asyncio.create_task(reloader.run())
    try:
        await asyncio.sleep(0)
        other = tmp_path / "new"
        other.write_text(SECOND)
        # As many editors do it: a new file takes the place of the old one.
        other.replace(file)
        await until(lambda: len(applied) == 1)
        assert list(applied[0].models) == ["second"]
        file.unlink()
        file.write_text(FIRST)
        await until(lambda: len(applied) == 2)
    finally:
        watching.cancel()


def test_sighup_reloads_a_running_process(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(FIRST)
    with started_penstock("serve", "--port", "0", cwd=tmp_path) as process:
        url = _url(process.stdout.readline if process.stdout else bytes)
        assert _models(url) == ["first"]
        (tmp_path / "penstock.toml").write_text(SECOND)
        os.kill(process.pid, signal.SIGHUP)
        while _models(url) != ["second"]:
            assert process.poll() is None
        (tmp_path / "penstock.toml").write_text("[models.x\n")
        os.kill(process.pid, signal.SIGHUP)
        assert process.stderr is not None
        while b"not reloaded" not in (line := process.stderr.readline()):
            assert line
        assert b"line 1" in line
        assert _models(url) == ["second"]


def _url(read: Callable[[], bytes]) -> str:
    url = ""
    while line := read().decode():
        if "http://127.0.0.1:" in line and not url:
            url = line[line.index("http://") :].split()[0].rstrip(",")
        if "Ctrl-C stops" in line:
            break
    assert url
    return url


def _models(url: str) -> list[str]:
    found = httpx.get(f"{url}/v1/models", timeout=30).json()["data"]
    return [each["id"] for each in found if "/" not in each["id"]]


# -- TLS


async def test_https(tmp_path: Path, authority: Authority) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(FIRST)
    certificates = Certificates(authority.server_file())
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with running_gateway(engine_of(file), tls=certificates.context) as gateway:
        url = f"https://{gateway.host}:{gateway.port}"
        async with httpx.AsyncClient(verify=trust, base_url=url, timeout=30) as client:
            answer = await client.post(CHAT, json=chat_body("Hi", model="first"))
            assert answer.json()["choices"][0]["message"]["content"] == "Hi"
        first = await _serial(gateway, trust)
        authority.server_file()
        certificates.reload()
        assert await _serial(gateway, trust) != first
        renewed = await _serial(gateway, trust)
        certificates.files[0].write_text("no certificate")
        with pytest.raises(ConfigurationError, match=r"server\.tls_certificate"):
            certificates.reload()
        assert await _serial(gateway, trust) == renewed
        with pytest.raises(httpx.RemoteProtocolError):
            await gateway.client.get("/health")


async def _serial(gateway: Gateway, trust: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection(gateway.host, gateway.port, ssl=trust)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return certificate["serialNumber"]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), ("nonsense", "cannot be used")]
)
def test_a_certificate_of_no_use(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "tls.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=said) as refused:
        Certificates(path)
    assert "server.tls_certificate" in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_key_of_another_certificate(tmp_path: Path, authority: Authority) -> None:
    first = authority.server_file("127.0.0.1").rename(tmp_path / "first.pem")
    second = authority.server_file("127.0.0.1")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        Certificates(first, second)


# -- CORS


async def test_pages_of_other_sites_are_kept_out_by_default(gateway: Gateway) -> None:
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    answer = await gateway.client.options(CHAT, headers=asked)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origins", [["https://a.example"], ["*"]])
async def test_a_page_that_may_call(origins: list[str]) -> None:
    config = Config.model_validate(
        {
            "server": {"cors_origins": origins},
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/echo"]}},
        }
    )
    async with running_gateway(Engine(config)) as gateway:
        origin = {"origin": "https://a.example"}
        asked = {
            **origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        }
        answer = await gateway.client.options(CHAT, headers=asked)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
        answer = await gateway.client.post(CHAT, json=chat_body("Hi"), headers=origin)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        refused = await gateway.client.post(
            CHAT, json=chat_body("Hi"), headers={"origin": "https://b.example"}
        )
        assert refused.status_code == (200 if origins == ["*"] else 403)
        allowed = refused.headers.get("access-control-allow-origin")
        assert allowed == ("https://b.example" if origins == ["*"] else None)
