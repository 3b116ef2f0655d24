"""Generators on their own, against real servers on loopback: connections, loops and mistakes."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pydantic
import pytest
import uvloop

import penstock
from penstock import ConfigurationError, InvalidRequest
from penstock.engine import per_loop
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Scenario
from tests.support.wire.seen import Seen
from tests.support.wire.server import WireServer

CHAT: dict[str, Any] = {"provider": "openai-chat", "model": "m", "auth_token": "sk-test"}


class Point(pydantic.BaseModel):
    x: int


def _say(seen: Seen) -> Scenario:
    return Scenario(text=('{"x": 1}',) if seen.schema else ("Hello.",))


class Upstream:
    """A server in a loop and a thread of its own, so that the loops under test come and go."""

    def __init__(self) -> None:
        self.server = WireServer(OpenAIChat(), improvise=_say)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def url(self) -> str:
        return self.server.url

    def __enter__(self) -> Upstream:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.__aenter__(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        leave = self.server.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(leave, self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture
def upstream() -> Generator[Upstream]:
    with Upstream() as upstream:
        yield upstream


async def _text(url: str, **options: Any) -> str:
    return (await penstock.string_generator("Go.", url=url, **{**CHAT, **options}).generate())[0]


def test_generators_of_one_loop_share_their_connections(upstream: Upstream) -> None:
    async def main() -> None:
        for _ in range(20):
            assert await _text(upstream.url) == "Hello."
        typed = penstock.structured_generator(Point, "Go.", url=upstream.url, **CHAT)
        assert (await typed.generate())[0] == Point(x=1)
        embedder = penstock.embedding_generator(url=upstream.url, **CHAT)
        assert len((await embedder.generate("text"))[0]) == 8
        async with penstock.string_generator("Go.", url=upstream.url, **CHAT).stream() as stream:
            assert (await stream.result())[0] == "Hello."

    asyncio.run(main())
    assert upstream.server.connections == 1


def test_the_end_of_the_loop_closes_the_connections(upstream: Upstream) -> None:
    # Other loops of this process may be open, such as that of `penstock.sync`.
    open_before = len(per_loop._OF_LOOP)  # pyright: ignore[reportPrivateUsage]
    asyncio.run(_text(upstream.url))
    assert len(per_loop._OF_LOOP) == open_before  # pyright: ignore[reportPrivateUsage]
    leave = upstream.server.idle()
    asyncio.run_coroutine_threadsafe(leave, upstream._loop).result(30)  # pyright: ignore[reportPrivateUsage]
    assert upstream.server.open_connections == 0


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_one_generator_serves_loop_after_loop(upstream: Upstream, runner: Any) -> None:
    generator = penstock.string_generator("Go.", url=upstream.url, **CHAT)

    async def twice() -> list[str]:
        return [(await generator.generate())[0] for _ in range(2)]

    for _ in range(3):
        assert runner(twice()) == ["Hello.", "Hello."]
    assert upstream.server.connections == 3


def test_one_generator_serves_threads_with_loops_of_their_own(upstream: Upstream) -> None:
    generator = penstock.string_generator("Go.", url=upstream.url, **CHAT)
    together = threading.Barrier(4)
    said: list[str] = []
    failed: list[BaseException] = []

    async def many() -> None:
        together.wait(30)
        said.extend([(await generator.generate())[0] for _ in range(10)])

    def work() -> None:
        try:
            asyncio.run(many())
        except BaseException as error:  # noqa: BLE001 - it is asserted below
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert said == ["Hello."] * 40
    assert upstream.server.connections == 4


def test_calls_at_once_on_a_new_generator_work(upstream: Upstream) -> None:
    async def main() -> list[str]:
        generator = penstock.string_generator("Go.", url=upstream.url, **CHAT)
        return [text for text, _ in await asyncio.gather(*(generator.generate() for _ in range(9)))]

    assert asyncio.run(main()) == ["Hello."] * 9


SCRIPT = """
import asyncio, sys
import penstock

async def main() -> None:
    # An import takes its time, which the development mode would print.
    asyncio.get_running_loop().slow_callback_duration = 60
    generator = penstock.string_generator(
        "Go.", provider="openai-chat", model="m", url=sys.argv[1], auth_token="k"
    )
    print((await generator.generate())[0])
    stream = generator.stream()
    await anext(stream)  # left open on purpose

asyncio.run(main())
asyncio.run(main())
"""


def test_a_script_ends_cleanly_without_closing_anything(upstream: Upstream) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", SCRIPT, upstream.url],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("Hello.\nHello.\n", "", 0)


def test_generators_that_are_dropped_leave_nothing(upstream: Upstream) -> None:
    async def main() -> None:
        made: list[weakref.ref[Any]] = []
        generator: penstock.StringGenerator | None = None
        for number in range(1000):
            generator = penstock.string_generator("Go.", url=upstream.url, **CHAT)
            made.append(weakref.ref(generator))
            if number < 50:
                await generator.generate()
        generator = None
        gc.collect()
        assert [each() for each in made if each() is not None] == []
        kept = per_loop._OF_LOOP[asyncio.get_running_loop()]  # pyright: ignore[reportPrivateUsage]
        assert len(kept.engines) == 0
        assert len(kept.transports) == 1

    asyncio.run(main())
    assert upstream.server.connections == 1


def test_loops_that_ended_are_let_go(upstream: Upstream) -> None:
    generator = penstock.string_generator("Go.", url=upstream.url, **CHAT)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await generator.generate()

    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_url_key_and_headers_reach_the_server(upstream: Upstream) -> None:
    asyncio.run(_text(upstream.url, auth_token="sk-mine", headers={"x-team": "blue"}))
    (seen,) = upstream.server.seen
    assert seen.key == "sk-mine"
    assert seen.headers["x-team"] == "blue"
    assert seen.model == "m"


def test_the_environment_gives_what_is_not_said(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
    generator = penstock.string_generator("Go.", provider="openai-chat")
    assert asyncio.run(generator.generate())[0] == "Hello."
    (seen,) = upstream.server.seen
    assert (seen.key, seen.model) == ("sk-environment", "gpt-6-luna")


def test_without_a_provider_the_configuration_holds(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limits of time are those of the connections, too."""
    (tmp_path / "penstock.toml").write_text(
        f"""
        [providers.local]
        kind = "openai-chat"
        url = "{upstream.url}"
        [models.default]
        targets = ["local/small"]
        [pool]
        request_timeout_s = 7.5
        """
    )
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        text, metadata = await penstock.string_generator("Go.").generate()
        assert (text, metadata.provider, metadata.model) == ("Hello.", "local", "small")
        kept = per_loop._OF_LOOP[asyncio.get_running_loop()]  # pyright: ignore[reportPrivateUsage]
        assert [each.response_timeout_s for each in kept.transports] == [7.5]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "opnai"}, "openai"),
        ({"provider": "openai"}, "OPENAI_API_KEY"),
        ({"provider": "groq", "auth_token": "k"}, "'groq' has no default here: give model="),
        ({"url": "http://127.0.0.1:1"}, "url: name the provider as well"),
        ({"auth_token": "k", "headers": {"a": "b"}}, "auth_token, headers: name the provider"),
        ({"provider": 5}, "provider: is 5; give the name of a kind"),
        ({**CHAT, "url": "host/SECRET"}, "^url: an address begins with http:// or https://$"),
        ({**CHAT, "auth_token": ["SECRET"]}, "^auth_token: Input should be a valid string$"),
        ({**CHAT, "headers": {"x": ["SECRET"]}}, "^headers.x: Input should be a valid string$"),
        ({**CHAT, "headers": [("x", "SECRET")]}, "^headers: Input should be a valid dictionary$"),
        ({**CHAT, "model": "two words"}, "^model: its name must be text without spaces$"),
    ],
)
def test_mistakes_are_said_at_once(options: Any, message: str) -> None:
    for make in (penstock.string_generator, _typed):
        with pytest.raises(ConfigurationError, match=message) as caught:
            make("Go.", **options)
        assert "SECRET" not in "".join(traceback.format_exception(caught.value, chain=True))


def _typed(prompt: str, **options: Any) -> Any:
    return penstock.structured_generator(Point, prompt, **options)


def test_a_blank_prompt_and_unknown_options_are_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="blank"):
        penstock.string_generator(" ", **CHAT)
    with pytest.raises(InvalidRequest, match="temprature"):
        penstock.string_generator("Go.", temprature=1, **CHAT)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidRequest, match="temprature"):
        penstock.embedding_generator(temprature=1, **CHAT)  # pyright: ignore[reportCallIssue]
    with pytest.raises(InvalidRequest, match="embedding_dimensions"):
        penstock.embedding_generator(embedding_dimensions=0, **CHAT)


def test_a_provider_without_embeddings_says_so() -> None:
    with pytest.raises(ConfigurationError, match="'anthropic' has no default here: give model="):
        penstock.embedding_generator(provider="anthropic", auth_token="k")
