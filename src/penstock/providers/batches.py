"""Embeddings of more texts than one call takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from penstock.contract.calls import Call, current_calls
from penstock.contract.errors import MalformedResponse
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.providers.http.transport import WireResponse
from penstock.providers.wire.dialect import EmbeddingDialect, Options, WireCall

_AT_ONCE = 8
"""How many calls of one request run side by side."""


async def embed_in_batches(
    dialect: EmbeddingDialect,
    model: str,
    request: EmbeddingRequest,
    options: Options,
    send: Callable[[WireCall, Call], Awaitable[WireResponse]],
) -> Vectors:
    """A vector a text, in the texts' order; the first failure ends the calls that still run."""
    billed = current_calls()
    calls = 0

    async def call(dialect: EmbeddingDialect, texts: Sequence[str]) -> Vectors:
        nonlocal calls
        async with gate:
            calls += 1
            part_of_it = msgspec.structs.replace(request, texts=tuple(texts))
            made = billed.begin(part_of_it)
            response = await send(dialect.encode(model, texts, request, options), made)
        with made:
            part = dialect.decode(response.body, model, response.headers)
        made.answered(part)
        if len(part.vectors) != len(texts):
            raise MalformedResponse(f"{len(part.vectors)} vectors came back for {len(texts)} texts")
        sizes = {len(vector) for vector in part.vectors}
        if len(sizes) > 1 or 0 in sizes:
            raise MalformedResponse(f"the vectors have {sorted(sizes)[:10]} numbers")
        return part

    async def every(dialect: EmbeddingDialect) -> list[Vectors]:
        limit = dialect.batch_limit(model)
        starts = range(0, len(request.texts), limit)
        tasks = [
            asyncio.ensure_future(call(dialect, request.texts[start : start + limit]))
            for start in starts
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    gate = asyncio.Semaphore(_AT_ONCE)
    try:
        parts = await every(dialect)
    except MalformedResponse as error:
        # Only a path that is unknown: a model that is unknown would be so on the other way too.
        if dialect.fallback is None or error.status != 404:
            raise
        parts = await every(dialect.fallback)
    usage = Usage()
    for part in parts:
        usage += part.usage
    vectors = tuple(vector for part in parts for vector in part.vectors)
    return Vectors(vectors, parts[0].model or model, usage, calls)
