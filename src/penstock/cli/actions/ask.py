"""Runs one request and prints what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, TextIO

from penstock.cli.actions import small_model_note
from penstock.cli.setup.engines import open_engine
from penstock.cli.ui import terminal
from penstock.contract.errors import PenstockError, RequestCancelled, StructuredOutputInvalid
from penstock.contract.events import Chunk, Complete, Error
from penstock.contract.exchange import Result, SamplingRequest
from penstock.engine.engine import Engine


class Printer:
    """Prints an answer piece by piece, and remembers it."""

    def __init__(self, out: TextIO) -> None:
        """A terminal gets no control characters, for the model's words are not ours."""
        self._out = out
        self._guarded = terminal.is_terminal(out)
        self._said: list[str] = []

    @property
    def text(self) -> str:
        """Everything up to now."""
        return "".join(self._said)

    def write(self, piece: str) -> None:
        """The next piece, at once."""
        self._said.append(piece)
        self._out.write(terminal.visible(piece) if self._guarded else piece)
        self._out.flush()

    def end(self) -> None:
        """Finish the line, unless the answer has done so."""
        if not (self._said and self._said[-1].endswith("\n")):
            self._out.write("\n")
            self._out.flush()


async def speak(engine: Engine, request: SamplingRequest, printer: Printer) -> Result:
    """Stream the answer into the printer; raises the stream's error.

    Cancelling stops the upstream call; the printer holds what had been said.
    """
    with contextlib.ExitStack() as spinner:
        spinner.enter_context(terminal.waiting("thinking"))
        async with await engine.create_message_stream(request) as stream:
            async for event in stream:
                if isinstance(event, Chunk):
                    spinner.close()
                    printer.write(event.text)
                elif isinstance(event, Complete):
                    return event.result
                elif isinstance(event, Error):
                    raise event.error
    raise RequestCancelled("the request was cancelled", request_id=stream.request_id)


def answer(request: SamplingRequest, config: str | None, *, as_json: bool) -> None:
    """The whole of `penstock ask`."""
    asyncio.run(_answer(request, config, as_json=as_json))


async def _answer(request: SamplingRequest, config: str | None, *, as_json: bool) -> None:
    async with open_engine(config) as engine:
        note = small_model_note.note_for(engine, request, as_json=as_json)
        if not as_json and request.output_schema is None:
            result = await _stream(engine, request)
        else:
            with terminal.waiting("thinking"):
                async with await engine.create_message_stream(request) as stream:
                    result = await stream.result()
            data = parse_json(result) if request.output_schema is not None else None
            if as_json:
                terminal.print_json(document(result, data))
                return
            terminal.print_json(data)
    terminal.note(footer(result))
    if note is not None:
        small_model_note.show(note, engine, result)


async def _stream(engine: Engine, request: SamplingRequest) -> Result:
    printer = Printer(sys.stdout)
    try:
        result = await speak(engine, request, printer)
    except (PenstockError, asyncio.CancelledError) as error:
        # After Ctrl-C the terminal's own ^C stands there; `run` ends that line.
        on_screen = terminal.is_terminal(sys.stdout) and not isinstance(error, PenstockError)
        if printer.text and not on_screen:
            printer.end()
        raise
    printer.end()
    return result


def parse_json(result: Result) -> Any:
    """The answer as JSON, which it was asked to be."""
    try:
        return json.loads(result.text)
    except json.JSONDecodeError as error:
        if result.stop_reason == "maxTokens":
            message = "the answer was cut off before its JSON was complete; raise --max-tokens"
        else:
            message = f"the answer is not JSON: {result.text[:200]!r}; try again, or another model"
        raise StructuredOutputInvalid(
            message, raw=result.text, provider=result.metadata.provider, model=result.model
        ) from error


def document(result: Result, data: Any = None) -> dict[str, Any]:
    """What `--json` prints; `data` is the parsed answer when there was a schema."""
    found: dict[str, Any] = {
        "text": result.text,
        "data": data,
        "reasoning": result.reasoning or None,
        "model": result.model,
        "provider": result.metadata.provider,
        "stop_reason": result.stop_reason,
        "usage": result.usage,
        "cost_usd": result.cost_usd,
        "request_id": result.request_id,
        "metadata": result.metadata.to_dict(),
    }
    return {name: value for name, value in found.items() if value is not None}


def footer(result: Result) -> str:
    """Who answered, how much and how fast, for the line below an answer."""
    usage, seconds = result.usage, result.metadata.latency_ms / 1000
    facts = [f"{result.metadata.provider}/{result.model}"]
    if usage.input_tokens is not None:
        facts.append(f"{usage.input_tokens} tokens in")
    if usage.output_tokens is not None:
        facts.append(f"{usage.output_tokens} out")
    facts.append(f"{seconds:.1f} s")
    if result.metadata.continued_by is not None:
        facts.append(f"continued by {result.metadata.continued_by} after a broken stream")
    if result.stop_reason == "maxTokens":
        facts.append("cut off: raise --max-tokens for more")
    elif result.metadata.stop_detail == result.stop_reason:
        facts.append(f"may be cut off: the provider's stop reason is {result.stop_reason!r}")
    return " · ".join(facts)
