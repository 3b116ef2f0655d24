"""Generators of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from penstock.contract.checks.spelling import unknown_options
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import EmbeddingResult, Metadata


class EmbeddingOptions(TypedDict, total=False):
    """The keyword arguments of embedding generators; every one may be left out."""

    model: str | None
    embedding_dimensions: int | None
    timeout: float | None
    ignore_invalid_options: bool


class Embedder(Protocol):
    """What an embedding generator needs of an engine."""

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        timeout: float | None = None,
        ignore_invalid_options: bool = False,
    ) -> EmbeddingResult:
        """A vector for each text."""
        ...


def value_problems(options: EmbeddingOptions) -> list[Problem]:
    """What is wrong with the values of these options."""
    dimensions = options.get("embedding_dimensions")
    if dimensions is not None and dimensions < 1:
        return [Problem("embedding_dimensions", f"{dimensions} is not positive")]
    return []


class EmbeddingGenerator:
    """Turns texts into vectors, all of one model and one size."""

    def __init__(self, embedder: Embedder, options: EmbeddingOptions) -> None:
        """Raises InvalidRequest at once for an unknown option or a size that is none."""
        problems = unknown_options(options, EmbeddingOptions.__annotations__.keys())
        if problems := problems + value_problems(options):
            raise InvalidRequest.of(problems)
        self._embedder = embedder
        self._options = options

    async def generate(self, text: str) -> tuple[tuple[float, ...], Metadata]:
        """The vector of one text, and what there is to know about the call."""
        vectors, metadata = await self.generate_batch([text])
        return vectors[0], metadata

    async def generate_batch(
        self, texts: Sequence[str]
    ) -> tuple[tuple[tuple[float, ...], ...], Metadata]:
        """A vector for each text, in order; more than the wire takes at once are split."""
        options = self._options
        result = await self._embedder.embed(
            texts,
            model=options.get("model"),
            dimensions=options.get("embedding_dimensions"),
            timeout=options.get("timeout"),
            ignore_invalid_options=options.get("ignore_invalid_options", False),
        )
        return result.vectors, result.metadata
