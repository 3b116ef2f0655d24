"""A model that learns which of its targets is good at what, from what it is told.

    python examples/routing.py

Two scripted targets stand for a model that calculates and one that writes. Each answer is scored,
as your users or your tests would do it; after some questions each kind goes to whoever is good at
it, and the router says why.
"""

from __future__ import annotations

import asyncio
import tempfile

import penstock
from penstock import Config

QUESTIONS = {
    "one/calculator": "What is {0} plus {0}, and how many apples are left if {0} friends take one?",
    "two/writer": "Write a short and cheerful poem about the weather in a garden, number {0}",
}


def config(folder: str) -> Config:
    return Config.model_validate(
        {
            "providers": {"one": {"kind": "fake"}, "two": {"kind": "fake"}},
            "models": {"assistant": {"targets": list(QUESTIONS), "routing": "learned"}},
            "storage": {"url": f"sqlite:///{folder}/penstock.db"},
            # From the first request on; by default not before outcomes show that it is better.
            "routing": {"trust": "always", "seed": 1},
        }
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with penstock.open(config(folder)) as engine:
            right: list[bool] = []
            for number in range(160):
                for expert, question in QUESTIONS.items():
                    result = await engine.create_message(
                        question.format(number), model="assistant", max_tokens=50
                    )
                    good = f"{result.metadata.provider}/{result.metadata.model}" == expert
                    await engine.record_feedback(result.request_id, score=float(good))
                    right.append(good)
                if number % 10 == 0 and engine.learning is not None:
                    await engine.learning.catch_up()  # it does so by itself once a second
            print(f"right at first: {sum(right[:40])} of 40, at last: {sum(right[-40:])} of 40")
            decision = await engine.route(QUESTIONS["two/writer"].format("one"), model="assistant")
            print(decision.reason)
    assert sum(right[-40:]) > 30, "it has not learnt"
    assert str(decision.targets[0]) == "two/writer"


if __name__ == "__main__":
    asyncio.run(main())
