"""Transcribe recordings: subtitles from one, plain text from many at once.

    python examples/transcribe.py                               on a scripted model, without a key
    python examples/transcribe.py groq/whisper-large-v3-turbo a.mp3 b.mp3

The script stands for the ears. All else is real: recordings are read, sent and put in order.
"""

from __future__ import annotations

import asyncio
import io
import sys
import wave
from collections.abc import Sequence

import penstock
from penstock import TranscriptSegment
from penstock.testing import FakeProvider, Transcript, engine_with

SAID = Transcript(
    text="The gate is open. Close it, please.",
    language="en",
    duration_s=4.0,
    segments=(
        TranscriptSegment("The gate is open.", 0.0, 1.75),
        TranscriptSegment("Close it, please.", 2.25, 4.0),
    ),
)
SCRIPT: list[Transcript | str] = [SAID, "First.", "Second."]


def silence(seconds: int) -> bytes:
    """A WAV file in which nobody speaks."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(8000)
        writer.writeframes(bytes(2 * 8000 * seconds))
    return file.getvalue()


def clock(seconds: float) -> str:
    """A moment as subtitles have it: 00:00:02,250."""
    minutes, left = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{left // 1000:02},{left % 1000:03}"


async def main(model: str | None, recordings: Sequence[str | bytes]) -> None:
    fake = FakeProvider(transcripts=SCRIPT)
    async with penstock.open() if model else engine_with(fake) as engine:
        # The whole result has the times.
        result = await engine.transcribe(recordings[0], model=model, language="en")
        for number, each in enumerate(result.segments, start=1):
            print(f"{number}\n{clock(each.start_s)} --> {clock(each.end_s)}\n{each.text}\n")

        # A generator gives the text, for any number of recordings.
        generator = engine.transcription_generator(model=model, language="en", max_parallel=1)
        texts = [text for text, _ in await generator.generate_batch(recordings)]
        print(*texts, sep="\n")

    assert result.text
    assert all(each.start_s <= each.end_s for each in result.segments)
    assert len(texts) == len(recordings)
    assert model or texts == ["First.", "Second."], "in the order of the recordings"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(main(sys.argv[1], sys.argv[2:]))
    else:
        asyncio.run(main(None, [silence(1), silence(2)]))
