"""Every client in front of every scripted upstream: its own dialect, the others, and the fake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import Config
from penstock.config.settings import ModelConfig, PoolConfig
from penstock.engine.engine import Engine
from tests.clients.running import COMMANDS, FIRST_RUN_SECONDS, Programs
from tests.clients.scenarios import AT_THE_DOOR, SCENARIOS, Cell
from tests.clients.table import CLIENTS, Client
from tests.conformance.subjects import (
    ANTHROPIC,
    BEDROCK,
    FAKE,
    GEMINI,
    OLLAMA,
    OPENAI,
    OPENAI_CHAT,
    Subject,
)
from tests.support.wire.fake import FakeUpstream
from tests.unit.server.gateway_support import running_gateway

UPSTREAMS = (FAKE, OPENAI_CHAT, OPENAI, ANTHROPIC, GEMINI, BEDROCK, OLLAMA)

# The first test of a run may have to install the client.
pytestmark = pytest.mark.timeout(FIRST_RUN_SECONDS)


def _cells() -> Iterator[object]:
    for client in CLIENTS:
        for upstream in UPSTREAMS:
            for name in SCENARIOS:
                if name in client.lacks or (name in AT_THE_DOOR and upstream is not FAKE):
                    continue
                yield pytest.param(
                    client, upstream, name, id=f"{client.name}-{upstream.name}-{name}"
                )


@pytest.mark.parametrize(("client", "subject", "name"), list(_cells()))
async def test_scripted(client: Client, subject: Subject, name: str, programs: Programs) -> None:
    async with subject.upstream() as upstream:
        assert upstream is not None
        config = Config(
            providers={subject.name: subject.settings(upstream)},
            models={
                client.model: ModelConfig(
                    targets=(f"{subject.name}/{subject.model}",), adapt="refuse"
                )
            },
            pool=PoolConfig(retries=0),
        )
        engine = Engine(config)
        if isinstance(upstream, FakeUpstream):
            engine.use(upstream)
        async with running_gateway(engine) as gateway:
            await SCENARIOS[name](
                Cell(
                    client=client,
                    program=programs[client.program],
                    gateway=gateway,
                    upstream=upstream,
                    embedding_model=f"{subject.name}/{subject.embedding_model}",
                    embeds="embedding" not in subject.not_applicable,
                )
            )


def test_what_a_client_lacks_is_a_scenario_and_has_a_reason() -> None:
    for client in CLIENTS:
        assert client.lacks.keys() <= SCENARIOS.keys(), client.name
        assert all(len(reason) > 10 for reason in client.lacks.values()), client.name
        # Text, tools, objects, errors and cancellation are what a client is for.
        assert client.lacks.keys() <= {"embeddings", "models"}, client.name


def test_the_rows_have_names_of_their_own_and_every_program_is_used() -> None:
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)
    assert {client.program for client in CLIENTS} == COMMANDS.keys()
