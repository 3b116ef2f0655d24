"""Embeddings from wordllama's table, compared with a computation that shares no code with them."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from penstock.contract.errors import InvalidRequest, ModelNotFound
from penstock.contract.exchange import EmbeddingRequest, Vectors
from penstock.providers.embedded.provider import EmbeddedProvider

TEXTS = (
    "The king rules the land.",
    "A queen reigns.",
    "def main(): pass",
    "naïve café ☕ 日本",
    "a a a b",
)


def embed(*texts: str, dimensions: int | None = None, model: str = "wordllama") -> Vectors:
    request = EmbeddingRequest(texts=texts, dimensions=dimensions)
    return asyncio.run(EmbeddedProvider().embed(model, request))


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def folder() -> Path:
    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@functools.cache
def tokenizer() -> Tokenizer:
    path = folder() / "tokenizers" / "l2_supercat_tokenizer_config.json"
    return Tokenizer.from_file(str(path))


def token_ids(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False).ids


def expected(text: str, size: int) -> list[float]:
    """Straight from the file's bytes: header length, JSON header, then rows of 256 halves."""
    with (folder() / "weights" / "l2_supercat_256.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        start = 8 + length + json.loads(file.read(length))["embedding.weight"]["data_offsets"][0]
        rows: list[tuple[float, ...]] = []
        for token in token_ids(text):
            file.seek(start + token * 512)
            rows.append(struct.unpack("<256e", file.read(512)))
    mean = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)][:size]
    norm = math.sqrt(math.fsum(value * value for value in mean))
    return [value / norm for value in mean]


@pytest.mark.parametrize("dimensions", [None, 64, 1])
def test_vectors_are_the_normalised_means_of_the_table(dimensions: int | None) -> None:
    result = embed(*TEXTS, dimensions=dimensions)
    for text, vector in zip(TEXTS, result.vectors, strict=True):
        assert vector == pytest.approx(expected(text, dimensions or 256), abs=1e-5)
        assert dot(vector, vector) == pytest.approx(1.0, abs=1e-5)


def test_tokens_are_counted() -> None:
    assert embed(*TEXTS).usage.input_tokens == sum(len(token_ids(text)) for text in TEXTS)


def test_related_texts_are_nearer_than_unrelated_ones() -> None:
    cat, kitten, engine = embed(
        "The cat sleeps on the sofa.", "A kitten naps on the couch.", "Diesel engines need oil."
    ).vectors
    assert dot(cat, kitten) > dot(cat, engine) + 0.1


def test_an_empty_text_is_a_vector_of_zeros() -> None:
    empty, word = embed("", "word").vectors
    assert empty == (0.0,) * 256
    assert dot(word, word) == pytest.approx(1.0, abs=1e-5)
    assert embed().vectors == ()


def test_a_very_long_text_is_embedded() -> None:
    long, short = embed("word " * 20_000, "word " * 20).vectors
    assert dot(long, short) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("dimensions", [257, 0, -1])
def test_impossible_dimensions_are_refused(dimensions: int) -> None:
    with pytest.raises(InvalidRequest, match=f"1 to 256 dimensions, not {dimensions}"):
        embed("x", dimensions=dimensions)


@pytest.mark.parametrize("model", ["default", "smollm2"])
def test_the_bundled_names_mean_the_table(model: str) -> None:
    assert embed("x", model=model).model == "wordllama"


def test_other_models_make_no_embeddings() -> None:
    with pytest.raises(ModelNotFound, match="'gpt-9' makes no embeddings; use 'wordllama'"):
        embed("x", model="gpt-9")
