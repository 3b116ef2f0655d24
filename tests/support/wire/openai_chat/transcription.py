"""`/audio/transcriptions`, as strict as the real server, for both APIs of OpenAI."""

from __future__ import annotations

import json
from typing import Any

from tests.support.wire.form import read_form
from tests.support.wire.scenario import Scenario
from tests.support.wire.seen import SeenTranscription, WireRequest

PATH = "/v1/audio/transcriptions"
_ENDINGS = ("flac", "mp3", "mp4", "mpeg", "mpga", "m4a", "ogg", "wav", "webm")
_FIELDS = {"file", "model", "language", "prompt", "temperature", "response_format"}


def read_transcription(request: WireRequest) -> SeenTranscription:
    """The form of one recording."""
    form = read_form(request.headers.get("content-type", ""), request.body)
    if unknown := form.keys() - _FIELDS:
        raise ValueError(f"unknown fields: {unknown}")
    file, texts = (
        form["file"],
        {name: part.value.decode() for name, part in form.items() if name != "file"},
    )
    if file.filename is None or file.filename.rpartition(".")[2] not in _ENDINGS:
        raise ValueError(f"unrecognized file format: {file.filename}")
    if texts["response_format"] != "json":
        raise ValueError("response_format is not compatible with this model, use 'json' instead")
    temperature = texts.get("temperature")
    return SeenTranscription(
        model=texts["model"],
        audio=file.value,
        mime_type=file.content_type or "",
        hints=(texts.get("language", ""), texts.get("prompt", "")),
        temperature=None if temperature is None else float(temperature),
    )


def transcript(scenario: Scenario) -> bytes:
    """The body of a whole answer."""
    answer: dict[str, Any] = {"text": scenario.whole_text}
    if tokens := scenario.tokens:
        answer["usage"] = {
            "type": "tokens",
            "input_tokens": tokens.input,
            "input_token_details": {"text_tokens": 0, "audio_tokens": tokens.input},
            "output_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
        }
    return json.dumps(answer).encode()
