"""Vectors for texts from wordllama's table: the mean of the tokens' vectors.

The table is read directly: importing wordllama itself needs packages that are not installed.
"""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.contract.exchange import Usage, Vectors
from penstock.providers.embedded.files import REMEDY, not_installed, package_folder, verify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = "wordllama"
DIMENSIONS = 256

_TABLE = Path("weights") / "l2_supercat_256.safetensors"
_TOKENIZER = Path("tokenizers") / "l2_supercat_tokenizer_config.json"


class WordVectors:
    """The table, its tokenizer, and numpy, which come into memory with the first text."""

    def __init__(self) -> None:
        """Cheap: nothing is loaded."""
        self._lock = threading.Lock()
        self._numpy: Any = None
        self._tokenizer: Any = None
        self._table: Any = None

    def embed(self, texts: Sequence[str], dimensions: int | None = None) -> Vectors:
        """A vector of length one for each text; that of a text without any token is all zeros.

        `dimensions` keeps the first of the 256, in which the table holds the most.
        """
        size = DIMENSIONS if dimensions is None else dimensions
        if not 0 < size <= DIMENSIONS:
            problem = f"{MODEL} gives 1 to {DIMENSIONS} dimensions, not {dimensions}"
            raise InvalidRequest.of([Problem("dimensions", problem)])
        tokens = self._tokens(texts)
        return Vectors(
            vectors=tuple(tuple(self._vector(ids, size).tolist()) for ids in tokens),
            model=MODEL,
            usage=Usage(input_tokens=sum(map(len, tokens))),
        )

    def arrays(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The same vectors for whoever goes on computing with them."""
        return [self._vector(ids, DIMENSIONS) for ids in self._tokens(texts)]

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        self._load()
        # The fast one does not tell where in the text each token stands.
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _vector(self, ids: list[int], size: int) -> NDArray[np.float32]:
        numpy = self._numpy
        if not ids:
            return numpy.zeros(size, "float32")
        # Distinct tokens weighted by their number: the memory stays small for a long text.
        counts = Counter(ids)
        times = numpy.fromiter(counts.values(), "float32", len(counts))
        total = times @ self._table.take(list(counts), 0)[:, :size].astype("float32")
        norm = numpy.sqrt(total @ total)
        return total / norm if norm > 0 else total

    def _load(self) -> None:
        with self._lock:
            if self._table is not None:
                return
            verify(MODEL)
            folder = package_folder(MODEL)
            try:
                self._numpy = importlib.import_module("numpy")
                tokenizers: Any = importlib.import_module("tokenizers")
                safetensors: Any = importlib.import_module("safetensors.numpy")
            except ImportError as error:
                raise not_installed() from error
            try:
                self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / _TOKENIZER))
                tensors = safetensors.load_file(folder / _TABLE)
                self._table = tensors["embedding.weight"]
            except Exception as error:  # the Rust libraries raise bare exceptions
                raise ConfigurationError(
                    f"cannot read the word vectors in {folder}: {error}; run: {REMEDY}"
                ) from error


shared = WordVectors()
"""The process's only copy; it stays loaded, for it is small."""


class TableEmbedder:
    """The table as whoever compares texts takes it; loaded with the first text.

    `embed` raises ConfigurationError when the packages of the embedded model are not installed.
    """

    @property
    def name(self) -> str:
        """What distinguishes these vectors from others."""
        return MODEL

    def embed(self, texts: Sequence[str]) -> Sequence[NDArray[np.float32]]:
        """A vector of length one for each text."""
        return shared.arrays(texts)
