"""Recordings, and the words in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from penstock import PenstockError, Usage, audio
from tests.conformance.case import Case
from tests.conformance.checks.errors import EXPECTED, located
from tests.support.sound import wav
from tests.support.wire.scenario import Failure, FailureKind, Scenario, Tokens

SAID = Scenario(text=("Good ", "morning, ", "Zoë."), tokens=Tokens(21, 4))
KINDS: tuple[FailureKind, ...] = (
    "rate_limit",
    "authentication",
    "unknown_model",
    "bad_request",
    "server_error",
)


async def transcription(case: Case) -> None:
    case.play(SAID)
    result = await case.transcribe(wav())
    assert result.text == "Good morning, Zoë."
    # Some say how much of it was sound.
    assert result.usage in (Usage(21, 4), Usage(21, 4, input_audio_tokens=21))
    facts = result.metadata.as_dict()
    assert (facts["provider"], facts["api_calls"], facts["attempts"]) == (case.provider, "1", "1")
    assert result.model
    assert result.request_id.startswith("req_")
    (heard,) = case.upstream.transcriptions
    assert (heard.model, heard.audio, heard.mime_type) == (case.model, wav(), "audio/wav")


async def options(case: Case) -> None:
    case.play(SAID, SAID)
    await case.transcribe(language="de", prompt="Müller\r\n--Lüdenscheidt", temperature=0.5)
    await case.transcribe()
    full, bare = case.upstream.transcriptions
    told = "\n".join(full.hints)
    assert "de" in told.split() or "code de." in told
    assert "Müller\r\n--Lüdenscheidt" in told
    assert (full.temperature, bare.temperature) == (0.5, None)
    assert "Lüdenscheidt" not in "".join(bare.hints)


async def batch(case: Case) -> None:
    """In the recordings' order, whatever form they come in."""
    notes = [wav(hz=hz) for hz in (220, 440, 880)]
    case.play(*(Scenario(text=(f"{number}.",)) for number in range(3)))
    generator = case.engine.transcription_generator(
        model=f"{case.provider}/{case.model}", max_parallel=1
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "note.wav")
        file.write_bytes(notes[2])
        answers = await generator.generate_batch([notes[0], audio(notes[1]), file])
    assert [text for text, _ in answers] == ["0.", "1.", "2."]
    assert all(metadata.provider == case.provider for _, metadata in answers)
    assert [heard.audio for heard in case.upstream.transcriptions] == notes


async def errors(case: Case) -> None:
    for kind in KINDS:
        failure = Failure(kind)
        case.play(Scenario(failure=failure))
        with pytest.raises(PenstockError) as caught:
            await case.transcribe()
        located(case, caught.value)
        assert type(caught.value) is EXPECTED[kind].error
        assert caught.value.status == case.upstream.status(failure)


async def ask_for_transcript(case: Case) -> None:
    await case.transcribe()
