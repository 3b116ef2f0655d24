"""One engine between Python code and every language model.

`penstock.ask("...")` answers in one line; `async with penstock.open() as engine` does all the rest,
and `penstock.sync` does it without `await`.
"""

from __future__ import annotations

# First: `python -m penstock` must import nothing else while the working folder is on the path.
from penstock.runtime import startup as _startup  # noqa: F401 # pyright: ignore[reportUnusedImport]

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

from penstock._version import __version__
from penstock.contract.context import ContextQuery, ContextResource
from penstock.contract.errors import (
    AllTargetsFailed,
    AuthenticationFailed,
    BudgetExceeded,
    ConfigurationError,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    Problem,
    PromptContextFailed,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestCancelled,
    SamplingRejected,
    StorageUnavailable,
    StreamInterrupted,
    StructuredOutputInvalid,
    ToolFailed,
    UnsupportedOption,
)
from penstock.contract.estimates import (
    BudgetVerdict,
    RecordedUsage,
    RequestEstimate,
    TargetEstimate,
)
from penstock.contract.events import (
    AnswerRejected,
    Cancelled,
    Chunk,
    Complete,
    Error,
    GeneratorEvent,
    ReasoningDelta,
    StreamEvent,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import (
    EmbeddingResult,
    Metadata,
    Result,
    SamplingRequest,
    TokenCount,
    TranscriptionResult,
    TranscriptSegment,
    Usage,
)
from penstock.contract.media import audio, image
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.metadata import ErrorMetadata
from penstock.contract.options import (
    Capabilities,
    Extra,
    MCPTool,
    ModelPreferences,
    OutputSchema,
    ToolChoice,
    ToolDefinition,
)
from penstock.contract.ports import RankedTarget, RouteDecision, Target

if TYPE_CHECKING:
    from penstock import sync
    from penstock.api import (
        ask,
        conversation,
        embedding_generator,
        open,
        string_generator,
        structured_generator,
        transcription_generator,
    )
    from penstock.config.settings import Config
    from penstock.contract.requests import Caller
    from penstock.engine.engine import Engine
    from penstock.engine.health import ProviderHealth
    from penstock.generators.content import StringGenerator
    from penstock.generators.contexts import MessageType, PromptContext, PromptContextProvider
    from penstock.generators.conversation import Conversation
    from penstock.generators.embeddings import EmbeddingGenerator
    from penstock.generators.functions import Tool, tool
    from penstock.generators.stream import GeneratorStream
    from penstock.generators.structured import StructuredGenerator
    from penstock.generators.transcription import TranscriptionGenerator
    from penstock.streaming.callbacks import StreamCallbacks
    from penstock.streaming.handle import StreamHandle
    from penstock.telemetry.latency import Latency
    from penstock.telemetry.usage_counters import ModelUsage, UsageStats

# Loaded at first use: they bring asyncio and pydantic, which a mere import should not pay for.
_LAZY = {
    "Caller": "penstock.contract.requests",
    "Config": "penstock.config.settings",
    "Conversation": "penstock.generators.conversation",
    "EmbeddingGenerator": "penstock.generators.embeddings",
    "Engine": "penstock.engine.engine",
    "GeneratorStream": "penstock.generators.stream",
    "Latency": "penstock.telemetry.latency",
    "MessageType": "penstock.generators.contexts",
    "ModelUsage": "penstock.telemetry.usage_counters",
    "PromptContext": "penstock.generators.contexts",
    "PromptContextProvider": "penstock.generators.contexts",
    "ProviderHealth": "penstock.engine.health",
    "StreamCallbacks": "penstock.streaming.callbacks",
    "StreamHandle": "penstock.streaming.handle",
    "StringGenerator": "penstock.generators.content",
    "StructuredGenerator": "penstock.generators.structured",
    "Tool": "penstock.generators.functions",
    "TranscriptionGenerator": "penstock.generators.transcription",
    "UsageStats": "penstock.telemetry.usage_counters",
    "ask": "penstock.api",
    "conversation": "penstock.api",
    "embedding_generator": "penstock.api",
    "open": "penstock.api",
    "string_generator": "penstock.api",
    "structured_generator": "penstock.api",
    "tool": "penstock.generators.functions",
    "transcription_generator": "penstock.api",
}

__all__ = [
    "AllTargetsFailed",
    "AnswerRejected",
    "Audio",
    "AuthenticationFailed",
    "BudgetExceeded",
    "BudgetVerdict",
    "Caller",
    "Cancelled",
    "Capabilities",
    "Chunk",
    "Complete",
    "Config",
    "ConfigurationError",
    "Content",
    "ContentRejected",
    "ContextLengthExceeded",
    "ContextQuery",
    "ContextResource",
    "Conversation",
    "EmbeddingGenerator",
    "EmbeddingResult",
    "Engine",
    "Error",
    "ErrorMetadata",
    "Extra",
    "GeneratorEvent",
    "GeneratorStream",
    "Image",
    "InvalidRequest",
    "Latency",
    "MCPCall",
    "MCPTool",
    "MalformedResponse",
    "Message",
    "MessageType",
    "Metadata",
    "ModelNotFound",
    "ModelPreferences",
    "ModelUsage",
    "OutputSchema",
    "PenstockError",
    "Problem",
    "PromptContext",
    "PromptContextFailed",
    "PromptContextProvider",
    "ProviderHealth",
    "ProviderTimeout",
    "ProviderUnavailable",
    "RankedTarget",
    "RateLimited",
    "Reasoning",
    "ReasoningDelta",
    "RecordedUsage",
    "RequestCancelled",
    "RequestEstimate",
    "Result",
    "RouteDecision",
    "SamplingRejected",
    "SamplingRequest",
    "StorageUnavailable",
    "StreamCallbacks",
    "StreamEvent",
    "StreamHandle",
    "StreamInterrupted",
    "StringGenerator",
    "StructuredGenerator",
    "StructuredOutputInvalid",
    "Target",
    "TargetEstimate",
    "Text",
    "TokenCount",
    "Tool",
    "ToolChoice",
    "ToolDefinition",
    "ToolEnded",
    "ToolFailed",
    "ToolProgress",
    "ToolResult",
    "ToolStarted",
    "ToolUse",
    "ToolUseDelta",
    "TranscriptSegment",
    "TranscriptionGenerator",
    "TranscriptionResult",
    "UnsupportedOption",
    "Usage",
    "UsageStats",
    "__version__",
    "ask",
    "assistant",
    "audio",
    "conversation",
    "embedding_generator",
    "image",
    "open",
    "string_generator",
    "structured_generator",
    "sync",
    "system",
    "tool",
    "transcription_generator",
    "user",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name == "sync":  # a package of its own
            return importlib.import_module("penstock.sync")
        if name not in _LAZY:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
