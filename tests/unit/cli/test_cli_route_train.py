"""`penstock route train` where a provider tells what prompts are about."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.config.load import load
from penstock.engine.build.learning import outcomes_of
from penstock.routing.learning.features import MOST_MEANING, FeatureMaker, features_name, shortened
from penstock.routing.outcomes.embed_batches import MOST_BYTES, MOST_TEXTS
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Failure, Fault, Scenario, vector_of
from tests.support.wire.seen import Asked, SeenEmbedding, WireRequest
from tests.support.wire.server import WireServer
from tests.unit.cli.harness import Finished, at_terminal, run_penstock

MADE_BY = features_name("remote/vectors")
REFUSED = Scenario(failure=Failure("authentication"))


class Failing(OpenAIChat):
    """Embeds so many batches, and refuses the next."""

    server: WireServer

    def __init__(self, good: int, then: Scenario = REFUSED) -> None:
        self._good = good
        self._then = then

    def read(self, request: WireRequest) -> Asked | None:
        """What was asked."""
        asked = super().read(request)
        if isinstance(asked, SeenEmbedding) and len(self.server.embeddings) == self._good:
            self.server.play(self._then)
        return asked


@asynccontextmanager
async def upstream(folder: Path, dialect: OpenAIChat | None = None) -> AsyncGenerator[WireServer]:
    """A provider that embeds, which the configuration in the folder names."""
    server = WireServer(dialect or OpenAIChat())
    if isinstance(dialect, Failing):
        dialect.server = server
    async with server:
        (folder / "penstock.toml").write_text(
            f'[providers.fake]\n[providers.remote]\nkind = "vllm"\nurl = "{server.url}"\n'
            '[models.default]\ntargets = ["fake/echo", "fake/words-60"]\nrouting = "learned"\n'
            '[routing]\nembedder = "remote/vectors"\n'
        )
        yield server


def write(folder: Path, rows: Sequence[dict[str, Any]], name: str = "o.jsonl") -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(prompts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "model": "echo", "score": 1} for prompt in prompts]


async def train(folder: Path, *arguments: str) -> Finished:
    command = ("route", "train", "o.jsonl", *arguments)
    return await asyncio.to_thread(run_penstock, *command, cwd=folder)


def kept() -> int:
    return outcomes_of(load()).counts().outcomes


def asked(server: WireServer) -> list[str]:
    return [text for call in server.embeddings for text in call.texts]


async def test_what_a_provider_says_of_prompts_is_learnt(folder: Path) -> None:
    long = "Why " * 900
    async with upstream(folder) as server:
        write(folder, [*rows_of(["Why?", long]), {**rows_of(["How?"])[0], "cost_usd": 0.5}])
        finished = await train(folder)
        assert (finished.code, finished.err) == (0, "")
        assert "learnt from 3 prompts, 3 outcomes" in finished.out
        (call,) = server.embeddings
        assert call.model == "vectors"
        assert call.texts == ("Why?", shortened(long, MOST_MEANING), "How?")
    page = outcomes_of(load()).events(made_by=MADE_BY)
    found = [each.outcome.features for each in page.found if each.outcome.quality is not None]
    maker = FeatureMaker()
    assert len(found) == 3
    for text, features in zip(("Why?", long, "How?"), found, strict=True):
        made = maker.vector(text, vector_of(shortened(text, MOST_MEANING)))
        assert features is not None
        assert np.allclose(features, made, atol=1e-3)


async def test_a_gateway_goes_on_with_it(folder: Path) -> None:
    prompts = [f"What is {number} plus {number}?" for number in range(30)]
    async with upstream(folder):
        write(folder, rows_of(prompts))
        assert (await train(folder)).code == 0
        async with penstock.open(load()) as engine:
            assert engine.learning is not None
            await engine.learning.catch_up()
            decision = await engine.route(prompts[0], model="default")
    neighbours = {each.target.model: each.neighbours for each in decision.ranked}
    assert neighbours["echo"]
    assert not neighbours["words-60"]


async def test_calls_are_as_large_as_they_may_be_and_ask_for_no_text_twice(folder: Path) -> None:
    short = [f"Prompt {number}" for number in range(MOST_TEXTS + 50)]
    rows = [
        {"prompt_id": f"{turn}-{number}", "prompt": prompt, "model": "echo", "score": turn}
        for turn in range(2)
        for number, prompt in enumerate(short)
    ]
    async with upstream(folder) as server:
        write(folder, rows)
        told = json.loads((await train(folder, "--json")).out)
        assert (told["prompts"], told["outcomes"]) == (2 * len(short), 2 * len(short))
        assert [len(call.texts) for call in server.embeddings] == [MOST_TEXTS, 50]
        assert asked(server) == short


async def test_calls_of_long_prompts_stay_below_what_a_provider_reads(folder: Path) -> None:
    long = [f"{number} " + "é" * MOST_MEANING for number in range(400)]
    async with upstream(folder) as server:
        write(folder, rows_of(long))
        assert (await train(folder)).code == 0
        sizes = [len("".join(call.texts).encode()) for call in server.embeddings]
        assert len(sizes) == 3
        assert max(sizes) <= MOST_BYTES < sizes[0] + 2 * MOST_MEANING
        assert len(set(asked(server))) == len(asked(server)) == 400


async def test_nobody_asks_for_prompts_without_an_outcome_or_with_features(folder: Path) -> None:
    async with upstream(folder) as server:
        write(folder, rows_of(["Why?"]))
        assert (await train(folder)).code == 0
        command = ("route", "export", "out.jsonl")
        assert (await asyncio.to_thread(run_penstock, *command, cwd=folder)).code == 0
        exported = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        ids = [{"prompt_id": f"p{number}", "prompt": f"Prompt {number}"} for number in range(3)]
        write(folder, ids, "prompts.jsonl")
        write(folder, [{"prompt_id": "p1", "model": "echo", "score": 0}, *exported])
        assert (await train(folder, "--prompts", "prompts.jsonl")).code == 0
        assert asked(server) == ["Why?", "Prompt 1"]
    assert kept() == 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": ""}, "o.jsonl row 2, prompt: is missing"),
        ({"prompt_id": "p", "prompt": ""}, "o.jsonl row 2, prompt: is missing: give the text"),
        ({"prompt": "Why?", "score": 2}, "o.jsonl row 2, score: 2 is not a number from 0 to 1"),
    ],
)
async def test_a_wrong_row_is_told_before_anything_is_paid(
    folder: Path, row: dict[str, Any], said: str
) -> None:
    async with upstream(folder) as server:
        write(folder, [*rows_of(["How?"]), {"model": "echo", "score": 1, **row}])
        finished = await train(folder)
        assert finished.code == 2
        assert said in finished.error_line
        assert server.received == 0
    assert kept() == 0


async def test_a_fault_that_passes_is_not_even_told(folder: Path) -> None:
    async with upstream(folder, Failing(0, Scenario(fault=Fault("html_error")))) as server:
        write(folder, rows_of(["Why?"]))
        finished = await train(folder)
        assert (finished.code, finished.err) == (0, "")
        assert asked(server) == ["Why?", "Why?"]
    assert kept() == 1


@pytest.mark.parametrize("good", [0, 1])
async def test_a_provider_that_fails_is_told_with_how_far_it_was(folder: Path, good: int) -> None:
    prompts = [f"Prompt {number}" for number in range(MOST_TEXTS + 1)]
    async with upstream(folder, Failing(good)) as server:
        write(folder, rows_of(prompts))
        finished = await train(folder)
        assert finished.code == 1
        reached = f"{good * MOST_TEXTS:,} of {len(prompts):,} prompts"
        assert f"remote/vectors has embedded {reached}, and then failed: " in finished.error_line
        assert "nothing was brought in: put that right and train again" in finished.error_line
        assert len(server.embeddings) == good + 1
        assert kept() == 0
    async with upstream(folder):
        assert "learnt from 2049 prompts" in (await train(folder)).out
    assert kept() == len(prompts)


async def test_what_the_embeddings_cost_is_written_down(folder: Path) -> None:
    async with upstream(folder):
        write(folder, rows_of(["Why?"]))
        assert (await train(folder)).code == 0
    command = ("usage", "--json", "--by", "model", "--since", "all")
    used = await asyncio.to_thread(run_penstock, *command, cwd=folder)
    assert [(row["model"], row["requests"]) for row in json.loads(used.out)["rows"]] == [
        ("vectors", 1)
    ]


def test_an_embedder_that_is_not_configured_is_named(folder: Path) -> None:
    with (folder / "penstock.toml").open("a") as file:
        file.write('[routing]\nembedder = "nowhere/vectors"\n')
    write(folder, rows_of(["Why?"]))
    finished = run_penstock("route", "train", "o.jsonl", cwd=folder)
    assert finished.code == 2
    assert "line 7, routing.embedder: there is no provider 'nowhere'" in finished.error_line


async def test_a_bar_shows_people_how_many_prompts_are_embedded(folder: Path) -> None:
    def watched() -> int:
        with at_terminal("route", "train", "o.jsonl", cwd=folder) as terminal:
            terminal.expect("remote/vectors")
            terminal.expect("2 of 2 prompts")
            terminal.expect("learnt from 2 prompts")
            return terminal.wait()

    async with upstream(folder):
        write(folder, rows_of(["Why?", "How?"]))
        assert await asyncio.to_thread(watched) == 0
