"""Embeddings, token counts, the model list, and health."""

from __future__ import annotations

import math

from penstock import TokenCount, ToolDefinition, assistant, user
from tests.conformance.case import Case
from tests.support.wire.scenario import Failure, Scenario, vector_of
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
    # They are asked for at the same time, and any may arrive first.
    calls = sorted(case.scripted.embeddings, key=lambda call: words.index(call.texts[0]))
    assert [len(call.texts) for call in calls] == [limit, limit, 1]
    assert [text for call in calls for text in call.texts] == words
    assert list(result.vectors) == [vector_of(word) for word in words]
    assert result.metadata.usage.input_tokens == 2 * len(words)


async def ask_for_embedding(case: Case) -> None:
    await case.embed(["river"])


TALK = (user("How deep is the river?"), assistant("Three feet."), user("And the lake?"))
TOOL = ToolDefinition("depth", "How deep a water is.", {"type": "object", "properties": {}})


async def count_tokens(case: Case) -> None:
    """All that the model would read is counted, and nothing is asked of it."""
    counted = await case.count(TALK, system_prompt="Be exact.", tools=[TOOL])
    (prompt,) = case.upstream.counts
    assert case.model.endswith(prompt.model)
    assert prompt.messages == TALK
    assert (prompt.system, [tool.name for tool in prompt.tools]) == ("Be exact.", ["depth"])
    assert counted == TokenCount(case.upstream.count_of(prompt), False, case.provider, case.model)
    assert not case.upstream.seen


async def count_tokens_live(case: Case) -> None:
    """The count is what an answer then reports as read."""
    for options in ({}, {"system_prompt": "Be exact."}, {"tools": [TOOL]}):
        counted = await case.count(TALK, **options)
        answered = await case.ask(TALK, max_tokens=1, **options)
        assert counted.tokens == answered.usage.input_tokens
        assert not counted.estimated


async def count_estimated(case: Case) -> None:
    """A server without the call, or without the model in it, is no reason to know nothing."""
    if case.counted:
        case.play(Scenario(failure=Failure("unknown_model")))
    counted = await case.count(TALK, system_prompt="Be exact.")
    assert case.upstream.received == case.counted
    assert (counted.estimated, counted.provider, counted.model) == (True, case.provider, case.model)
    spoken = sum(len(message.text.split()) for message in TALK)
    assert spoken < counted.tokens < 10 * spoken


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
