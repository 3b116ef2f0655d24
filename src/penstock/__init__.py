"""One engine between Python code and every language model.

`penstock.ask("...")` answers in one line; `async with penstock.open() as engine` does all the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock._version import __version__
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
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestCancelled,
    SamplingRejected,
    StreamInterrupted,
    StructuredOutputInvalid,
    ToolFailed,
    UnsupportedOption,
)
from penstock.contract.events import (
    Cancelled,
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
    ToolUseDelta,
)
from penstock.contract.exchange import EmbeddingResult, Metadata, Result, SamplingRequest, Usage
from penstock.contract.media import audio, image
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import (
    Capabilities,
    ModelPreferences,
    OutputSchema,
    ToolChoice,
    ToolDefinition,
)

if TYPE_CHECKING:
    from penstock.config.settings import Config
    from penstock.gateway import Engine, ProviderHealth, ask, open
    from penstock.streaming.handle import StreamHandle

# Loaded at first use: they bring asyncio and pydantic, which a mere import should not pay for.
_LAZY = {
    "Config": "penstock.config.settings",
    "Engine": "penstock.gateway",
    "ProviderHealth": "penstock.gateway",
    "StreamHandle": "penstock.streaming.handle",
    "ask": "penstock.gateway",
    "open": "penstock.gateway",
}

__all__ = [
    "AllTargetsFailed",
    "Audio",
    "AuthenticationFailed",
    "BudgetExceeded",
    "Cancelled",
    "Capabilities",
    "Chunk",
    "Complete",
    "Config",
    "ConfigurationError",
    "Content",
    "ContentRejected",
    "ContextLengthExceeded",
    "EmbeddingResult",
    "Engine",
    "Error",
    "Image",
    "InvalidRequest",
    "MalformedResponse",
    "Message",
    "Metadata",
    "ModelNotFound",
    "ModelPreferences",
    "OutputSchema",
    "PenstockError",
    "Problem",
    "ProviderHealth",
    "ProviderTimeout",
    "ProviderUnavailable",
    "RateLimited",
    "Reasoning",
    "ReasoningDelta",
    "RequestCancelled",
    "Result",
    "SamplingRejected",
    "SamplingRequest",
    "StreamEvent",
    "StreamHandle",
    "StreamInterrupted",
    "StructuredOutputInvalid",
    "Text",
    "ToolChoice",
    "ToolDefinition",
    "ToolFailed",
    "ToolResult",
    "ToolUse",
    "ToolUseDelta",
    "UnsupportedOption",
    "Usage",
    "__version__",
    "ask",
    "assistant",
    "audio",
    "image",
    "open",
    "system",
    "user",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
