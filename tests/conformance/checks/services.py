"""Embeddings, the model list, and health."""

from __future__ import annotations

import math

from tests.conformance.case import Case
from tests.support.wire.scenario import vector_of
from tests.support.wire.server import WireServer

WORDS = ("river", "stone", "bridge", "water wheel")


async def embedding(case: Case) -> None:
    result = await case.embed(["river"])
    (vector,) = result.vectors
    assert any(vector)
    assert all(math.isfinite(number) for number in vector)
    facts = result.metadata.as_dict()
    assert facts["embedding_count"] == "1"
    assert facts["embedding_dims"] == str(len(vector))
    assert facts["provider"] == case.provider
    assert result.metadata.usage.input_tokens
    assert result.model == case.embedding_model


async def embedding_batch(case: Case) -> None:
    """Each text gets the vector that it gets alone, at its own place."""
    together = (await case.embed(WORDS)).vectors
    alone = [(await case.embed([word])).vectors[0] for word in WORDS]
    assert list(together) == alone
    assert len(set(together)) == len(WORDS)


async def embedding_dimensions(case: Case) -> None:
    for size in (16, 32):
        result = await case.embed(WORDS[:2], dimensions=size)
        assert [len(vector) for vector in result.vectors] == [size, size]


async def embedding_split(case: Case) -> None:
    assert isinstance(case.scripted, WireServer)
    limit = case.scripted.dialect.batch_limit
    assert limit is not None
    words = [f"word {number}" for number in range(2 * limit + 1)]
    result = await case.embed(words)
    calls = case.scripted.embeddings
    assert [len(call.texts) for call in calls] == [limit, limit, 1]
    assert [text for call in calls for text in call.texts] == words
    assert list(result.vectors) == [vector_of(word) for word in words]
    assert result.metadata.usage.input_tokens == 2 * len(words)


async def ask_for_embedding(case: Case) -> None:
    await case.embed(["river"])


async def model_list(case: Case) -> None:
    (health,) = await case.engine.provider_health()
    assert (health.provider, health.status, health.error) == (case.provider, "up", None)
    assert [model.id for model in health.models] == list(case.model_ids)


async def health_down(case: Case) -> None:
    await case.upstream.stop()
    (health,) = await case.engine.provider_health()
    assert health.status == "down"
    assert health.error
    assert health.models == ()
