"""Embeds texts batch by batch and prints the vectors."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any

import msgspec

from penstock.cli.setup.engines import open_engine
from penstock.cli.ui import terminal
from penstock.contract.exchange import EmbeddingResult, Usage
from penstock.engine.engine import Engine

BATCH = 256
"""Texts a call, so that long input shows progress and its first vectors come early."""
SHOWN_ROWS = 20
SHOWN_VALUES = 5
SHOWN_TEXT = 40


def embed(
    texts: Sequence[str],
    config: str | None,
    *,
    model: str | None,
    dimensions: int | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """The whole of `penstock embed`."""

    async def run() -> list[EmbeddingResult]:
        results: list[EmbeddingResult] = []
        async with open_engine(config) as engine:
            with _progress(len(texts)) as advance:
                for start in range(0, len(texts), BATCH):
                    batch = texts[start : start + BATCH]
                    result = await _embed(engine, batch, model, dimensions, timeout)
                    if lines:
                        _print_lines(batch, result)
                    else:
                        results.append(result)
                    advance(len(batch))
        return results

    lines = not as_json and not terminal.is_terminal(sys.stdout)
    results = asyncio.run(run())
    if as_json:
        terminal.print_json(_document(texts, results))
    elif not lines:
        _print_table(texts, results)


async def _embed(
    engine: Engine,
    batch: Sequence[str],
    model: str | None,
    dimensions: int | None,
    timeout: float | None,
) -> EmbeddingResult:
    return await engine.embed(batch, model=model, dimensions=dimensions, timeout=timeout)


@contextlib.contextmanager
def _progress(total: int) -> Generator[Callable[[int], None]]:
    if total <= BATCH or not terminal.is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("[dim]embedding", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal.console(stderr=True), transient=True) as progress:
        task = progress.add_task("embedding", total=total)
        yield lambda count: progress.advance(task, count)


def _print_lines(texts: Sequence[str], result: EmbeddingResult) -> None:
    encode = msgspec.json.encode
    for text, vector in zip(texts, result.vectors, strict=True):
        sys.stdout.write(encode({"text": text, "embedding": vector}).decode() + "\n")
    sys.stdout.flush()


def _print_table(texts: Sequence[str], results: Sequence[EmbeddingResult]) -> None:
    vectors = [vector for result in results for vector in result.vectors]
    rows = [
        (
            _short(text),
            str(len(vector)),
            " ".join(f"{value:+.3f}" for value in vector[:SHOWN_VALUES])
            + (" ..." if len(vector) > SHOWN_VALUES else ""),
        )
        for text, vector in zip(texts[:SHOWN_ROWS], vectors, strict=False)
    ]
    terminal.print_table(("text", "dims", "first values"), rows)
    hidden = len(texts) - len(rows)
    more = f"and {hidden} more; " if hidden else ""
    metadata = results[0].metadata
    terminal.note(
        f"\n{more}{metadata.provider}/{metadata.model} · pipe the output, or use --json, "
        "for whole vectors"
    )


def _document(texts: Sequence[str], results: Sequence[EmbeddingResult]) -> dict[str, Any]:
    first = results[0].metadata
    usage = Usage()
    for result in results:
        usage += result.metadata.usage
    total = msgspec.structs.replace(
        first,
        usage=usage,
        latency_ms=sum(result.metadata.latency_ms for result in results),
        api_calls=sum(result.metadata.api_calls for result in results),
        embedding_count=len(texts),
    )
    vectors = (vector for result in results for vector in result.vectors)
    return {
        "model": first.model,
        "provider": first.provider,
        "dimensions": first.embedding_dims,
        "embeddings": [
            {"text": text, "embedding": vector} for text, vector in zip(texts, vectors, strict=True)
        ],
        "usage": usage,
        "metadata": total.to_dict(),
    }


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_TEXT else line[: SHOWN_TEXT - 3] + "..."
