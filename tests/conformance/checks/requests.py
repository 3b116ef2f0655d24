"""What of a request reaches the other side."""

from __future__ import annotations

import json

import pytest

from penstock import Audio, Image, UnsupportedOption, assistant, audio, image, system, user
from tests.conformance.case import Case
from tests.support.wire.scenario import Scenario

OK = Scenario(text=("Yes.",))
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c63f8cfc0f01f00050001ff5cc8b3d90000000049454e44ae426082"
)
WAV = b"RIFF\x28\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00" + bytes(24)
PICTURE: Image = image(PNG)
LINKED: Image = image("https://example.com/cat.png")
SOUND: Audio = audio(WAV)
PREFILLED = (user("Count to three."), assistant("One, two,"))
HISTORY = (user("My name is Ada."), assistant("Hello, Ada."), user("What is my name?"))


async def system_prompt(case: Case) -> None:
    case.play(OK)
    await case.ask([system("And kind."), user("Hi")], system_prompt="Be brief.")
    assert case.seen.system == "Be brief.\n\nAnd kind."
    assert [message.role for message in case.seen.messages] == ["user"]


async def system_prompt_live(case: Case) -> None:
    plain = await case.ask("Hi", max_tokens=1, system_prompt="Be brief.")
    longer = await case.ask("Hi", max_tokens=1, system_prompt="Be brief. " * 20)
    assert plain.usage.input_tokens is not None
    assert longer.usage.input_tokens is not None
    assert longer.usage.input_tokens > plain.usage.input_tokens


async def multi_turn(case: Case) -> None:
    case.play(OK)
    await case.ask(HISTORY)
    assert case.seen.messages == HISTORY


async def multi_turn_live(case: Case) -> None:
    last = await case.ask(HISTORY[-1:], max_tokens=1)
    whole = await case.ask(HISTORY, max_tokens=1)
    assert last.usage.input_tokens is not None
    assert whole.usage.input_tokens is not None
    assert whole.usage.input_tokens > last.usage.input_tokens


async def max_tokens(case: Case) -> None:
    case.play(OK)
    await case.ask(max_tokens=17)
    assert case.seen.max_tokens == 17


async def max_tokens_live(case: Case) -> None:
    for limit in (1, 3):
        result = await case.ask("Tell me a long story.", max_tokens=limit)
        assert result.usage.output_tokens == limit


async def temperature(case: Case) -> None:
    case.play(OK, OK)
    await case.ask(temperature=0.25)
    assert case.seen.temperature == 0.25
    await case.ask()
    assert case.seen.temperature is None


async def temperature_live(case: Case) -> None:
    """The coldest choice is the likeliest, and so the same every time."""
    said = {(await case.ask("Name a colour.", max_tokens=3, temperature=0)).text for _ in range(3)}
    assert len(said) == 1


async def reasoning_level(case: Case) -> None:
    levels = ["none", "low", "med", "high"]
    if not case.engine.provider(case.provider).capabilities(case.model).reasoning_off:
        # A model that always thinks: what it cannot do is refused, never quietly something else.
        with pytest.raises(UnsupportedOption, match="always thinks"):
            await case.ask(reasoning_level=levels.pop(0))
    case.play(*[OK] * len(levels))
    for level in levels:
        await case.ask(reasoning_level=level)
        assert case.seen.reasoning_level == level


async def ask_with_reasoning(case: Case) -> None:
    await case.ask(reasoning_level="high")


async def prefill(case: Case) -> None:
    """The assistant's turn at the end is sent as the last one, for the model to go on with."""
    case.play(OK)
    await ask_with_prefill(case)
    assert case.seen.messages == PREFILLED


async def prefill_live(case: Case) -> None:
    begun = await case.ask([user("Count: one, two"), assistant("one, two, three, four,")])
    assert begun.text


async def ask_with_prefill(case: Case) -> None:
    await case.ask(PREFILLED)


async def structured(case: Case) -> None:
    answer = {"name": "Ada", "age": 36}
    case.play(Scenario(text=(json.dumps(answer),)))
    result = await case.ask("Who?", output_schema=SCHEMA)
    assert case.seen.schema == SCHEMA
    assert json.loads(result.text) == answer


async def structured_live(case: Case) -> None:
    schema = SCHEMA | {"properties": {"name": {"enum": ["Ada", "Bob"]}, "age": {"enum": [1, 2]}}}
    result = await case.ask("Invent a person.", output_schema=schema)
    person = json.loads(result.text)
    assert person.keys() == {"name", "age"}
    assert person["name"] in ("Ada", "Bob")
    assert person["age"] in (1, 2)


async def image_bytes(case: Case) -> None:
    case.play(OK)
    await ask_with_picture(case)
    assert case.seen.messages == (user("What is this?", PICTURE),)


async def ask_with_picture(case: Case) -> None:
    await case.ask(user("What is this?", PICTURE))


async def image_url(case: Case) -> None:
    case.play(OK)
    await ask_with_link(case)
    assert case.seen.messages == (user("What is this?", LINKED),)


async def ask_with_link(case: Case) -> None:
    await case.ask(user("What is this?", LINKED))


async def audio_input(case: Case) -> None:
    case.play(OK)
    await ask_with_sound(case)
    assert case.seen.messages == (user("What do you hear?", SOUND),)


async def ask_with_sound(case: Case) -> None:
    await case.ask(user("What do you hear?", SOUND))


async def authentication(case: Case) -> None:
    case.play(OK)
    await case.ask()
    assert case.seen.key == case.key
    assert case.key not in repr(case.engine.provider(case.provider))


async def extra_headers(case: Case) -> None:
    case.play(OK)
    await case.ask()
    assert case.seen.headers["x-team"] == "conformance"
    assert case.seen.headers["user-agent"].startswith("penstock/")


async def unsupported_refused(case: Case) -> None:
    with pytest.raises(UnsupportedOption) as caught:
        await case.ask(**case.unsupported)
    assert caught.value.options == tuple(case.unsupported)
    assert (caught.value.provider, caught.value.model) == (case.provider, case.model)
    assert case.scripted is None or not case.scripted.seen


async def unsupported_dropped(case: Case) -> None:
    if case.scripted is not None:
        case.play(OK)
    result = await case.ask(max_tokens=2, ignore_invalid_options=True, **case.unsupported)
    assert result.metadata.dropped_options == tuple(case.unsupported)
    assert result.metadata.as_dict()["dropped_options"] == ",".join(case.unsupported)
    if case.scripted is not None:
        for name in case.unsupported:
            assert getattr(case.seen, name) in (None, ())
