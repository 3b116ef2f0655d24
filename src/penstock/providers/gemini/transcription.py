"""Transcription: the API has no call for it, so a model that hears is asked to write it down."""

from __future__ import annotations

from penstock.contract.errors import ContextLengthExceeded, InvalidRequest, Problem
from penstock.contract.exchange import Reply, SamplingRequest, Transcript, TranscriptionRequest
from penstock.contract.messages import Message, Text
from penstock.providers.profiles import ModelProfile

MAX_INLINE_BYTES = 20 * 1024 * 1024
"""What one request may weigh, its recording in base64 included."""
_ROOM_FOR_THE_REST = 4096
"""What the instructions and the JSON around them take at most, hints not counted."""
_MAX_TOKENS = 8192
"""For models whose own limit is not known; none has a lower one."""
_INSTRUCTIONS = (
    "Write down word for word what is said in this recording, in the language that is spoken. "
    "Answer with these words and nothing else: no introduction, no comment, no times, no names of "
    "speakers, no Markdown. Answer with nothing at all when nobody speaks."
)


def ask(request: TranscriptionRequest, profile: ModelProfile) -> SamplingRequest:
    """The request that gets the words, and only the words, out of a model."""
    _check_size(request)
    lines = [_INSTRUCTIONS]
    if request.language is not None:
        lines.append(f"The language has the code {request.language}.")
    if request.prompt is not None:
        lines.append(f"This helps to understand it, and is no part of it:\n{request.prompt}")
    return SamplingRequest(
        messages=(Message("user", (Text("\n\n".join(lines)), request.audio)),),
        max_tokens=profile.capabilities.max_output or _MAX_TOKENS,
        temperature=request.temperature,
        timeout=request.timeout,
    )


def read(reply: Reply) -> Transcript:
    """The model's words; raises ContextLengthExceeded when there were more than it can say."""
    if reply.stop_reason == "maxTokens":
        raise ContextLengthExceeded(
            "the transcript is longer than the model's answers can be; send the recording in pieces"
        )
    return Transcript(
        text=reply.text.strip(),
        model=reply.model,
        usage=reply.usage,
        response_id=reply.response_id,
        response_status=reply.response_status,
        dropped_options=reply.dropped_options,
        api_calls=reply.api_calls,
    )


def _check_size(request: TranscriptionRequest) -> None:
    hints = len((request.prompt or "").encode(errors="replace"))
    size = len(request.audio.data) + hints + _ROOM_FOR_THE_REST
    if size > MAX_INLINE_BYTES:
        raise InvalidRequest.of(
            [
                Problem(
                    "audio",
                    f"makes a request of {size} bytes (base64 adds a third), and Gemini takes "
                    f"{MAX_INLINE_BYTES}; compress it, to MP3 for example, or send it in pieces",
                )
            ]
        )
