"""The thread between llama.cpp and event loops, with a scripted server in llama.cpp's shape."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

import pytest

from penstock.contract.errors import ConfigurationError, RequestCancelled
from penstock.providers.embedded.runtime import Call, ChatServer, LlamaRuntime, default_threads


class ScriptedServer:
    """Answers each body with three chunks; `gate` holds every chunk back until it is set."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.finished = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def handle_chat_completions(self, body: str, on_chunk: Callable[[str], bool], /) -> None:
        self.started.append(body)
        for number in range(3):
            self.gate.wait(30)
            if on_chunk(f"{body}{number}"):
                self.stopped.append(body)
                return
        self.finished.set()

    def count_tokens(self, body: str, /) -> int:
        self.started.append(body)
        return len(body)


class Loader:
    """Counts the loads and fails as often as it is told to."""

    def __init__(self, *, failures: int = 0, seconds: float = 0.0) -> None:
        self.server = ScriptedServer()
        self.loads = 0
        self._failures = failures
        self._seconds = seconds

    def __call__(self) -> ChatServer:
        self.loads += 1
        time.sleep(self._seconds)
        if self.loads <= self._failures:
            raise ConfigurationError("no such luck")
        return self.server


async def drain(call: Call) -> list[str]:
    chunks: list[str] = []
    async with asyncio.timeout(30):
        while (batch := await call.next()) is not None:
            chunks += batch
    return chunks


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.005)


def test_a_call_that_counts_waits_for_its_turn_and_has_one_chunk() -> None:
    loader = Loader()
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        calls = [runtime.submit("a"), runtime.submit("four", counts=True), runtime.submit("b")]
        answers = await asyncio.gather(*map(drain, calls))
        assert answers == [["a0", "a1", "a2"], ["4"], ["b0", "b1", "b2"]]

    asyncio.run(main())
    assert loader.server.started == ["a", "four", "b"]
    runtime.shutdown()


def test_calls_are_answered_in_order_of_arrival_after_one_load() -> None:
    loader = Loader(seconds=0.05)
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        calls = [runtime.submit(body) for body in "abcd"]
        answers = await asyncio.gather(*map(drain, calls))
        assert answers == [[f"{body}{n}" for n in range(3)] for body in "abcd"]

    asyncio.run(main())
    assert loader.server.started == list("abcd")
    assert loader.loads == 1
    runtime.shutdown()


def test_a_call_that_is_cancelled_in_the_queue_never_starts() -> None:
    loader = Loader()
    loader.server.gate.clear()
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        first, second, third = (runtime.submit(body) for body in "abc")
        second.cancel()
        loader.server.gate.set()
        await drain(first)
        await drain(third)

    asyncio.run(main())
    assert loader.server.started == ["a", "c"]
    runtime.shutdown()


def test_a_running_call_stops_at_its_next_chunk() -> None:
    loader = Loader()
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        loader.server.gate.clear()
        running = runtime.submit("a")
        await until(lambda: loader.server.started == ["a"])
        running.cancel()
        loader.server.gate.set()
        await until(lambda: loader.server.stopped == ["a"])

    asyncio.run(main())
    runtime.shutdown()


def test_chunks_that_arrive_while_the_loop_is_busy_come_as_one_batch() -> None:
    loader = Loader()
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        call = runtime.submit("a")
        assert loader.server.finished.wait(30)  # blocks the loop on purpose
        assert await call.next() == ["a0", "a1", "a2"]
        assert await call.next() is None

    asyncio.run(main())
    runtime.shutdown()


def test_a_failed_load_reaches_its_caller_and_the_next_call_tries_again() -> None:
    loader = Loader(failures=1)
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="no such luck"):
            await drain(runtime.submit("a"))
        assert await drain(runtime.submit("b")) == ["b0", "b1", "b2"]

    asyncio.run(main())
    assert loader.loads == 2
    runtime.shutdown()


def test_an_abandoned_event_loop_does_not_block_the_next_one() -> None:
    loader = Loader()
    loader.server.gate.clear()
    runtime = LlamaRuntime(loader)

    async def submit(body: str) -> None:
        runtime.submit(body)

    dead = asyncio.new_event_loop()
    dead.run_until_complete(submit("a"))
    dead.run_until_complete(submit("b"))
    dead.close()

    async def main() -> None:
        call = runtime.submit("c")
        loader.server.gate.set()
        assert await drain(call) == ["c0", "c1", "c2"]

    asyncio.run(main())
    assert "b" not in loader.server.started
    runtime.shutdown()


def test_the_model_leaves_memory_when_its_last_user_has_gone() -> None:
    loader = Loader()
    runtime = LlamaRuntime(loader, linger_s=0.05)
    runtime.retain()
    runtime.retain()

    async def main() -> None:
        await drain(runtime.submit("a"))
        assert runtime.loaded
        runtime.release()
        await asyncio.sleep(0.2)
        assert runtime.loaded
        runtime.release()
        await until(lambda: not runtime.loaded)
        await drain(runtime.submit("b"))

    asyncio.run(main())
    assert loader.loads == 2
    runtime.shutdown()


def test_shutdown_stops_what_runs_and_takes_nothing_more() -> None:
    loader = Loader()
    loader.server.gate.clear()
    runtime = LlamaRuntime(loader)

    async def main() -> None:
        runtime.submit("a")
        await until(lambda: loader.server.started == ["a"])
        threading.Timer(0.05, loader.server.gate.set).start()
        await asyncio.to_thread(runtime.shutdown)
        assert loader.server.stopped == ["a"]
        with pytest.raises(RequestCancelled):
            runtime.submit("b")

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_threads_are_one_less_than_the_cpus_that_the_process_may_use() -> None:
    counts: list[int] = []

    def on_one_cpu() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of this thread only
        counts.append(default_threads())

    thread = threading.Thread(target=on_one_cpu)
    thread.start()
    thread.join()
    assert counts == [1]
    assert 1 <= default_threads() <= max(1, len(os.sched_getaffinity(0)) - 1)
