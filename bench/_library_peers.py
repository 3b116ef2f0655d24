"""One small client a library, each doing the same call; only the chosen one is imported."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

PROMPT = "Say a hundred words."
CHUNKS = 100


class Client(NamedTuple):
    """What is measured: both return the text of the answer."""

    call: Callable[[], Awaitable[str]]
    stream: Callable[[], Awaitable[str]]
    close: Callable[[], Awaitable[object]]


async def nothing() -> None:
    pass


async def floor(url: str) -> Client:
    """By hand on aiohttp and msgspec: what any client on them has to spend."""
    aiohttp, msgspec = importlib.import_module("aiohttp"), importlib.import_module("msgspec")
    session = aiohttp.ClientSession()
    body = {"model": "bench", "max_tokens": 200, "messages": [{"role": "user", "content": PROMPT}]}
    decode = msgspec.json.Decoder().decode
    headers = {"content-type": "application/json"}

    async def call() -> str:
        data = msgspec.json.encode(body)
        async with session.post(f"{url}/chat/completions", data=data, headers=headers) as response:
            return decode(await response.read())["choices"][0]["message"]["content"]

    async def stream() -> str:
        data = msgspec.json.encode(body | {"stream": True})
        pieces: list[str] = []
        held = b""
        async with session.post(f"{url}/chat/completions", data=data, headers=headers) as response:
            async for read in response.content.iter_any():
                *events, held = (held + read).split(b"\n\n")
                for event in events:
                    if event != b"data: [DONE]":
                        choices = decode(event[6:])["choices"]
                        pieces += [choice["delta"].get("content") or "" for choice in choices]
        return "".join(pieces)

    return Client(call, stream, session.close)


async def penstock(url: str) -> Client:
    """The whole engine: validation, targets, failover, metadata."""
    package = importlib.import_module("penstock")
    parse = importlib.import_module("penstock.config.load").parse
    text = (
        f'[providers.b]\nkind = "openai-chat"\nurl = "{url}"\n[models.m]\ntargets = ["b/bench"]\n'
    )
    engine = package.open(parse(text))

    async def call() -> str:
        return (await engine.create_message(PROMPT, max_tokens=200)).text

    async def stream() -> str:
        handle = await engine.create_message_stream(PROMPT, max_tokens=200)
        return "".join([text async for text in handle.texts()])

    return Client(call, stream, engine.aclose)


async def openai(url: str) -> Client:
    """The official SDK."""
    client = importlib.import_module("openai").AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
    asked: dict[str, Any] = {
        "model": "bench",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": PROMPT}],
    }

    async def call() -> str:
        answer = await client.chat.completions.create(**asked)
        return answer.choices[0].message.content

    async def stream() -> str:
        events = await client.chat.completions.create(**asked, stream=True)
        return "".join([e.choices[0].delta.content or "" async for e in events if e.choices])

    return Client(call, stream, client.close)


async def litellm(url: str) -> Client:
    """LiteLLM's `acompletion`."""
    package = importlib.import_module("litellm")
    asked: dict[str, Any] = {
        "model": "openai/bench",
        "api_base": url,
        "api_key": "k",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": PROMPT}],
    }

    async def call() -> str:
        answer = await package.acompletion(**asked)
        return answer.choices[0].message.content

    async def stream() -> str:
        events = await package.acompletion(**asked, stream=True)
        return "".join([e.choices[0].delta.content or "" async for e in events if e.choices])

    return Client(call, stream, nothing)


async def any_llm(url: str) -> Client:
    """any-llm's client object, the cheaper of its two ways."""
    package = importlib.import_module("any_llm")
    client = package.AnyLLM.create("openai", api_key="k", api_base=url)
    asked: dict[str, Any] = {
        "model": "bench",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": PROMPT}],
    }

    async def call() -> str:
        answer = await client.acompletion(**asked)
        return answer.choices[0].message.content

    async def stream() -> str:
        events = await client.acompletion(**asked, stream=True)
        return "".join([e.choices[0].delta.content or "" async for e in events if e.choices])

    return Client(call, stream, nothing)


async def pydantic_ai(url: str) -> Client:
    """pydantic-ai's agent without tools."""
    agent_type = importlib.import_module("pydantic_ai").Agent
    model_type = importlib.import_module("pydantic_ai.models.openai").OpenAIChatModel
    provider_type = importlib.import_module("pydantic_ai.providers.openai").OpenAIProvider
    agent = agent_type(model_type("bench", provider=provider_type(base_url=url, api_key="k")))
    settings = {"max_tokens": 200}

    async def call() -> str:
        return (await agent.run(PROMPT, model_settings=settings)).output

    async def stream() -> str:
        async with agent.run_stream(PROMPT, model_settings=settings) as run:
            pieces = [text async for text in run.stream_text(delta=True, debounce_by=None)]
        return "".join(pieces)

    return Client(call, stream, nothing)


PEERS: dict[str, Callable[[str], Awaitable[Client]]] = {
    "floor: aiohttp + msgspec": floor,
    "penstock": penstock,
    "openai": openai,
    "litellm": litellm,
    "any-llm-sdk": any_llm,
    "pydantic-ai": pydantic_ai,
}


async def cpu_ms(run: Callable[[], Awaitable[str]], count: int, width: int) -> float:
    """CPU milliseconds of this process for one run, `width` of them side by side."""

    async def some(number: int) -> None:
        for _ in range(number):
            text = await run()
            assert text.split() == ["word"] * CHUNKS, text[:200]

    await some(3)
    started = time.process_time()
    await asyncio.gather(*(some(count // width) for _ in range(width)))
    return (time.process_time() - started) / (count // width * width) * 1000


async def measure(name: str, url: str, calls: int, streams: int) -> dict[str, float]:
    """All figures of one library."""
    client = await PEERS[name](url)
    figures = {
        "call": await cpu_ms(client.call, calls, 1),
        "call, 32-way": await cpu_ms(client.call, calls, 32),
        "stream": await cpu_ms(client.stream, streams, 1),
        "stream, 32-way": await cpu_ms(client.stream, streams, 32),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    await client.close()
    return figures


if __name__ == "__main__":
    peer, address, calls, streams = sys.argv[1:]
    runner: Any = asyncio.run
    with contextlib.suppress(ImportError):
        runner = importlib.import_module("uvloop").run
    print(json.dumps(runner(measure(peer, address, int(calls), int(streams)))))
