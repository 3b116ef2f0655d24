"""Penstock without `await`: for scripts, threads, notebooks, task queues and web views.

`penstock.sync.open()` has the calls of an engine, and the factories make generators whose methods
wait for the answer. One background thread runs them all. All names are those of `penstock`.
"""

from __future__ import annotations

from penstock.sync.engine import MessageStream, SyncEngine, open
from penstock.sync.generators import (
    GeneratedStream,
    SyncConversation,
    SyncEmbeddingGenerator,
    SyncGenerator,
    SyncTranscriptionGenerator,
    conversation,
    embedding_generator,
    string_generator,
    structured_generator,
    transcription_generator,
)
from penstock.sync.portal import run
from penstock.sync.streams import SyncStream

__all__ = [
    "GeneratedStream",
    "MessageStream",
    "SyncConversation",
    "SyncEmbeddingGenerator",
    "SyncEngine",
    "SyncGenerator",
    "SyncStream",
    "SyncTranscriptionGenerator",
    "conversation",
    "embedding_generator",
    "open",
    "run",
    "string_generator",
    "structured_generator",
    "transcription_generator",
]
