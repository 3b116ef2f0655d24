"""The clients: a row each, with how it tells of errors and the reasons for what it does not have.

Two are not here, because they have suites of their own that go further: the Python packages of
Anthropic (`test_server_anthropic_sdk.py` and `..._pairs.py`) and, at the Responses door, of OpenAI
(`test_server_responses_sdk.py` and `..._pairs.py`), both in `tests/unit/server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client, by one of the gateway's doors."""

    name: str
    program: str
    via: str = "chat"
    """The door, in the words of its program."""
    model: str = "default"
    """The name that it is given; some look at it to decide what the model can do."""
    errors: Mapping[str, str]
    """The class that it raises, by what has happened."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scenarios that it has no way to run, each with the reason."""


def _raises(unknown: str, refused: str, limited: str, broken: str) -> dict[str, str]:
    return {
        "unknown-model": unknown,
        "bad-request": refused,
        "rate-limit": limited,
        "broken-stream": broken,
    }


CLAUDE = "claude-sonnet-4-5"
"""An alias in the gateway: these clients ask no model that they do not know for an object."""
_NO_LIST = {"models": "It has no call that lists models."}
_NO_EMBEDDINGS = {"embeddings": "Anthropic's API has no embeddings, and so has no client of it."}
_OPENAI = _raises(
    "openai.NotFoundError", "openai.BadRequestError", "openai.RateLimitError", "openai.APIError"
)
_LITELLM = _raises(
    "litellm.NotFoundError",
    "litellm.BadRequestError",
    "litellm.RateLimitError",
    "litellm.ServiceUnavailableError",
)
_PYDANTIC_AI = _raises(
    "pydantic_ai.ModelHTTPError",
    "pydantic_ai.ModelHTTPError",
    "pydantic_ai.ModelHTTPError",
    "pydantic_ai.ModelAPIError",
)
_NODE = _raises("NotFoundError", "BadRequestError", "RateLimitError", "APIError")
_VERCEL = _raises("AI_APICallError", "AI_APICallError", "AI_APICallError", "AI_StreamProviderError")

CLIENTS = (
    Client(name="openai-python", program="run_openai.py", errors=_OPENAI),
    Client(name="litellm", program="run_litellm.py", errors=_LITELLM, lacks=_NO_LIST),
    Client(
        name="litellm-anthropic",
        program="run_litellm.py",
        via="anthropic",
        model=CLAUDE,
        errors=_LITELLM,
        lacks={**_NO_LIST, **_NO_EMBEDDINGS},
    ),
    Client(name="langchain", program="run_langchain.py", errors=_OPENAI, lacks=_NO_LIST),
    Client(
        name="langchain-responses",
        program="run_langchain.py",
        via="responses",
        errors=_OPENAI,
        lacks=_NO_LIST,
    ),
    Client(name="pydantic-ai", program="run_pydantic_ai.py", errors=_PYDANTIC_AI, lacks=_NO_LIST),
    Client(
        name="pydantic-ai-responses",
        program="run_pydantic_ai.py",
        via="responses",
        errors=_PYDANTIC_AI,
        lacks=_NO_LIST,
    ),
    Client(
        name="pydantic-ai-anthropic",
        program="run_pydantic_ai.py",
        via="anthropic",
        model=CLAUDE,
        errors=_PYDANTIC_AI,
        lacks={**_NO_LIST, **_NO_EMBEDDINGS},
    ),
    Client(name="openai-node", program="run_openai.mjs", errors=_NODE),
    Client(name="openai-node-responses", program="run_openai.mjs", via="responses", errors=_NODE),
    Client(
        name="anthropic-node",
        program="run_anthropic.mjs",
        via="anthropic",
        errors=_NODE,
        lacks=_NO_EMBEDDINGS,
    ),
    Client(
        name="vercel-openai",
        program="run_vercel.mjs",
        via="responses",
        errors=_VERCEL,
        lacks=_NO_LIST,
    ),
    Client(name="vercel-openai-chat", program="run_vercel.mjs", errors=_VERCEL, lacks=_NO_LIST),
    Client(
        name="vercel-openai-compatible",
        program="run_vercel.mjs",
        via="compatible",
        errors=_VERCEL,
        lacks=_NO_LIST,
    ),
    Client(
        name="vercel-anthropic",
        program="run_vercel.mjs",
        via="anthropic",
        model=CLAUDE,
        errors=_VERCEL,
        lacks={**_NO_LIST, **_NO_EMBEDDINGS},
    ),
)
