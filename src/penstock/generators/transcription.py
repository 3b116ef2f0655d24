"""Generators of transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, Unpack

from penstock.contract.checks.spelling import unknown_options
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import Metadata, TranscriptionResult
from penstock.contract.media import AudioSource
from penstock.contract.requests import Caller, TranscribeOptions
from penstock.pipeline.validate import transcription_hints

DEFAULT_PARALLEL = 4
"""How many recordings of a batch are sent at once when nothing is said."""


class TranscriptionOptions(TranscribeOptions, total=False):
    """The keyword arguments of transcription generators; every one may be left out."""

    max_parallel: int


class Transcriber(Protocol):
    """What a transcription generator needs of an engine."""

    async def transcribe(
        self,
        audio: AudioSource,
        *,
        caller: Caller | None = None,
        **options: Unpack[TranscribeOptions],
    ) -> TranscriptionResult:
        """The words of a recording."""
        ...


def value_problems(options: TranscriptionOptions) -> list[Problem]:
    """What is wrong with the values of these options."""
    problems = [*transcription_hints(options.get("language"), options.get("prompt"))]
    parallel = options.get("max_parallel", DEFAULT_PARALLEL)
    if parallel < 1:
        problems.append(Problem("max_parallel", f"{parallel} is not positive"))
    return problems


class TranscriptionGenerator:
    """Turns recordings into text, all with the same model and options."""

    def __init__(self, transcriber: Transcriber, options: TranscriptionOptions) -> None:
        """Raises InvalidRequest at once for an unknown option, a blank prompt or a bad language."""
        problems = unknown_options(options, TranscriptionOptions.__optional_keys__)
        if problems := problems + value_problems(options):
            raise InvalidRequest.of(problems)
        self._parallel = options.get("max_parallel", DEFAULT_PARALLEL)
        self._transcriber = transcriber
        rest = {name: value for name, value in options.items() if name != "max_parallel"}
        self._options = TranscribeOptions(**rest)  # pyright: ignore[reportArgumentType]

    async def generate(self, audio: AudioSource) -> tuple[str, Metadata]:
        """The words of one recording, and what there is to know about the call.

        The recording is `penstock.audio(...)`, a file's path, or the bytes of a file.
        """
        result = await self._transcriber.transcribe(audio, **self._options)
        return result.text, result.metadata

    async def generate_batch(self, audios: Sequence[AudioSource]) -> list[tuple[str, Metadata]]:
        """What `generate` gives for each recording, in order, `max_parallel` of them at once.

        A file is read only when its turn comes. The first failure ends the calls that still run.
        """
        if isinstance(audios, str | bytes):
            # A sequence to Python, and surely one recording to its caller.
            raise InvalidRequest.of([Problem("audios", "is one recording; give a list of them")])
        gate = asyncio.Semaphore(self._parallel)

        async def one(audio: AudioSource) -> tuple[str, Metadata]:
            async with gate:
                return await self.generate(audio)

        tasks = [asyncio.ensure_future(one(audio)) for audio in audios]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
