"""What an answer holds, whole and streamed."""

from __future__ import annotations

import json

from penstock import Chunk, ReasoningDelta, StreamEvent, Usage
from tests.conformance.case import Case, collect, completed, texts
from tests.support.wire.scenario import Pause, Scenario, Tokens

PIECES = ("The ", "quick ", "brown ", "fox")
TEXT = "".join(PIECES)
EXOTIC = (
    "👩‍👩‍👧‍👦 ",  # one picture out of four, held together by joiners
    "e\u0301\u0327 ",  # a letter and two marks
    "שלום مرحبا \u202e",  # right to left, with an override
    "\u2028\u2029\u0085\ufeff ",  # ends of lines to some parsers, and a byte order mark
    "".join(map(chr, range(0x01, 0x20))) + "\x7f ",
    "𝕌𐍈\U0010fffd",  # beyond the basic plane
)
LARGE = tuple(f"{number:05d} {'x' * 1017} " for number in range(1024))


async def text(case: Case) -> None:
    case.play(Scenario(text=PIECES))
    result = await case.ask("Say something.")
    assert result.text == TEXT
    assert result.role == "assistant"
    assert result.model == case.model
    assert result.metadata.provider == case.provider
    assert result.request_id.startswith("req_")
    assert case.seen.model == case.model
    assert case.seen.stream in (False, None)
    assert [message.text for message in case.seen.messages] == ["Say something."]


async def text_live(case: Case) -> None:
    result = await case.ask("Name three colours.", max_tokens=16)
    assert result.text.strip()
    assert result.role == "assistant"
    assert result.metadata.provider == case.provider


async def stream(case: Case) -> None:
    case.play(Scenario(text=PIECES))
    events = await collect(await case.stream())
    assert texts(events) == list(PIECES)
    result = completed(events)
    assert (result.text, result.model) == (TEXT, case.model)
    assert case.seen.stream in (True, None)


async def stream_live(case: Case) -> None:
    events = await collect(await case.stream("Name three colours.", max_tokens=16))
    assert len(texts(events)) > 1
    assert "".join(texts(events)) == completed(events).text


async def stream_order(case: Case) -> None:
    """`collect` holds every stream to one terminal event at its end; this one has all kinds."""
    case.play(Scenario(reasoning=("Let ", "me ", "think."), text=PIECES))
    events = await collect(await case.stream())
    kinds = [type(event) for event in events[:-1] if not _is_signature(event)]
    assert kinds == [ReasoningDelta] * 3 + [Chunk] * len(PIECES)


def _is_signature(event: StreamEvent) -> bool:
    return isinstance(event, ReasoningDelta) and event.signed is not None


async def stream_order_live(case: Case) -> None:
    events = await collect(await case.stream("Hi", max_tokens=8))
    assert all(isinstance(event, Chunk) for event in events[:-1])


async def stream_arrives_early(case: Case) -> None:
    """The first piece is there while the rest is not even written."""
    pause = Pause(after=1)
    case.play(Scenario(text=PIECES, pause=pause))
    handle = await case.stream()
    assert await anext(handle) == Chunk(PIECES[0])
    pause.resume.set()
    assert texts(await collect(handle)) == list(PIECES[1:])


async def stream_arrives_early_live(case: Case) -> None:
    events = await collect(await case.stream("Tell me a story.", max_tokens=40))
    metadata = completed(events).metadata
    assert metadata.first_token_ms is not None
    assert metadata.first_token_ms < metadata.latency_ms


async def stop_end(case: Case) -> None:
    case.play(Scenario(text=PIECES), Scenario(text=PIECES))
    assert (await case.ask()).stop_reason == "endTurn"
    assert completed(await collect(await case.stream())).stop_reason == "endTurn"


async def stop_end_live(case: Case) -> None:
    schema = {"type": "string", "enum": ["yes"]}
    assert (await case.ask(output_schema=schema)).stop_reason == "endTurn"


async def stop_max_tokens(case: Case) -> None:
    cut = Scenario(text=PIECES, stop="max_tokens")
    case.play(cut, cut)
    result = await case.ask(max_tokens=5)
    assert (result.text, result.stop_reason) == (TEXT, "maxTokens")
    assert case.seen.max_tokens == 5
    assert completed(await collect(await case.stream())).stop_reason == "maxTokens"


async def stop_max_tokens_live(case: Case) -> None:
    result = await case.ask("Tell me a long story about the sea.", max_tokens=5)
    assert result.stop_reason == "maxTokens"
    assert result.usage.output_tokens is not None
    assert result.usage.output_tokens <= 5


async def stop_sequence(case: Case) -> None:
    case.play(Scenario(text=PIECES, stop="stop_sequence"))
    result = await case.ask(stop_sequences=["END", "\n\n"])
    assert case.seen.stop == ("END", "\n\n")
    reported = case.upstream.reports_stop_sequence
    assert result.stop_reason == ("stopSequence" if reported else "endTurn")


async def stop_sequence_live(case: Case) -> None:
    result = await case.ask("Count from 1 to 9.", stop_sequences=["e", "o", "5"], temperature=0)
    assert not set("eo5") & set(result.text)
    assert result.stop_reason == "stopSequence"


async def usage(case: Case) -> None:
    case.play(Scenario(text=PIECES, tokens=Tokens(input=321, output=45)))
    result = await case.ask()
    assert (result.usage.input_tokens, result.usage.output_tokens) == (321, 45)
    assert result.usage.total_tokens == 366
    assert not result.usage.estimated
    assert result.metadata.as_dict()["total_tokens"] == "366"


async def usage_live(case: Case) -> None:
    _plausible((await case.ask(max_tokens=8)).usage)


async def usage_stream(case: Case) -> None:
    case.play(Scenario(text=PIECES, tokens=Tokens(input=321, output=45)))
    found = completed(await collect(await case.stream())).usage
    assert (found.input_tokens, found.output_tokens) == (321, 45)


async def usage_stream_live(case: Case) -> None:
    _plausible(completed(await collect(await case.stream(max_tokens=8))).usage)


def _plausible(found: Usage) -> None:
    assert found.input_tokens is not None
    assert found.input_tokens > 0
    assert found.output_tokens is not None
    assert 0 < found.output_tokens <= 8


async def usage_cached(case: Case) -> None:
    scenario = Scenario(text=PIECES, tokens=Tokens(input=2000, output=45, cached=1024))
    case.play(scenario, scenario)
    for found in (await case.ask(), completed(await collect(await case.stream()))):
        assert found.usage.cached_input_tokens == 1024
        assert found.usage.input_tokens == 2000
        assert found.metadata.as_dict()["cached_input_tokens"] == "1024"


async def usage_cached_live(case: Case) -> None:
    await case.ask("Say the same thing twice, please.", max_tokens=2)
    result = await case.ask("Say the same thing twice, please.", max_tokens=2)
    cached, whole = result.usage.cached_input_tokens, result.usage.input_tokens
    assert cached is not None
    assert whole is not None
    assert 0 < cached <= whole


async def usage_reasoning(case: Case) -> None:
    scenario = Scenario(text=PIECES, tokens=Tokens(input=20, output=300, reasoning=256))
    case.play(scenario, scenario)
    for found in (await case.ask(), completed(await collect(await case.stream()))):
        assert found.usage.reasoning_tokens == 256
        assert found.usage.output_tokens == 300


async def usage_absent(case: Case) -> None:
    """What the provider does not say stays unknown, and is not taken for zero."""
    case.play(Scenario(text=PIECES, tokens=None), Scenario(text=PIECES, tokens=None))
    for found in (await case.ask(), completed(await collect(await case.stream()))):
        assert found.usage == Usage()
        assert "output_tokens" not in found.metadata.as_dict()


async def reasoning_text(case: Case) -> None:
    scenario = Scenario(reasoning=("First ", "this."), text=PIECES)
    case.play(scenario, scenario)
    streamed = await collect(await case.stream())
    for result in (await case.ask(), completed(streamed)):
        assert result.reasoning == "First this."
        assert result.text == TEXT


async def response_id(case: Case) -> None:
    scenario = Scenario(text=PIECES, response_id="answer-77")
    case.play(scenario, scenario)
    for result in (await case.ask(), completed(await collect(await case.stream()))):
        assert result.metadata.response_id == case.upstream.response_id(scenario)
        assert result.metadata.response_status


async def response_id_live(case: Case) -> None:
    metadata = (await case.ask(max_tokens=2)).metadata
    assert metadata.response_id
    assert metadata.response_status


async def unicode(case: Case) -> None:
    case.play(Scenario(text=EXOTIC), Scenario(text=EXOTIC))
    prompt = "".join(EXOTIC)
    assert (await case.ask(prompt)).text == prompt
    assert case.seen.messages[0].text == prompt
    assert "".join(texts(await collect(await case.stream(prompt)))) == prompt


async def unicode_live(case: Case) -> None:
    """A grammar that allows one text only makes even a small model repeat it exactly."""
    wanted = "".join(EXOTIC[:3])
    result = await case.ask(wanted, max_tokens=200, output_schema={"enum": [wanted]})
    assert json.loads(result.text) == wanted


async def large(case: Case) -> None:
    case.play(Scenario(text=LARGE), Scenario(text=LARGE))
    whole = "".join(LARGE)
    assert (await case.ask(max_tokens=9999)).text == whole
    assert completed(await collect(await case.stream(max_tokens=9999))).text == whole


async def split_anywhere(case: Case) -> None:
    """Every byte of the stream comes alone, characters cut in the middle."""
    case.play(Scenario(text=EXOTIC[:3], fragment=1))
    assert texts(await collect(await case.stream())) == list(EXOTIC[:3])
