"""Transcription on Gemini: a model that hears is asked in words."""

from typing import Any

import msgspec
import pytest

from penstock import Audio, audio, transcription_generator
from penstock.contract.errors import (
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    PenstockError,
)
from penstock.contract.exchange import Reply, Transcript, TranscriptionRequest, Usage
from penstock.contract.messages import Reasoning, Text
from penstock.providers.gemini import DIALECT
from penstock.providers.gemini.transcription import MAX_INLINE_BYTES, ask, read
from penstock.providers.profiles import ModelProfile
from tests.support.raw import RawServer, answering, whole
from tests.support.sound import wav

WAV = audio(wav())
FLASH = "gemini-3.8-flash"


def profile(model: str = FLASH) -> ModelProfile:
    return DIALECT.catalogue.profile("gemini", model, {})


def sent(request: TranscriptionRequest, model: str = FLASH) -> dict[str, Any]:
    known = profile(model)
    call = DIALECT.encode(model, ask(request, known), known, False)
    assert call.path == f"/v1beta/models/{model}:generateContent"
    return msgspec.json.decode(call.body or b"")


def test_the_recording_goes_inline_behind_its_instructions() -> None:
    wire = sent(TranscriptionRequest(audio=WAV))
    (turn,) = wire["contents"]
    instructions, sound = turn["parts"]
    assert sound == {"inlineData": {"mimeType": "audio/wav", "data": WAV.data}}
    assert instructions["text"].startswith("Write down word for word")
    assert "code" not in instructions["text"]
    assert wire["generationConfig"] == {"maxOutputTokens": 65_536}


def test_hints_stand_in_the_instructions() -> None:
    wire = sent(TranscriptionRequest(audio=WAV, language="de", prompt="Zoë", temperature=0.5))
    text = wire["contents"][0]["parts"][0]["text"]
    assert "The language has the code de." in text
    assert text.endswith("no part of it:\nZoë")
    assert wire["generationConfig"]["temperature"] == 0.5


def test_a_model_of_unknown_size_is_not_asked_for_more_than_any_can_give() -> None:
    known = profile("my-gemini")
    assert ask(TranscriptionRequest(audio=WAV), known).max_tokens == 8192


@pytest.mark.parametrize("model", ["gemma-3-27b-it", "gemini-embedding-2", "models/gemma-4"])
def test_models_that_do_not_hear(model: str) -> None:
    assert not profile(model).capabilities.transcription


def test_a_recording_too_large_to_go_inline_is_refused_with_both_sizes() -> None:
    fits = Audio("A" * (MAX_INLINE_BYTES - 4096), "audio/wav")
    body = DIALECT.encode(FLASH, ask(TranscriptionRequest(audio=fits), profile()), profile(), False)
    assert len(body.body or b"") <= MAX_INLINE_BYTES
    more = Audio(fits.data + "AAAA", "audio/wav")
    with pytest.raises(InvalidRequest, match=f"{MAX_INLINE_BYTES + 4} bytes.*send it in pieces"):
        ask(TranscriptionRequest(audio=more), profile())
    with pytest.raises(InvalidRequest):
        ask(TranscriptionRequest(audio=fits, prompt="é"), profile())


def test_the_words_are_the_answer_without_its_thoughts() -> None:
    reply = Reply(
        (Reasoning("Hm."), Text("Good "), Text("morning.\n")),
        "gemini-3.8-flash-001",
        "endTurn",
        Usage(9, 3),
        "resp_1",
        "STOP",
        ("reasoning_level",),
        2,
    )
    assert read(reply) == Transcript(
        text="Good morning.",
        model="gemini-3.8-flash-001",
        usage=Usage(9, 3),
        response_id="resp_1",
        response_status="STOP",
        dropped_options=("reasoning_level",),
        api_calls=2,
    )


def test_silence_is_no_words() -> None:
    assert read(Reply((), "m", "endTurn", Usage())).text == ""


def test_half_a_transcript_is_no_transcript() -> None:
    with pytest.raises(ContextLengthExceeded, match="send the recording in pieces"):
        read(Reply((Text("and so on"),), "m", "maxTokens", Usage()))


def answer(text: str, reason: str, **more: Any) -> bytes:
    candidate = {"content": {"parts": [{"text": text}]}, "finishReason": reason, **more}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2}
    return whole(msgspec.json.encode({"candidates": [candidate], "usageMetadata": usage}))


async def test_a_paused_transcript_is_continued() -> None:
    first = answer("Good ", "CONTINUATION", continuationToken="t1")
    async with RawServer(answering(first, answer("morning.", "STOP"))) as server:
        generator = transcription_generator(provider="gemini", url=server.url, auth_token="k")
        text, metadata = await generator.generate(WAV)
    assert text == "Good morning."
    assert (metadata.model, metadata.api_calls, metadata.usage) == (FLASH, 2, Usage(18, 4))
    sizes = [len(request.body) for request in server.requests]
    assert len(sizes) == 2
    assert msgspec.json.decode(server.requests[1].body)["continuationToken"] == "t1"


@pytest.mark.parametrize(
    ("reason", "error"),
    [("SAFETY", ContentRejected), ("MAX_TOKENS", ContextLengthExceeded)],
)
async def test_an_answer_that_broke_off_is_an_error(
    reason: str, error: type[PenstockError]
) -> None:
    async with RawServer(answering(answer("Good", reason))) as server:
        generator = transcription_generator(provider="gemini", url=server.url, auth_token="k")
        with pytest.raises(error) as caught:
            await generator.generate(WAV)
    assert (caught.value.provider, caught.value.model) == ("gemini", FLASH)
