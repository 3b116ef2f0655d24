"""What a package needs that adds a provider with a wire format of its own.

The package has an entry point of the group `penstock.providers`: its name is the name of the kind,
and its object a `ProviderKind`. docs/providers/write-a-provider.md has a whole one.
"""

from __future__ import annotations

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.ports import ModelInfo, Provider, ProviderStream
from penstock.providers.credentials import bearer
from penstock.providers.kinds import ProviderKind
from penstock.providers.profiles import Catalogue, ModelProfile, Rule
from penstock.providers.wire.dialect import (
    CountDialect,
    Dialect,
    EmbeddingDialect,
    ModelListDialect,
    StreamDecoder,
    TranscriptionDialect,
    WireCall,
)
from penstock.providers.wire.endings import check_ending, is_cut, stop_detail, stop_reason
from penstock.providers.wire.error_text import error_of_response
from penstock.providers.wire.json_body import read_json, write_json
from penstock.providers.wire.stop_reasons import meaning_of
from penstock.providers.wire.stream_reader import StreamReader, may_hold_content

__all__ = [
    "Catalogue",
    "CountDialect",
    "Dialect",
    "EmbeddingDialect",
    "EmbeddingRequest",
    "Finished",
    "ModelInfo",
    "ModelListDialect",
    "ModelProfile",
    "Provider",
    "ProviderEvent",
    "ProviderKind",
    "ProviderStream",
    "Reply",
    "Rule",
    "StreamDecoder",
    "StreamReader",
    "Transcript",
    "TranscriptionDialect",
    "TranscriptionRequest",
    "Vectors",
    "WireCall",
    "bearer",
    "check_ending",
    "error_of_response",
    "is_cut",
    "may_hold_content",
    "meaning_of",
    "read_json",
    "stop_detail",
    "stop_reason",
    "write_json",
]
