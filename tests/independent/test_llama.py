"""What the matrix does not ask of a real model behind real HTTP."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from penstock import user
from penstock.contract.exchange import SamplingRequest
from tests.conformance.behaviours import BEHAVIOURS
from tests.conformance.checks.services import WORDS
from tests.conformance.subjects import ANTHROPIC, OPENAI, OPENAI_CHAT, Subject
from tests.independent.llama import Llama
from tests.independent.llama_rows import on_llama

TEXT = BEHAVIOURS["text"]


@pytest.mark.parametrize("behaviour", ["stream", "structured", "embedding", "models"])
async def test_the_row_llamacpp_of_the_registry(llama: Llama, behaviour: str) -> None:
    wanted = BEHAVIOURS[behaviour]
    assert wanted.live is not None
    async with on_llama(OPENAI_CHAT, "/v1", llama, kind="llamacpp").open(wanted) as case:
        await wanted.live(case)


@pytest.mark.parametrize(
    ("subject", "path"), [(ANTHROPIC, ""), (OPENAI, "/v1")], ids=["anthropic", "openai"]
)
async def test_the_count_of_a_prompt_is_what_its_answer_costs(
    llama: Llama, subject: Subject, path: str
) -> None:
    prompt = "How many tokens has this sentence, with all that stands around it?"
    async with on_llama(subject, path, llama).open(TEXT) as case:
        request = SamplingRequest(messages=(user(prompt),), max_tokens=1)
        counted = await case.engine.provider(subject.name).count_tokens(case.model, request)
        asked = await case.ask(prompt, max_tokens=1)
    assert counted is not None
    assert counted == asked.usage.input_tokens


async def test_each_text_of_a_batch_gets_the_vector_that_it_gets_alone(llama: Llama) -> None:
    async with on_llama(OPENAI_CHAT, "/v1", llama).open(TEXT) as case:
        together = (await case.embed(WORDS)).vectors
        alone = [(await case.embed([word])).vectors[0] for word in WORDS]
    for place, vector in enumerate(together):
        nearest = max(range(len(alone)), key=lambda at: _cosine(vector, alone[at]))
        assert nearest == place
        assert _cosine(vector, alone[place]) > 0.999


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other))
