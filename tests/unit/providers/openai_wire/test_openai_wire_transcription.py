"""Transcription on the wires of OpenAI: the form that goes out, and what is read of the answer."""

import base64
from typing import Any

import msgspec
import pytest

from penstock import Audio, audio
from penstock.contract.errors import InvalidRequest, MalformedResponse, RateLimited
from penstock.contract.exchange import (
    Transcript,
    TranscriptionRequest,
    TranscriptSegment,
    Usage,
)
from penstock.providers import openai_chat, openai_responses
from penstock.providers.openai_wire.transcription import decode, encode
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import Dialect, WireCall
from tests.support.sound import wav
from tests.support.wire.form import FormPart, read_form

WAV = wav()
DIALECTS = (openai_chat.DIALECT, openai_responses.DIALECT)


def profile(model: str, kind: str = "openai", dialect: Dialect = DIALECTS[0]) -> ModelProfile:
    return dialect.catalogue.profile(kind, model, {})


def fields(call: WireCall) -> dict[str, FormPart]:
    assert call.body is not None
    return read_form(call.headers["content-type"], call.body)


def texts(call: WireCall) -> dict[str, str]:
    found = fields(call)
    return {name: part.value.decode() for name, part in found.items() if name != "file"}


def asked(**options: Any) -> TranscriptionRequest:
    given: dict[str, Any] = {"audio": audio(WAV), **options}
    return TranscriptionRequest(**given)


def test_a_recording_is_a_file_of_a_form() -> None:
    call = encode("gpt-4o-mini-transcribe", asked(), profile("gpt-4o-mini-transcribe"))
    assert (call.method, call.path, call.patience_s) == ("POST", "/audio/transcriptions", 0.0)
    assert fields(call) == {
        "file": FormPart(WAV, "audio.wav", "audio/wav"),
        "model": FormPart(b"gpt-4o-mini-transcribe"),
        "response_format": FormPart(b"json"),
    }


def test_every_option_is_a_field() -> None:
    request = asked(language="de", prompt="Zoë\nMüller", temperature=0.25, timeout=120.0)
    call = encode("m", request, profile("m"))
    assert texts(call) == {
        "model": "m",
        "response_format": "json",
        "language": "de",
        "prompt": "Zoë\nMüller",
        "temperature": "0.25",
    }
    assert call.patience_s == 120.0


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("model", "kind", "extra"),
    [
        ("gpt-4o-transcribe", "openai", {"response_format": "json"}),
        ("gpt-4o-mini-transcribe-2025-12-15", "openai", {"response_format": "json"}),
        ("gpt-transcribe", "openai", {"response_format": "json"}),
        ("whisper-1", "openai", {"response_format": "verbose_json"}),
        ("whisper-large-v3-turbo", "groq", {"response_format": "verbose_json"}),
        ("openai/whisper-large-v3", "vllm", {"response_format": "json"}),
        (
            "gpt-4o-transcribe-diarize",
            "openai",
            {"response_format": "diarized_json", "chunking_strategy": "auto"},
        ),
    ],
)
def test_the_richest_answer_of_each_model_is_asked_for(
    dialect: Dialect, model: str, kind: str, extra: dict[str, str]
) -> None:
    known = profile(model, kind, dialect)
    assert known.capabilities.transcription
    assert texts(encode(model, asked(), known)) == {"model": model, **extra}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("model", ["gpt-6-luna", "gpt-4o", "o3", "text-embedding-3-small"])
def test_other_models_of_openai_do_not_transcribe(dialect: Dialect, model: str) -> None:
    assert not profile(model, dialect=dialect).capabilities.transcription


def test_the_model_that_tells_speakers_apart_takes_no_prompt() -> None:
    assert not profile("gpt-4o-transcribe-diarize").capabilities.transcription_prompt
    assert profile("gpt-4o-transcribe").capabilities.transcription_prompt


@pytest.mark.parametrize(
    ("mime_type", "filename", "sent"),
    [
        ("audio/mpeg", "audio.mp3", "audio/mpeg"),
        ("audio/mp4", "audio.m4a", "audio/mp4"),
        ("Audio/OGG; codecs=opus", "audio.ogg", "audio/ogg"),
        ("audio/webm", "audio.webm", "audio/webm"),
        ("audio/flac", "audio.flac", "audio/flac"),
    ],
)
def test_the_name_of_the_file_ends_as_its_type_says(
    mime_type: str, filename: str, sent: str
) -> None:
    request = asked(audio=audio(b"abc", mime_type=mime_type))
    assert fields(encode("m", request, profile("m")))["file"] == FormPart(b"abc", filename, sent)


@pytest.mark.parametrize(
    ("sound", "path"),
    [
        (Audio("AAAA", "audio/wav\r\nx: y"), "audio.mimeType"),
        (Audio("AAAA", "text/plain"), "audio.mimeType"),
        (Audio("A*", "audio/wav"), "audio.data"),
    ],
)
def test_what_cannot_be_sent_is_refused(sound: Audio, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encode("m", asked(audio=sound), profile("m"))
    assert [problem.path for problem in caught.value.problems] == [path]


def test_a_file_beyond_the_limit_of_openai_is_refused_with_both_sizes() -> None:
    limit = 25 * 1024 * 1024
    whole = Audio(base64.b64encode(bytes(limit)).decode(), "audio/wav")
    assert encode("whisper-1", asked(audio=whole), profile("whisper-1")).body
    more = Audio(base64.b64encode(bytes(limit + 1)).decode(), "audio/wav")
    with pytest.raises(InvalidRequest, match=f"{limit + 1} bytes.*{limit}.*compress it"):
        encode("whisper-1", asked(audio=more), profile("whisper-1"))
    # What other servers take, they know themselves.
    assert encode("my-model", asked(audio=more), profile("my-model", "vllm")).body


# Answers


def body(**answer: Any) -> bytes:
    return msgspec.json.encode(answer)


def test_a_plain_answer_with_tokens() -> None:
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 4, "total_tokens": 18}
    assert decode(body(text="Hi.", usage=usage), {"x-request-id": "req_1"}) == Transcript(
        text="Hi.", usage=Usage(14, 4), response_id="req_1"
    )


def test_a_verbose_answer() -> None:
    answer = body(
        task="transcribe",
        language="english",
        duration=8.47,
        text="Hi there.",
        segments=[
            {"id": 0, "seek": 0, "start": 0.0, "end": 3.3, "text": " Hi", "tokens": [1]},
            {"id": 1, "seek": 0, "start": 3.3, "end": 8.4, "text": " there."},
        ],
        usage={"type": "duration", "seconds": 9},
    )
    assert decode(answer, {}) == Transcript(
        text="Hi there.",
        language="english",
        duration_s=8.47,
        segments=(TranscriptSegment(" Hi", 0.0, 3.3), TranscriptSegment(" there.", 3.3, 8.4)),
        usage=Usage(audio_seconds=9.0),
    )


def test_the_length_is_what_is_charged_for_where_the_answer_says_so() -> None:
    assert decode(body(text="", duration=8.47), {}).usage == Usage(audio_seconds=8.47)
    # Mistral's own names; without sound it has sent an empty object there.
    mistral = {"prompt_audio_seconds": 203, "prompt_tokens": 4, "completion_tokens": 635}
    answer = decode(body(text="", usage=mistral), {})
    assert answer.usage == Usage(4, 635, audio_seconds=203.0)
    assert answer.duration_s == 203.0
    assert decode(body(text="", usage={"prompt_audio_seconds": {}}), {}).usage == Usage()


def test_tokens_of_sound_are_told_apart() -> None:
    details = {"audio_tokens": 13, "text_tokens": 1}
    usage = {"type": "tokens", "input_tokens": 14, "output_tokens": 4}
    answer = decode(body(text="Hi.", usage=usage | {"input_token_details": details}), {})
    assert answer.usage == Usage(14, 4, input_audio_tokens=13)


def test_speakers() -> None:
    said = {"type": "transcript.text.segment", "id": "seg_1", "start": 0, "end": 2, "text": "Hi."}
    answer = body(task="transcribe", duration=2.0, text="Hi.", segments=[{**said, "speaker": "A"}])
    assert decode(answer, {}).segments == (TranscriptSegment("Hi.", 0.0, 2.0, "A"),)


def test_shapes_of_other_servers() -> None:
    # vLLM writes the duration as text; gpt-transcribe names languages in a list.
    answer = decode(body(text="", duration="17.65", languages=[{"code": "de"}, {}]), {})
    assert (answer.text, answer.duration_s, answer.language) == ("", 17.65, "de")
    assert decode(body(text="", usage={"type": "duration", "seconds": 3}), {}).duration_s == 3.0
    assert decode(body(text="", languages=[]), {}).language is None
    assert decode(body(text="x", segments=[{"text": "no times"}]), {}).segments == ()


@pytest.mark.parametrize("duration", ["long", "nan", "inf", "-1", True, [], -5])
def test_a_duration_that_is_none_does_not_lose_the_text(duration: object) -> None:
    answer = decode(body(text="Hi.", duration=duration), {})
    assert (answer.text, answer.duration_s, answer.usage.audio_seconds) == ("Hi.", None, None)


@pytest.mark.parametrize("answer", [b"", b"Hi.", b"[]", b"{}", b'{"text": 1}'])
def test_an_answer_without_text_is_malformed(answer: bytes) -> None:
    with pytest.raises(MalformedResponse, match="the answer to a transcription"):
        decode(answer, {})


def test_an_error_under_a_good_status() -> None:
    with pytest.raises(RateLimited):
        decode(body(error={"message": "slow down", "type": "rate_limit_error"}), {})
