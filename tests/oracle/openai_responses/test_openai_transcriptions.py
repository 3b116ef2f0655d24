"""A transcription is the same form, and the same answer, for us and for OpenAI's own client.

Differences that are left, and why: the client lets its caller choose the name of the file and sends
no `response_format` unless told; we always say both, the name by the recording's type.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from openai import AsyncOpenAI
from openai.types.audio import Transcription, TranscriptionDiarized, TranscriptionVerbose

from penstock import audio
from penstock.contract.exchange import TranscriptionRequest
from penstock.contract.ports import Provider
from penstock.providers.http.transport import HttpTransport
from tests.oracle.openai_responses.recorder import KEY, Recorder
from tests.support.sound import wav
from tests.support.wire.form import FormPart, read_form
from tests.support.wire.seen import WireRequest

WAV = wav()
PLAIN = {
    "text": "Hi there.",
    "usage": {
        "type": "tokens",
        "input_tokens": 14,
        "input_token_details": {"text_tokens": 0, "audio_tokens": 14},
        "output_tokens": 4,
        "total_tokens": 18,
    },
}
SEGMENT = {
    "id": 0,
    "seek": 0,
    "start": 0.0,
    "end": 3.32,
    "text": " Hi there.",
    "tokens": [50364, 440],
    "temperature": 0.0,
    "avg_logprob": -0.286,
    "compression_ratio": 1.236,
    "no_speech_prob": 0.0098,
}
VERBOSE = {
    "task": "transcribe",
    "language": "english",
    "duration": 8.47,
    "text": "Hi there.",
    "segments": [SEGMENT],
    "usage": {"type": "duration", "seconds": 9},
}
DIARIZED = {
    "task": "transcribe",
    "duration": 27.4,
    "text": "Agent: Hi there.",
    "segments": [
        {
            "type": "transcript.text.segment",
            "id": "seg_001",
            "start": 0.0,
            "end": 4.7,
            "text": "Hi there.",
            "speaker": "agent",
        }
    ],
    "usage": {"type": "duration", "seconds": 27},
}


@dataclass(frozen=True, slots=True)
class Wish:
    """The same wish in both languages."""

    name: str
    model: str = "gpt-4o-mini-transcribe"
    ours: dict[str, Any] = field(default_factory=dict[str, Any])
    theirs: dict[str, Any] = field(default_factory=dict[str, Any])
    mime_type: str = "audio/wav"
    filename: str = "audio.wav"

    @property
    def request(self) -> TranscriptionRequest:
        return TranscriptionRequest(audio=audio(WAV, mime_type=self.mime_type), **self.ours)

    @property
    def arguments(self) -> dict[str, Any]:
        file = (self.filename, WAV, self.mime_type)
        return {"file": file, "model": self.model, "response_format": "json", **self.theirs}


def same(name: str, **options: Any) -> Wish:
    return Wish(name, ours=options, theirs=options)


WISHES = (
    Wish("plain"),
    same("language", language="de"),
    same("prompt", prompt="Zoë, Müller-Lüdenscheidt\r\n--\n"),
    same("temperature", temperature=0.2),
    same("temperature-zero", temperature=0.0),
    same("all", language="pt", prompt="Names: Zoë", temperature=1.0),
    Wish("newest", "gpt-transcribe"),
    Wish("whisper", "whisper-1", theirs={"response_format": "verbose_json"}),
    Wish(
        "speakers",
        "gpt-4o-transcribe-diarize",
        theirs={"response_format": "diarized_json", "chunking_strategy": "auto"},
    ),
    Wish("mp3", mime_type="audio/mpeg", filename="audio.mp3"),
    Wish("m4a", mime_type="audio/mp4", filename="audio.m4a"),
)


@pytest.fixture
async def recorder() -> AsyncGenerator[Recorder, None]:
    async with Recorder() as opened:
        opened.answer(msgspec.json.encode(PLAIN))
        yield opened


@pytest.fixture
async def client(recorder: Recorder) -> AsyncGenerator[AsyncOpenAI, None]:
    async with recorder.official() as opened:
        yield opened


@pytest.fixture
async def provider(recorder: Recorder) -> AsyncGenerator[Provider, None]:
    async with HttpTransport() as transport:
        yield recorder.provider(transport)


def form(request: WireRequest) -> dict[str, FormPart]:
    return read_form(request.headers["content-type"], request.body)


async def official(client: AsyncOpenAI, wish: Wish) -> object:
    """What OpenAI's own client makes of the wish; its overloads want to know more of it."""
    transcriptions: Any = client.audio.transcriptions
    return await transcriptions.create(**wish.arguments)


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: wish.name)
async def test_a_form(
    wish: Wish, recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    await provider.transcribe(wish.model, wish.request)
    await official(client, wish)
    ours, theirs = recorder.requests
    assert form(ours) == form(theirs)
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
    assert ours.path == "/v1/audio/transcriptions"
    assert ours.headers["authorization"] == theirs.headers["authorization"] == f"Bearer {KEY}"


async def test_a_plain_answer(recorder: Recorder, client: AsyncOpenAI, provider: Provider) -> None:
    wish = WISHES[0]
    ours = await provider.transcribe(wish.model, wish.request)
    theirs = await official(client, wish)
    assert isinstance(theirs, Transcription)
    assert ours.text == theirs.text == "Hi there."
    assert theirs.usage is not None
    assert theirs.usage.type == "tokens"
    assert ours.usage.input_tokens == theirs.usage.input_tokens
    assert ours.usage.output_tokens == theirs.usage.output_tokens
    assert ours.usage.total_tokens == theirs.usage.total_tokens
    assert ours.response_id == "req_1"


async def test_a_verbose_answer(
    recorder: Recorder, client: AsyncOpenAI, provider: Provider
) -> None:
    recorder.answer(msgspec.json.encode(VERBOSE))
    wish = next(each for each in WISHES if each.name == "whisper")
    ours = await provider.transcribe(wish.model, wish.request)
    theirs = await official(client, wish)
    assert isinstance(theirs, TranscriptionVerbose)
    assert (ours.text, ours.language, ours.duration_s) == (
        theirs.text,
        theirs.language,
        theirs.duration,
    )
    assert [(each.text, each.start_s, each.end_s) for each in ours.segments] == [
        (each.text, each.start, each.end) for each in theirs.segments or ()
    ]
    assert ours.usage.total_tokens is None


async def test_speakers(recorder: Recorder, client: AsyncOpenAI, provider: Provider) -> None:
    recorder.answer(msgspec.json.encode(DIARIZED))
    wish = next(each for each in WISHES if each.name == "speakers")
    ours = await provider.transcribe(wish.model, wish.request)
    theirs = await official(client, wish)
    assert isinstance(theirs, TranscriptionDiarized)
    assert (ours.text, ours.duration_s) == (theirs.text, theirs.duration)
    assert [(each.speaker, each.text, each.start_s, each.end_s) for each in ours.segments] == [
        (each.speaker, each.text, each.start, each.end) for each in theirs.segments
    ]
