"""Measures the work of requests in this process; prints one JSON document for the tests.

`python -m tests.support.work.measure growth` sends every body of `bodies` at n, 2n and 4n, with
limits that let all of it through: the algorithms must not need them. `... hold` sends large bodies
under the default limits and reports the longest step of the event loop; `... errors` does so for
hostile errors of a provider.
"""

from __future__ import annotations

from tests.support.work.counter import Counter, counted

COUNTER: Counter = counted("penstock")

import asyncio  # noqa: E402 - the package may not be imported before it is counted
import json  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
from collections.abc import AsyncGenerator, Callable, Sequence  # noqa: E402
from contextlib import asynccontextmanager, suppress  # noqa: E402
from operator import sub  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import msgspec  # noqa: E402

from penstock.config.load import parse  # noqa: E402
from penstock.config.settings import Config  # noqa: E402
from penstock.contract.errors import PenstockError  # noqa: E402
from penstock.contract.exchange import (  # noqa: E402
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Vectors,
)
from penstock.contract.messages import Text, user  # noqa: E402
from penstock.contract.metadata import Usage  # noqa: E402
from penstock.contract.options import Capabilities  # noqa: E402
from penstock.engine.engine import Engine  # noqa: E402
from penstock.keys.records import hash_of, new_text  # noqa: E402
from penstock.pipeline.limits import Limits  # noqa: E402
from penstock.providers import (  # noqa: E402
    anthropic,
    bedrock,
    gemini,
    ollama,
    openai_chat,
    openai_responses,
)
from penstock.providers.embedded import encode as embedded  # noqa: E402
from penstock.server.app import application  # noqa: E402
from penstock.server.dispatch import App  # noqa: E402
from penstock.testing import FakeProvider  # noqa: E402
from tests.support.work import bodies  # noqa: E402

ADMIN = "admin-key-of-the-tests-0123456789"
SIZES = (60, 120, 240)
_PACKAGES = (anthropic, bedrock, gemini, ollama, openai_chat, openai_responses)
DIALECTS = [each.DIALECT for each in _PACKAGES]
MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "bedrock": "us.anthropic.claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
    "ollama": "qwen3",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
}


ANSWER = Reply((Text("Yes."),), "echo", "endTurn", Usage(input_tokens=1, output_tokens=1))
MISCOUNTED = msgspec.structs.replace(ANSWER, usage=Usage(input_tokens=10**9))
"""What is billed instead is estimated from the request."""


class Encoding(FakeProvider):
    """Writes each request in several dialects before it answers."""

    dialects = DIALECTS
    answer = ANSWER

    def capabilities(self, model: str) -> Capabilities:
        # A window in which not every request surely fits: the router estimates its tokens.
        return msgspec.structs.replace(
            super().capabilities(model), extra_of="openai-chat", context_window=100_000_000
        )

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        if self.dialects is DIALECTS and (schema := request.output_schema) is not None:
            # As generators ask: a schema that an API cannot say is put in words.
            prompted = msgspec.structs.replace(schema, prompted=True)
            self._encode(msgspec.structs.replace(request, output_schema=prompted))
        self._encode(request)
        return self.answer

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        return Vectors(((0.5,),) * len(request.texts), model, Usage(input_tokens=1))

    def _encode(self, request: SamplingRequest) -> None:
        for dialect in self.dialects:
            name = MODELS[dialect.name]
            profile = dialect.catalogue.profile(dialect.name, name, {})
            with suppress(PenstockError):
                dialect.encode(name, request, profile, False)
        if self.dialects is DIALECTS:
            with suppress(PenstockError):
                embedded.encode(request, provider="embedded", model="default")


def engine(home: Path, limits: dict[str, int], provider: FakeProvider) -> tuple[Engine, str]:
    """One with a key, a budget, prices and a limit of tokens, and the text of the key."""
    text = new_text()
    price = {"input": 0.001, "output": 0.001}
    config = Config.model_validate(
        {
            "server": {"admin_key": ADMIN, "log": "none", "mcp_servers": ["*"]},
            "storage": {"url": f"sqlite:///{home}/penstock.db"},
            "providers": {"fake": {}},
            "limits": limits,
            "models": {
                "default": {
                    "targets": ["fake/echo", "fake/llama-3"],
                    "routing": "cheapest",
                    "prices": {"fake/echo": price, "fake/llama-3": price},
                }
            },
            "budgets": {"total": {"limit_usd": 1_000_000.0}},
            "keys": {"work": {"hash": hash_of(text), "tokens_per_minute": 10**12}},
        }
    )
    made = Engine(config, model_files=False, keep_books=True)
    made.use(provider)
    return made, text


@asynccontextmanager
async def running(
    limits: dict[str, int], provider: FakeProvider
) -> AsyncGenerator[tuple[App, str]]:
    """The application between its start and its stop."""
    with tempfile.TemporaryDirectory() as folder:
        made, key = engine(Path(folder), limits, provider)
        app = application(lambda: made, made.config)
        received: asyncio.Queue[Any] = asyncio.Queue()
        sent: asyncio.Queue[Any] = asyncio.Queue()
        live = asyncio.create_task(app({"type": "lifespan"}, received.get, sent.put))
        await received.put({"type": "lifespan.startup"})
        assert (await sent.get())["type"] == "lifespan.startup.complete"
        try:
            yield app, key
        finally:
            await received.put({"type": "lifespan.shutdown"})
            await live


async def ask(app: App, key: str, path: str, body: bytes) -> tuple[int, str]:
    """The status, and the beginning of the answer."""
    shown = ADMIN if path.startswith("/admin") else key
    headers = [
        (b"authorization", f"Bearer {shown}".encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-protocol-version", b"2025-06-18"),
        (b"host", b"127.0.0.1"),
    ]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8400),
        "penstock.on_lost": [],
    }
    events = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if events:
            return events.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await app(scope, receive, send)
    said = b"".join(event.get("body", b"") for event in sent[1:])
    return sent[0]["status"], said[:300].decode(errors="replace")


async def grown(names: Sequence[str]) -> dict[str, Any]:
    """The work of every case at three sizes."""
    found: dict[str, Any] = {}
    unlimited = {
        name: 10**9
        for name in Limits.__struct_fields__
        if name not in ("max_temperature", "max_json_depth")
    }
    async with running({**unlimited, "max_json_depth": 200}, Encoding()) as (app, key):
        for (path, name), make in bodies.cases().items():
            if names and not any(each in f"{path} {name}" for each in names):
                continue
            work: list[tuple[int, ...]] = []
            said: list[Any] = []
            # The first call imports and remembers what the others find.
            for size in (2, *SIZES):
                before = COUNTER.read()
                said.append(await ask(app, key, path, msgspec.json.encode(make(size))))
                work.append(tuple(map(sub, COUNTER.read(), before)))
            found[f"{path} {name}"] = {"work": work[1:], "said": said[1:]}
    for name, write in bodies.configurations().items():
        if not names or any(each in name for each in names):
            found[name] = _read(write)
    return found


def _read(write: Callable[[int], str]) -> dict[str, Any]:
    """The work of a configuration with so many problems."""
    work: list[tuple[int, ...]] = []
    for size in (2, *SIZES):
        text, before = write(size), COUNTER.read()
        with suppress(PenstockError):
            parse(text)
        work.append(tuple(map(sub, COUNTER.read(), before)))
    return {"work": work[1:], "said": [(400, "")]}


class Steps:
    """The longest step of the event loop since `longest` was set to 0, in counted work."""

    def __init__(self) -> None:
        COUNTER.thread = threading.get_ident()
        self.longest = 0.0
        run, steps = asyncio.events.Handle._run, self

        def measured(self: Any) -> None:
            before = COUNTER.work
            run(self)
            steps.longest = max(steps.longest, COUNTER.work - before)

        asyncio.events.Handle._run = measured


async def failed(names: Sequence[str]) -> dict[str, Any]:
    """The longest step of the event loop for errors of a provider."""
    steps = Steps()
    key = "sk-proj-" + "A1b2C3d4" * 16
    answer = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            # Engines also ask for the list of models, without a body.
            length = head.lower().partition(b"content-length: ")[2].split()[:1]
            await reader.readexactly(int(*length))
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    kinds = ("openai-chat", "anthropic", "gemini")
    providers = {kind: {"kind": kind, "url": url, "auth_token": key} for kind in kinds}
    config = Config.model_validate({"providers": providers, "pool": {"retries": 0}})
    found: dict[str, Any] = {}
    async with Engine(config, model_files=False) as engine:
        for kind in kinds:
            for name, status, body in [("", 400, b"no"), *bodies.errors(key)]:
                if names and not any(each in f"{kind} {name}" for each in names):
                    continue
                answer = (
                    b"HTTP/1.1 %d Wrong\r\ncontent-type: application/json\r\n"
                    b"connection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
                ) + body
                steps.longest, said = 0.0, ""
                try:
                    await engine.create_message([user("Hi")], max_tokens=5, model=f"{kind}/m")
                except PenstockError as error:
                    said = error.message
                # The first call imports and builds what the others find.
                if name:
                    found[f"{kind} {name}"] = {"work": steps.longest, "said": said, "key": key}
    server.close()
    return found


async def held(names: Sequence[str]) -> dict[str, Any]:
    """The longest step of the event loop for requests at the limits, in counted work."""
    steps = Steps()
    found: dict[str, Any] = {}
    one = Encoding()
    # A request is encoded for one target at a time, here for the dialect that looks at most.
    one.dialects = [openai_responses.DIALECT]
    one.answer = MISCOUNTED
    async with running({}, one) as (app, key):
        warm: set[str] = set()
        for (path, name), body in bodies.largest():
            if names and not any(each in f"{path} {name}" for each in names):
                continue
            if path not in warm:
                # What is imported and built once is not a matter of the request.
                await ask(app, key, path, msgspec.json.encode(bodies.smallest(path)))
                warm.add(path)
            steps.longest = 0.0
            said = await ask(app, key, path, body)
            found[f"{path} {name}"] = {"work": steps.longest, "said": said, "bytes": len(body)}
    return found


if __name__ == "__main__":
    what, *chosen = sys.argv[1:]
    sys.stdout.write(
        json.dumps(asyncio.run({"growth": grown, "hold": held, "errors": failed}[what](chosen)))
    )
