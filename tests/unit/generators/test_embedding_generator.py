"""Generators of embeddings: patience, and sizes that a model does not have."""

from __future__ import annotations

from typing import Any, cast

import pytest

import penstock
from penstock import InvalidRequest, RateLimited
from penstock.config.settings import Config, PoolConfig, ProviderConfig
from penstock.contract.exchange import EmbeddingRequest, Vectors
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, engine_with


class Busy(FakeProvider):
    """Too busy for the first so many calls."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        if self.refusals:
            self.refusals -= 1
            raise RateLimited("slow down", retry_after=0.01)
        return await super().embed(model, request)


async def test_a_busy_provider_is_asked_again() -> None:
    async with engine_with(Busy(2), pool=PoolConfig(retries=2)) as engine:
        generator = engine.embedding_generator(model="fake/echo")
        vector, metadata = await generator.generate("red")
    assert len(vector) == metadata.embedding_dims == 64
    assert (metadata.attempts, metadata.api_calls) == (3, 3)


async def test_one_that_stays_busy_says_so_itself() -> None:
    async with engine_with(Busy(9), pool=PoolConfig(retries=1)) as engine:
        with pytest.raises(RateLimited, match="slow down"):
            await engine.embedding_generator(model="fake/echo").generate("red")


async def test_a_size_that_the_model_does_not_have_is_refused_or_dropped_and_reported() -> None:
    async with Engine(Config(providers={"embedded": ProviderConfig()})) as engine:
        strict = engine.embedding_generator(embedding_dimensions=9999)
        with pytest.raises(InvalidRequest, match="1 to 256 dimensions, not 9999"):
            await strict.generate("red")
        lenient = engine.embedding_generator(embedding_dimensions=9999, ignore_invalid_options=True)
        vector, metadata = await lenient.generate("red")
    assert len(vector) == 256
    assert metadata.dropped_options == ("dimensions",)


def test_bad_options_are_reported_together() -> None:
    with pytest.raises(InvalidRequest) as caught:
        cast(Any, penstock.embedding_generator)(provider="fake", embedding_dimensions=0, voice="x")
    assert [each.path for each in caught.value.problems] == ["voice", "embedding_dimensions"]
