"""Scripted transcripts."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from penstock.contract.errors import PenstockError
from penstock.contract.exchange import Transcript, TranscriptionRequest, Usage

TranscriptStep: TypeAlias = (
    Transcript
    | str
    | PenstockError
    | Callable[[TranscriptionRequest], "Transcript | str | PenstockError"]
)


class TranscriptScript:
    """One step a recording; when it has run out, the recording's size is what is heard."""

    def __init__(self, steps: Iterable[TranscriptStep]) -> None:
        """A step is a text, a Transcript, an error to raise, or a function of the request."""
        self._steps = deque(steps)

    def next(self, model: str, request: TranscriptionRequest) -> Transcript:
        """What is heard in this recording."""
        step = self._steps.popleft() if self._steps else _obey(request)
        if callable(step):
            step = step(request)
        if isinstance(step, PenstockError):
            raise step
        if isinstance(step, Transcript):
            return step
        words = len(step.split())
        return Transcript(
            text=step,
            model=model,
            language=request.language,
            usage=Usage(input_tokens=words, output_tokens=words),
            response_id="fake",
            response_status="completed",
        )


def _obey(request: TranscriptionRequest) -> str:
    audio = request.audio
    return f"{len(base64.b64decode(audio.data))} bytes of {audio.mime_type}"
