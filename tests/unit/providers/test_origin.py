"""What one provider has signed is sent to no other, also when that other takes over."""

from __future__ import annotations

import msgspec
import pytest

import penstock
from penstock import Config, Message, Reasoning, Result, Text, assistant, user
from penstock.config.settings import ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.events import Chunk, ReasoningDelta
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.providers.profiles import ModelProfile
from penstock.providers.signed_reasoning import legible, origin_of, stamped, stamped_events
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.anthropic.render import SIGNATURE
from tests.support.wire.dialect import WireDialect
from tests.support.wire.gemini import Gemini
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.openai_responses.render import ENCRYPTED
from tests.support.wire.scenario import Scenario
from tests.support.wire.server import WireServer

OWN = Reasoning("mine", signature="s1", origin="a/one")
FOREIGN = Reasoning("theirs", signature="s2", origin="b/two")
CALLERS = Reasoning("somebody's", signature="s3")


def asked(*turns: Message) -> SamplingRequest:
    return SamplingRequest(messages=turns, max_tokens=9)


def test_only_what_comes_from_elsewhere_is_left_out() -> None:
    request = asked(user("a"), assistant(OWN, FOREIGN, CALLERS, "b"), user("c"))
    kept = legible(request, "a/one")
    assert kept.messages == (user("a"), assistant(OWN, CALLERS, "b"), user("c"))
    assert legible(kept, "a/one") is kept


def test_a_turn_of_nothing_else_is_left_out_whole() -> None:
    request = asked(user("a"), assistant(FOREIGN), user("c"))
    assert legible(request, "a/one").messages == (user("a"), user("c"))


def test_only_signed_parts_are_stamped() -> None:
    content = (Reasoning("open"), Reasoning("signed", signature="s"), Text("t"))
    reply = Reply(content, "m", "endTurn", Usage())
    marked = stamped(reply, "a/one").content
    assert marked == (
        Reasoning("open"),
        Reasoning("signed", signature="s", origin="a/one"),
        Text("t"),
    )
    plain = Reply((Text("t"),), "m", "endTurn", Usage())
    assert stamped(plain, "a/one") is plain


def test_a_stream_tells_where_a_thought_was_signed() -> None:
    signed = ReasoningDelta("", Reasoning("signed", signature="s"))
    events = stamped_events([ReasoningDelta("signed"), signed, Chunk("t")], "a/one")
    assert events == [
        ReasoningDelta("signed"),
        ReasoningDelta("", Reasoning("signed", signature="s", origin="a/one")),
        Chunk("t"),
    ]
    plain = [Chunk("t")]
    assert stamped_events(plain, "a/one") is plain


def test_an_origin_survives_json_and_is_optional_there() -> None:
    stored = msgspec.json.encode(assistant(OWN))
    assert msgspec.json.decode(stored, type=Message) == assistant(OWN)
    old = b'{"role":"assistant","content":[{"type":"reasoning","text":"x","signature":"s"}]}'
    assert msgspec.json.decode(old, type=Message) == assistant(Reasoning("x", signature="s"))


def test_a_family_may_read_its_thoughts_on_every_account() -> None:
    assert origin_of("d", "work", ModelProfile()) == "d/work"
    assert origin_of("d", "work", ModelProfile(options={"origin": "claude"})) == "claude"


async def conversation(first: str, second: str, *, streamed: bool) -> tuple[Result, bytes, bytes]:
    """Two turns of one model: `first` answers and goes down, `second` takes the next turn over.

    Returns the second answer, and the bodies that a second turn has at each of them.
    """
    scenario = Scenario(reasoning=("I think so.",), text=("Yes.",))
    servers = {
        "first": WireServer(DIALECTS[first]()),
        "second": WireServer(DIALECTS[second]()),
    }
    async with servers["first"] as one, servers["second"] as two:
        config = Config(
            pool=PoolConfig(retries=0),
            providers={
                name: ProviderConfig.model_validate(
                    {"kind": kind, "url": servers[name].url, "auth_token": "k"}
                )
                for name, kind in (("first", first), ("second", second))
            },
            models={
                "both": ModelConfig(targets=(f"first/{MODELS[first]}", f"second/{MODELS[second]}"))
            },
        )
        async with penstock.open(config) as engine:

            async def ask(*turns: Message) -> Result:
                if not streamed:
                    return await engine.create_message(turns, max_tokens=99, model="both")
                handle = await engine.create_message_stream(turns, max_tokens=99, model="both")
                return await handle.result()

            one.play(scenario, scenario)
            two.play(scenario)
            begun = (user("Really?"), (await ask(user("Really?"))).message, user("Sure?"))
            assert (await ask(*begun)).metadata.provider == "first"
            own = one.exchanges[-1].body
            await one.stop()
            answer = await ask(*begun)
            return answer, own, two.exchanges[-1].body


DIALECTS: dict[str, type[WireDialect]] = {
    "anthropic": Anthropic,
    "gemini": Gemini,
    "openai": OpenAIResponses,
}
MODELS = {"anthropic": "claude-haiku-5-5", "gemini": "gemini-3.8-flash", "openai": "gpt-6-luna"}
SIGNED = {"anthropic": SIGNATURE, "openai": ENCRYPTED}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("anthropic", "openai"),
        ("openai", "anthropic"),
        ("anthropic", "gemini"),
        ("openai", "gemini"),
        # Another account of the same API cannot read what is encrypted for the first.
        ("openai", "openai"),
    ],
)
async def test_the_provider_that_takes_over_gets_none_of_it(
    first: str, second: str, streamed: bool
) -> None:
    answer, own, body = await conversation(first, second, streamed=streamed)
    assert SIGNED[first].encode() in own
    assert b"I think so." in own
    assert (answer.metadata.provider, answer.metadata.attempts) == ("second", 2)
    assert answer.text == "Yes."
    assert SIGNED[first].encode() not in body
    assert b"I think so." not in body
    assert b"Yes." in body


async def test_claude_reads_its_thoughts_on_every_account() -> None:
    answer, own, body = await conversation("anthropic", "anthropic", streamed=False)
    assert answer.metadata.provider == "second"
    assert SIGNATURE.encode() in own
    assert SIGNATURE.encode() in body
