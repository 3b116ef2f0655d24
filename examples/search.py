"""Search by meaning: texts become vectors, and the nearest one is the answer.

    python examples/search.py            on the embedded model, without a key
    python examples/search.py openai     on a provider of yours, with its key in the environment

Vectors of different models cannot be compared: index and query must come from the same generator.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from math import sqrt

import penstock

ARTICLES = {
    "returns": "You may send goods back within thirty days and we refund the full price.",
    "shipping": "Parcels leave our warehouse within a day and arrive by post.",
    "password": "To choose a new password, click on the link below the login form.",
    "careers": "We are hiring engineers and cooks; write to us about a job.",
}
QUESTIONS = {
    "How do I get my money back?": "returns",
    "I forgot my login password": "password",
    "When will my parcel arrive?": "shipping",
}


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between them: 1 for the same direction."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / sqrt(sum(a * a for a in one) * sum(b * b for b in other))


async def main(provider: str) -> None:
    embedder = penstock.embedding_generator(provider=provider)
    index, metadata = await embedder.generate_batch(list(ARTICLES.values()))
    print(f"{metadata.embedding_count} articles, {metadata.embedding_dims} dimensions each")

    for question, expected in QUESTIONS.items():
        vector, _ = await embedder.generate(question)
        scores = dict(zip(ARTICLES, (similarity(vector, each) for each in index), strict=True))
        best = max(scores, key=scores.__getitem__)
        print(f"   {question:30} {best} ({scores[best]:.2f})")

        assert len(vector) == metadata.embedding_dims
        assert all(-1.001 <= score <= 1.001 for score in scores.values())
        assert best == expected


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "embedded"))
