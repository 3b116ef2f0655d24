"""`penstock.sync`: every call without `await`, from any thread, in a running loop, after a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import penstock
from penstock import Chunk, Complete, Config, InvalidRequest, assistant, sync, user
from penstock.sync import SyncEngine


class Colour(BaseModel):
    name: str


def shout(text: str) -> str:
    """Repeat a text in capitals."""
    return text.upper()


def fake_config(**more: Any) -> Config:
    return Config.model_validate(
        {
            "providers": {"fake": {"kind": "fake"}},
            "models": {"default": {"targets": ["fake/echo"]}},
            **more,
        }
    )


@pytest.fixture
def engine() -> Iterator[SyncEngine]:
    with sync.open(fake_config()) as engine:
        yield engine


def test_the_calls_of_an_engine(engine: SyncEngine) -> None:
    result = engine.create_message("Hello", max_tokens=20, request_id="mine")
    assert (result.text, result.request_id) == ("Hello", "mine")
    assert (
        engine.sample(
            {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
                "maxTokens": 9,
            }
        ).text
        == "Hi"
    )
    assert len(engine.embed(["a", "b"], model="fake/any").vectors) == 2
    assert engine.count_tokens("Hello").tokens > 0
    assert [str(each.target) for each in engine.route("Hello").ranked] == ["fake/echo"]
    assert engine.usage_stats().total.requests == 3
    assert engine.provider_health()[0].provider == "fake"
    assert engine.cancel_request("nothing") is False
    assert engine.run(lambda e: e.usage_stats()).total.requests == 3


def test_budgets_are_set_and_enforced(tmp_path: Path) -> None:
    storage = {"url": f"sqlite:///{tmp_path / 'ledger.db'}"}
    with sync.open(fake_config(storage=storage)) as engine:
        engine.set_budget(5, name="small", period="day")
        assert [(each.budget.name, each.budget.period) for each in engine.budgets()] == [
            ("small", "day")
        ]


def test_streams_are_iterated_or_read_to_their_end(engine: SyncEngine) -> None:
    with engine.create_message_stream("one two three", max_tokens=20) as stream:
        events = list(stream)
    assert isinstance(events[0], Chunk)
    assert isinstance(events[-1], Complete)
    with engine.create_message_stream("one two three", max_tokens=20) as stream:
        assert "".join(stream.texts()) == "one two three"
    assert engine.create_message_stream("one two", max_tokens=20).result().text == "one two"
    with engine.create_message_stream("one two three", max_tokens=20) as stream:
        next(stream)
    stream.close()


def test_errors_are_those_of_the_asynchronous_call(engine: SyncEngine) -> None:
    with pytest.raises(InvalidRequest, match="max_tokens"):
        engine.create_message("Hello", max_tokens=0)
    with pytest.raises(InvalidRequest, match="prompt"):
        engine.string_generator().generate()


def test_generators_structured_values_tools_and_conversations(engine: SyncEngine) -> None:
    assert engine.string_generator("Hello").generate()[0] == "Hello"
    colour, metadata = engine.structured_generator(Colour, "Which?").generate()
    assert isinstance(colour, Colour)
    assert metadata.provider == "fake"
    calling = engine.string_generator("Go.", tools=[shout], tool_choice="required")
    assert calling.generate()[1].tool_rounds == 1
    kinds = [type(event).__name__ for event in calling.stream()]
    assert kinds[-1] == "Complete"
    assert "ToolEnded" in kinds
    talk = engine.conversation(history=[user("Hi."), assistant("Hi!")])
    assert talk.send("Hello")[0] == "Hello"
    assert talk.stream("Again").result()[0] == "Again"
    assert len(talk.messages) == 6


def test_generators_without_an_engine() -> None:
    here: dict[str, Any] = {"provider": "fake", "model": "echo"}
    generator = sync.string_generator(**here)
    assert [generator.generate(text)[0] for text in ("a", "b")] == ["a", "b"]
    assert "".join(generator.stream("one two").texts()) == "one two"
    assert isinstance(sync.structured_generator(Colour, "Which?", **here).generate()[0], Colour)
    talk = sync.conversation(**here)
    assert talk.send("Hello")[0] == "Hello"
    vectors, metadata = sync.embedding_generator(**here).generate_batch(["a", "b"])
    assert (len(vectors), metadata.embedding_count) == (2, 2)


def test_threads_share_an_engine(engine: SyncEngine) -> None:
    generator = engine.string_generator()
    together = threading.Barrier(8)

    def ask(number: int) -> str:
        together.wait(30)
        return generator.generate(f"number {number}")[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [f"number {number}" for number in range(8)]


async def test_it_works_where_an_event_loop_runs(engine: SyncEngine) -> None:
    # As in a notebook, whose cells run inside a loop.
    assert engine.create_message("Hello", max_tokens=9).text == "Hello"


def test_a_call_from_within_its_own_loop_is_refused(engine: SyncEngine) -> None:
    async def nested() -> None:
        engine.create_message("Hello", max_tokens=9)

    with pytest.raises(RuntimeError, match="await the asynchronous API there"):
        sync.run(nested())
    assert sync.run(asyncio.sleep(0, "fine")) == "fine"


def test_a_closed_engine_says_so() -> None:
    engine = sync.open(fake_config())
    generator = engine.string_generator()
    engine.close()
    engine.close()
    for call in (
        lambda: engine.create_message("Hello", max_tokens=9),
        lambda: generator.generate("a"),
    ):
        with pytest.raises(RuntimeError, match="the engine is closed"):
            call()


def run_program(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(PRELUDE + code)
    return subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )


PRELUDE = """
import os, signal, sys, threading
import penstock
from penstock import sync

config = penstock.Config.model_validate({
    "providers": {"fake": {"kind": "fake"}},
    "models": {"default": {"targets": ["fake/echo"]}},
    "storage": {"url": "sqlite:///ledger.db"},
})
"""


def test_a_program_may_end_without_closing_anything(tmp_path: Path) -> None:
    done = run_program(
        """
engine = sync.open(config)
print(engine.create_message("Hello", max_tokens=9).text)
stream = engine.create_message_stream("one two three", max_tokens=9)
print(next(stream).text)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello\none \n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_parent_and_child_of_a_fork_go_on_on_their_own(tmp_path: Path) -> None:
    done = run_program(
        """
engine = sync.open(config)
generator = engine.string_generator()
alone = sync.string_generator(provider="fake", model="echo")
talk = engine.conversation()
print(generator.generate("before")[0], alone.generate("before")[0], talk.send("before")[0])
sys.stdout.flush()
child = os.fork()
if child == 0:
    print("child", generator.generate("c")[0], alone.generate("c")[0], talk.send("c")[0])
    print("child", engine.create_message("c", max_tokens=9).text, len(talk.messages))
    sys.stdout.flush()
    engine.close()
    os._exit(0)
print(os.waitpid(child, 0)[1], engine.create_message("parent", max_tokens=9).text)
print(generator.generate("p")[0], alone.generate("p")[0], len(talk.messages))
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "before before before",
        "child c c c",
        "child c 4",
        "0 parent",
        "p p 2",
    ]


def test_an_interrupt_cancels_the_call(tmp_path: Path) -> None:
    done = run_program(
        """
import asyncio

cancelled = threading.Event()

async def forever():
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.set()

try:
    sync.run(forever())
except KeyboardInterrupt:
    print("interrupted", cancelled.wait(30))
print(sync.open(config).create_message("still here", max_tokens=9).text)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted True\nstill here\n"), done.stderr


def test_the_module_is_a_name_of_the_package() -> None:
    assert penstock.sync is sync
    assert sync.__all__ == sorted(sync.__all__)
