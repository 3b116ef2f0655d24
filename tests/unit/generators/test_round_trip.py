"""Any type goes to any provider in the words that it takes, and comes back as a value at once."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import Config
from penstock.contract.messages import JSONObject
from penstock.generators.answer_type import AnswerType
from penstock.providers.anthropic import schema as anthropic
from penstock.providers.bedrock import schema as bedrock
from penstock.providers.gemini import schema as gemini
from penstock.providers.ollama import schema as ollama
from penstock.providers.openai_wire import schema as openai
from penstock.providers.wire.schemas import is_circular
from penstock.testing import FakeProvider, engine_with
from tests.conformance.subjects import (
    ANTHROPIC,
    BEDROCK,
    GEMINI,
    OLLAMA,
    OPENAI,
    OPENAI_CHAT,
    Subject,
)
from tests.support.families import Chain, Tree, kinds, models
from tests.support.instances import instance
from tests.support.wire import subsets
from tests.support.wire.scenario import Scenario
from tests.support.wire.seen import Seen
from tests.support.wire.server import WireServer

WIRES = (OPENAI, OPENAI_CHAT, ANTHROPIC, GEMINI, BEDROCK, OLLAMA)
types = st.one_of(models, kinds)
seeds = st.integers(min_value=0, max_value=2**32)
slowly = HealthCheck.too_slow


class Asked(NamedTuple):
    value: Any
    metadata: penstock.Metadata
    said: str
    schema: Mapping[str, Any] | None


async def _ask(subject: Subject, kind: Any, random: Random) -> Asked:
    said = ""

    def improvise(seen: Seen) -> Scenario:
        nonlocal said
        said = json.dumps(instance(_asked_for(seen), random), ensure_ascii=False)
        return Scenario(text=(said[:5], said[5:]))

    async with subject.upstream() as server:
        assert isinstance(server, WireServer)
        server.improvise = improvise
        config = Config(providers={subject.name: subject.settings(server)})
        async with penstock.open(config) as engine:
            generator = engine.structured_generator(
                kind, "Go.", model=f"{subject.name}/{subject.model}", max_tokens=99
            )
            if random.random() < 0.5:
                value, metadata = await generator.generate()
            else:
                async with generator.stream() as stream:
                    value, metadata = await stream.result()
        return Asked(value, metadata, said, server.seen[-1].schema)


def _asked_for(seen: Seen) -> dict[str, Any]:
    """The schema, from its field or from the words that it was sent in."""
    if seen.schema is not None:
        return dict(seen.schema)
    assert seen.system is not None
    return json.loads(seen.system.rpartition("\n")[2])


@pytest.mark.parametrize("subject", WIRES, ids=lambda each: each.name)
@settings(max_examples=15, suppress_health_check=[slowly])
@given(kind=types, seed=seeds)
def test_every_type_is_answered_at_the_first_attempt(
    subject: Subject, kind: Any, seed: int
) -> None:
    """The servers refuse whatever is outside the subset that their API publishes."""
    asked = asyncio.run(_ask(subject, kind, Random(seed)))
    assert asked.metadata.api_calls == 1, f"{asked.said} had to be mended"
    assert asked.value == AnswerType(kind).read(asked.said)


@settings(max_examples=30, suppress_health_check=[slowly])
@given(kind=types)
def test_the_fake_answers_every_type(kind: Any) -> None:
    async def ask() -> penstock.Metadata:
        async with engine_with(FakeProvider()) as engine:
            generator = engine.structured_generator(kind, "Go.", max_tokens=9999)
            return (await generator.generate())[1]

    assert asyncio.run(ask()).api_calls == 1


def _errors(schema: JSONObject, value: Any) -> Iterable[object]:
    validator: Any = jsonschema.Draft202012Validator(schema)
    return validator.iter_errors(value)


def _if_sayable(
    adapt: Callable[[Any], JSONObject], is_sayable: Callable[[JSONObject], bool]
) -> Callable[[JSONObject], JSONObject | None]:
    return lambda schema: adapt(schema) if is_sayable(schema) else None


ADAPTERS: dict[
    str, tuple[Callable[[JSONObject], JSONObject | None], Callable[[JSONObject], None]]
] = {
    # Strict mode has null for what is left out, which a value of the type has not.
    "openai": (
        lambda schema: None if is_circular(schema) else openai.strict_schema(schema),
        subsets.check_openai,
    ),
    "anthropic": (_if_sayable(anthropic.adapt, anthropic.is_sayable), subsets.check_anthropic),
    "bedrock": (_if_sayable(bedrock.adapt, bedrock.is_sayable), subsets.check_bedrock),
    "gemini": (_if_sayable(gemini.adapt_schema, gemini.is_sayable), subsets.check_gemini),
    "ollama": (ollama.for_answer, subsets.check_ollama),
}


@settings(max_examples=60, suppress_health_check=[slowly])
@given(kind=types, seed=seeds)
def test_what_is_sent_allows_every_value_of_the_type(kind: Any, seed: int) -> None:
    schema = AnswerType(kind).output.schema
    before = copy.deepcopy(schema)
    value = instance(schema, Random(seed), whole=not is_circular(schema))
    for adapt, check in ADAPTERS.values():
        sent = adapt(schema)
        if sent is not None:
            check(sent)
            assert list(_errors(sent, value)) == []
    assert schema == before, "the caller's schema was changed"


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        pytest.param(ANTHROPIC, Tree, id="anthropic: a type that holds itself"),
        pytest.param(ANTHROPIC, dict[str, int], id="anthropic: free keys"),
        pytest.param(BEDROCK, Tree, id="bedrock: a type that holds itself"),
        pytest.param(BEDROCK, dict[str, int], id="bedrock: free keys"),
        pytest.param(GEMINI, Chain, id="gemini: a type that must hold itself"),
    ],
)
async def test_what_an_api_cannot_say_is_asked_for_in_words(subject: Subject, kind: Any) -> None:
    """A closed object without properties, for example, would be all that a map may be."""
    asked = await _ask(subject, kind, Random(3))
    assert asked.schema is None
    assert asked.metadata.api_calls == 1
    assert asked.value == AnswerType(kind).read(asked.said)


@pytest.mark.parametrize(
    ("subject", "kind"),
    [(GEMINI, Tree), (GEMINI, dict[str, int]), (OPENAI, Tree), (OPENAI_CHAT, Chain)],
    ids=["gemini: itself, or nothing", "gemini: free keys", "openai: itself", "chat: itself"],
)
async def test_what_an_api_can_say_is_not_asked_for_in_words(subject: Subject, kind: Any) -> None:
    assert (await _ask(subject, kind, Random(3))).schema is not None
