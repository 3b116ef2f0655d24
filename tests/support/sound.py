"""Real recordings, small enough for a test."""

from __future__ import annotations

import io
import math
import wave
from array import array

RATE = 8000


def wav(seconds: float = 0.1, hz: float = 440.0) -> bytes:
    """A WAV file of one note."""
    count = round(seconds * RATE)
    note = array("h", (round(8000 * math.sin(math.tau * hz * at / RATE)) for at in range(count)))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE)
        writer.writeframes(note.tobytes())
    return file.getvalue()
