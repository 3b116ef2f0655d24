"""No secret is in a log, an error, a repr or a trace: every kind of provider, every way to fail."""

from __future__ import annotations

import asyncio
import base64
import copy
import dataclasses
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import penstock
from penstock import Config, Engine, PenstockError
from penstock.config.settings import PoolConfig, ProviderConfig
from penstock.providers.credentials import Secret
from penstock.providers.registry import BUILT_IN, ProviderSettings
from tests.security import echo
from tests.support.raw import HOST, Peer, RawServer, unused_port
from tests.support.tls import Authority, make_authority

# What headers allow, and what JSON, URLs and shells write otherwise.
KEY = 'Zq7/auth+token="4\\1%41'
HEADER = "Wv9/header+value=28&x"
ENVIRONMENT = "Jk5/variable+key=93?y"
AWS_SECRET = "Xb2/aws+secret+access/key00"
AWS_SESSION = "Pm6/aws+session+token/11=="
AWS_BEARER = "Rt4/aws+bearer+token/22"
SECRETS = (KEY, HEADER, ENVIRONMENT, AWS_SECRET, AWS_SESSION, AWS_BEARER)
SIGNED = "bedrock, signed"
DIALECTS = [
    *{kind.dialect: name for name, kind in BUILT_IN.items() if kind.dialect}.values(),
    SIGNED,
]
WIRED = [*(name for name, kind in BUILT_IN.items() if kind.dialect), SIGNED]
HALF = 12
"""So much of a secret's beginning gives it away."""


def traces(secret: str) -> Iterator[str]:
    """The forms in which it must not be found."""
    yield secret[:HALF]
    yield secret[-HALF:]
    yield quote(secret, safe="")
    yield json.dumps(secret)[1:-1]
    yield base64.b64encode(secret.encode()).decode().rstrip("=")


def clean(text: str, where: str) -> None:
    for secret in SECRETS:
        for trace in traces(secret):
            assert trace not in text, f"{trace!r} of {secret!r} is in {where}"


def everything_of(error: BaseException) -> str:
    """All that a log, a debugger or a person may show of an error and of what it is chained to."""
    shown: list[str] = ["".join(traceback.format_exception(error))]
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        shown += [str(each), repr(each), repr(each.args)]
        if isinstance(each, PenstockError):
            shown.append(repr(vars(each)))
            shown.append(repr(pickle.dumps(each)))
        waiting += [each.__cause__, each.__context__]
    return "\n".join(shown)


@dataclass
class Subject:
    """One kind of provider, configured with secrets wherever it takes one."""

    name: str
    pool: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def kind(self) -> str:
        return self.name.partition(",")[0]

    def config(self, url: str) -> Config:
        settings: dict[str, Any] = {"kind": self.kind, "url": url}
        settings["headers"] = {"x-gateway-token": HEADER}
        if self.name != SIGNED:
            settings["auth_token"] = KEY
        return Config(
            providers={"one": ProviderConfig.model_validate(settings)},
            pool=PoolConfig.model_validate(self.pool),
        )

    async def calls(self, engine: Engine, *, services: bool = True) -> list[BaseException]:
        """What every call raises; a call that succeeds raises nothing."""
        raised: list[BaseException] = []

        async def attempt(call: Callable[[], Awaitable[object]]) -> None:
            try:
                await call()
            except (PenstockError, asyncio.CancelledError) as error:
                raised.append(error)

        async def stream() -> None:
            handle = await engine.create_message_stream("Hi", max_tokens=9, model="one/m")
            await handle.result()

        await attempt(lambda: engine.create_message("Hi", max_tokens=9, model="one/m"))
        await attempt(stream)
        if not services:
            return raised
        await attempt(lambda: engine.embed(["Hi"], model="one/amazon.titan-embed-text-v2:0"))
        await attempt(engine.provider("one").models)
        for health in await engine.provider_health():
            clean(repr(health), "a health report")
        return raised


@pytest.fixture(autouse=True)
def secret_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in BUILT_IN.values():
        for variable in kind.key_variables:
            monkeypatch.setenv(variable, ENVIRONMENT)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", AWS_SESSION)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", AWS_BEARER)


@pytest.fixture(autouse=True)
async def watched(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> AsyncGenerator[None]:
    """Whatever a test does, nothing secret is logged, warned of or printed by it."""
    caplog.set_level(logging.DEBUG)
    for name in ("asyncio", "aiohttp", "botocore", "penstock"):
        caplog.set_level(logging.DEBUG, logger=name)
    asyncio.get_running_loop().set_debug(True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
    clean(caplog.text, "the log")
    clean(repr([vars(record) for record in caplog.records]), "the records of the log")
    clean(repr([str(warning.message) for warning in warned]), "a warning")
    clean("".join(capfd.readouterr()), "what was printed")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"))


async def scan(name: str, renders: Iterable[echo.Render], *, services: bool = True) -> str:
    """Drive it against a server that repeats everything; its errors, which show none of it."""
    subject, shown = Subject(name), ""
    turns: list[echo.Render] = []
    server = RawServer(echo.echoing(lambda request: turns[-1](request)))
    async with server, penstock.open(subject.config(server.url)) as engine:
        for render in renders:
            turns.append(render)
            raised = await subject.calls(engine, services=services)
            assert raised
            for error in raised:
                clean(everything_of(error), f"the error of {name}")
                shown += str(error)
        # It is not for want of secrets that none is found.
        own = AWS_SESSION if name == SIGNED else KEY
        for request in server.requests:
            values = [value.removeprefix("Bearer ") for value in request.headers.values()]
            assert {own, HEADER} <= set(values)
            assert {AWS_SECRET, AWS_BEARER, ENVIRONMENT}.isdisjoint(values)
    return shown


@pytest.mark.parametrize("name", WIRED)
async def test_errors_that_repeat_the_request(name: str) -> None:
    shapes = (echo.as_json, echo.as_text, echo.as_string)
    shown = await scan(name, (shape(status) for shape in shapes for status in echo.STATUSES))
    assert "***" in shown or "[key]" in shown, "nothing was repeated"


@pytest.mark.parametrize("name", WIRED)
async def test_errors_under_a_good_status_and_in_streams(name: str) -> None:
    await scan(name, (echo.in_stream(), echo.as_json(200), echo.as_text(200)))


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("render", [echo.as_json, echo.as_text, echo.in_stream])
async def test_errors_that_cut_the_request_off(
    name: str, render: Callable[[int, int], echo.Render]
) -> None:
    await scan(name, (render(400, padding) for padding in echo.PADDINGS), services=False)


@pytest.mark.parametrize("name", WIRED)
async def test_a_server_that_is_not_there(name: str) -> None:
    url = f"http://{HOST}:{await unused_port()}"
    async with penstock.open(Subject(name).config(url)) as engine:
        raised = await Subject(name).calls(engine)
    assert len(raised) >= 3
    for error in raised:
        clean(everything_of(error), "the error of a connection")


@pytest.mark.parametrize("name", WIRED)
async def test_a_server_that_cannot_be_trusted(name: str, authority: Authority) -> None:
    async with (
        RawServer(echo.echoing(echo.as_text(200)), authority.server_context()) as server,
        penstock.open(Subject(name).config(server.url)) as engine,
    ):
        raised = await Subject(name).calls(engine)
        assert server.requests == []
    assert len(raised) >= 3
    for error in raised:
        clean(everything_of(error), "the error of a certificate")


@pytest.mark.parametrize("name", WIRED)
async def test_a_server_that_says_nothing_and_a_caller_who_leaves(name: str) -> None:
    asked = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()

    subject = Subject(name, {"request_timeout_s": 0.02, "slowest_tokens_per_s": 1e6})
    async with RawServer(silent) as server:
        async with penstock.open(subject.config(server.url)) as engine:
            raised = await subject.calls(engine)
        assert len(raised) >= 3
        async with penstock.open(Subject(name).config(server.url)) as engine:
            asked.clear()
            task = asyncio.ensure_future(engine.create_message("Hi", max_tokens=9, model="one/m"))
            await asked.wait()
            clean(repr(task), "a task")
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as left:
                await task
            raised.append(left.value)
    for error in raised:
        clean(everything_of(error), "the error of a silence")


@pytest.mark.parametrize("name", WIRED)
async def test_what_programs_print(name: str) -> None:
    config = Subject(name).config("http://127.0.0.1:9")
    async with penstock.open(config) as engine:
        provider = engine.provider("one")
        kind = config.providers["one"]
        settings = ProviderSettings(
            "one", "openai", auth_token=Secret(KEY), headers={"x-api-key": KEY}
        )
        for shown in (config, kind, engine, provider, settings, engine.provider):
            clean(f"{shown} {shown!r} {[shown]}", f"the repr of {type(shown).__name__}")
    clean(config.model_dump_json(), "a dump of the configuration")
    clean(repr(config.model_dump()), "a dump of the configuration")
    clean(repr(dataclasses.replace(settings, name="two")), "copied settings")
    clean(repr(copy.deepcopy(settings)), "copied settings")


def test_a_secret_is_copied_by_reference_and_pickled_not_at_all() -> None:
    secret = Secret(KEY)
    assert copy.copy(secret) is copy.deepcopy(secret) is secret
    with pytest.raises(TypeError, match="cannot be pickled") as caught:
        pickle.dumps(secret)
    clean(str(caught.value), "the refusal")
    clean(f"{secret} {secret!r} {secret!s:>40}", "a secret")


@pytest.mark.parametrize(
    "command", [("doctor", "--json"), ("providers", "--json", "--check"), ("providers", "--check")]
)
async def test_what_the_commands_print(command: tuple[str, ...], tmp_path: Path) -> None:
    names = [name for name in WIRED if name != SIGNED]
    async with RawServer(echo.echoing(echo.as_json(401))) as server:
        tables = [
            f"[providers.p{number}]\nkind = {name!r}\nurl = {server.url!r}\n"
            'auth_token = "${SCANNED_TOKEN}"\n'
            'headers = { "x-gateway-token" = "${SCANNED_HEADER}" }\n'
            for number, name in enumerate(names)
        ]
        (tmp_path / "penstock.toml").write_text("\n".join(tables))
        source = str(Path(penstock.__file__).parents[1])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", *command),
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": source,
                "SCANNED_TOKEN": KEY,
                "SCANNED_HEADER": HEADER,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert len(server.requests) >= len(names)
    text = out.decode()
    assert "401" in text
    clean(text, " ".join(command))
