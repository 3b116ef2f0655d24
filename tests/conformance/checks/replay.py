"""Histories that another provider has signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

import penstock
from penstock import Config, Message, Reasoning, Text, ToolDefinition, ToolResult, user
from penstock.config.settings import ProviderConfig
from tests.conformance.case import Case, collect, completed
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.anthropic.render import SIGNATURE as ANTHROPIC_SIGNATURE
from tests.support.wire.bedrock import Bedrock, BedrockServer
from tests.support.wire.bedrock.render import SIGNATURE as BEDROCK_SIGNATURE
from tests.support.wire.gemini import Gemini
from tests.support.wire.gemini.render import SIGNATURE as GEMINI_SIGNATURE
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.openai_responses.render import ENCRYPTED
from tests.support.wire.scenario import Call, Scenario
from tests.support.wire.server import WireServer

TOOL = ToolDefinition("look_up", "Finds it.")
OK = Scenario(text=("Yes.",))


@dataclass(frozen=True)
class Signer:
    """A provider that signs, and what of its answers nobody else may get."""

    server: WireServer
    opaque: tuple[str, ...]
    """Bytes of the wire."""
    signs_thoughts: bool = True

    @property
    def secret(self) -> tuple[str, ...]:
        """What is opaque, and the text that is signed by it."""
        return self.opaque + ((_thought(self),) if self.signs_thoughts else ())


def signers() -> Mapping[str, Signer]:
    """By the kind of provider; a new server each time."""
    return {
        "anthropic": Signer(WireServer(Anthropic()), (ANTHROPIC_SIGNATURE,)),
        "bedrock": Signer(BedrockServer(Bedrock()), (BEDROCK_SIGNATURE,)),
        # Its thoughts are summaries; what it signs is the call.
        "gemini": Signer(WireServer(Gemini()), (GEMINI_SIGNATURE,), signs_thoughts=False),
        "openai": Signer(WireServer(OpenAIResponses()), (ENCRYPTED, "rs_1")),
    }


def _thought(signer: Signer) -> str:
    return f"Only {signer.opaque[0][:6]} thinks so."


async def answered(kind: str, signer: Signer) -> list[Message]:
    """A question, this provider's answer to it with a tool call, and the tool's result."""
    call = Call.of(f"call_{kind}", TOOL.name, {})
    scenario = Scenario(
        reasoning=(_thought(signer),), text=("Let me see.",), calls=(call,), stop="tool_use"
    )
    question = user(f"What does {kind} say?")
    async with signer.server:
        signer.server.play(scenario, scenario)
        settings = {"kind": kind, "url": signer.server.url, "auth_token": "k"}
        config = Config(providers={kind: ProviderConfig.model_validate(settings)})
        async with penstock.open(config) as engine:
            handle = await engine.create_message_stream(
                question, max_tokens=99, model=f"{kind}/test-model", tools=[TOOL]
            )
            streamed = completed(await collect(handle)).message
            whole = (
                await engine.create_message(
                    question, max_tokens=99, model=f"{kind}/test-model", tools=[TOOL]
                )
            ).message
    assert streamed == whole, "a stream's parts have another origin"
    thoughts = [part for part in whole.content if isinstance(part, Reasoning)]
    assert thoughts
    assert all(bool(part.origin) is signer.signs_thoughts for part in thoughts)
    results = (ToolResult(use.id, (Text("It is so."),)) for use in whole.tool_uses)
    # As a caller keeps it: the origin has to survive.
    stored = msgspec.json.encode([question, whole, user(*results)])
    return msgspec.json.decode(stored, type=list[Message])


async def _history(kinds: Sequence[str]) -> list[Message]:
    every = signers()
    turns = [turn for kind in kinds for turn in await answered(kind, every[kind])]
    return [*turns, user("And you?")]


async def foreign_reasoning(case: Case) -> None:
    """None of the bytes that others made goes out, whole or streamed; one's own do."""
    every = signers()
    own = every.get(case.provider)
    history = await _history(list(every))
    case.play(OK, OK)
    await case.ask(history, tools=[TOOL])
    completed(await collect(await case.stream(history, tools=[TOOL])))
    bodies = case.upstream.bodies
    assert len(bodies) == 2
    for body in bodies:
        for kind, signer in every.items():
            for secret in signer.secret:
                assert (secret in body) is (signer is own), f"{secret!r} of {kind}"
            assert f"What does {kind} say?" in body
        assert body.count("It is so.") == len(every)


async def foreign_reasoning_live(case: Case) -> None:
    result = await case.ask(await _history(["anthropic"]), max_tokens=8)
    assert result.usage.output_tokens
