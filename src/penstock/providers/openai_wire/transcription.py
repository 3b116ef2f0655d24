"""Transcription: a form with a recording out, text in.

Profile options: `response_format` is the richest form of answer that the model has,
`chunking_strategy` is sent to models that want one, and `max_audio_bytes` is the largest file that
the service takes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.contract.exchange import (
    Transcript,
    TranscriptionRequest,
    TranscriptSegment,
    Usage,
)
from penstock.contract.media import AUDIO_EXTENSIONS, essence
from penstock.contract.messages import Audio
from penstock.providers.openai_wire.errors import map_inline_error
from penstock.providers.openai_wire.multipart import FormField, write_form
from penstock.providers.openai_wire.usage import InputDetails, seconds
from penstock.providers.profiles import ModelProfile, Rule
from penstock.providers.wire.dialect import WireCall
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.token_counts import read_counts

_OPENAI = ("gpt-transcribe*", "gpt-4o*-transcribe*", "whisper-1")

RULES: tuple[Rule, ...] = (
    Rule(models=("text-embedding-*",), capabilities={"transcription": False}),
    Rule(
        models=(*_OPENAI, "whisper-*"),
        capabilities={"transcription": True, "embeddings": False, "max_temperature": 1.0},
    ),
    Rule(models=_OPENAI, options={"max_audio_bytes": 25 * 1024 * 1024}),
    # Times are told by these only; the name alone, for servers of one's own may be older.
    Rule(models=("whisper-*",), options={"response_format": "verbose_json"}),
    Rule(
        models=("gpt-4o*-transcribe-diarize*",),
        capabilities={"transcription_prompt": False},
        # Without a strategy it takes no more than half a minute.
        options={"response_format": "diarized_json", "chunking_strategy": "auto"},
    ),
)
"""What single models do differently, the same on both wires; they stand behind a wire's own."""


class _Segment(msgspec.Struct):
    text: str = ""
    start: float | None = None
    end: float | None = None
    speaker: str | None = None


class _Language(msgspec.Struct):
    code: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None
    input_token_details: InputDetails | None = None
    # Mistral's names for the same.
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_audio_seconds: Any = None


class _Body(msgspec.Struct):
    text: str | None = None
    language: str | None = None
    languages: list[_Language] | None = None
    duration: msgspec.Raw = msgspec.Raw()
    segments: list[_Segment] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: Any = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_usage = msgspec.json.Decoder(_Usage).decode
_decode_duration = msgspec.json.Decoder(float | str | None).decode


def encode(model: str, request: TranscriptionRequest, profile: ModelProfile) -> WireCall:
    """The form that asks `model` for the words of the recording."""
    options = profile.options
    fields = [
        _file(request.audio, options.get("max_audio_bytes")),
        FormField("model", model),
        FormField("response_format", options.get("response_format", "json")),
    ]
    if strategy := options.get("chunking_strategy"):
        fields.append(FormField("chunking_strategy", strategy))
    if request.language is not None:
        fields.append(FormField("language", request.language))
    if request.prompt is not None:
        fields.append(FormField("prompt", request.prompt))
    if request.temperature is not None:
        fields.append(FormField("temperature", str(request.temperature)))
    body, content_type = write_form(fields)
    return WireCall(
        "/audio/transcriptions",
        body,
        headers={"content-type": content_type},
        # Nothing comes before the whole recording has been heard.
        patience_s=request.timeout or 0.0,
    )


def decode(body: bytes, headers: Mapping[str, str]) -> Transcript:
    """The text, and whatever this model says beside it."""
    answer = read_json(_decode, body, "the answer to a transcription is malformed")
    if answer.error:
        raise map_inline_error(answer.error)
    if answer.text is None:
        raise MalformedResponse("the answer to a transcription holds no text")
    duration = _duration(answer.duration)
    usage = read_counts(answer.usage, _decode_usage, _usage)
    if usage.audio_seconds is None:
        usage = msgspec.structs.replace(usage, audio_seconds=duration)
    if duration is None and usage.audio_seconds is not None and math.isfinite(usage.audio_seconds):
        duration = usage.audio_seconds
    heard = [each.code for each in answer.languages or () if each.code]
    return Transcript(
        text=answer.text,
        language=answer.language or (heard[0] if heard else None),
        duration_s=duration,
        segments=tuple(
            TranscriptSegment(each.text, each.start, each.end, each.speaker)
            for each in answer.segments or ()
            if each.start is not None and each.end is not None
        ),
        usage=usage,
        # The body has no id; this one is what OpenAI asks for when something went wrong.
        response_id=headers.get("x-request-id"),
    )


def _usage(used: _Usage) -> Usage:
    details = used.input_token_details
    return Usage(
        used.prompt_tokens if used.input_tokens is None else used.input_tokens,
        used.completion_tokens if used.output_tokens is None else used.output_tokens,
        input_audio_tokens=details.audio_tokens if details else None,
        audio_seconds=seconds(used.prompt_audio_seconds) if used.seconds is None else used.seconds,
    )


def _duration(raw: msgspec.Raw) -> float | None:
    """The length of the recording; some servers write the number as a text."""
    try:
        value = _decode_duration(raw) if len(raw) else None
        found = None if value is None else float(value)
    except (ValueError, RecursionError):
        return None
    return found if found is not None and math.isfinite(found) and found >= 0 else None


def _file(audio: Audio, limit: int | None) -> FormField:
    kind = essence(audio.mime_type)
    ending = AUDIO_EXTENSIONS.get(kind)
    if ending is None:
        raise InvalidRequest.of([Problem("audio.mimeType", f"{kind!r} is not a known audio type")])
    try:
        data = base64.b64decode(audio.data, validate=True)
    except ValueError as error:
        raise InvalidRequest.of([Problem("audio.data", f"is not base64: {error}")]) from error
    if limit is not None and len(data) > limit:
        raise InvalidRequest.of(
            [
                Problem(
                    "audio",
                    f"has {len(data)} bytes, and the service takes {limit}; "
                    "compress it, to MP3 for example, or send it in pieces",
                )
            ]
        )
    # Servers go by the ending of the name before they look at the type.
    return FormField("file", data, f"audio.{ending}", kind)
