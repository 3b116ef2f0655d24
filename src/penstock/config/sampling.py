"""The settings of sampling: who approves it, and what each MCP server may."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_serializer, field_validator

from penstock.config.keys import KeyBudgetConfig
from penstock.config.values import Seconds, Section

ANY = "*"
_SERVER = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if not _SERVER.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid server name: give 1 to 64 letters, digits, dots, "
                'dashes and underscores, a letter or digit first, or "*"'
            )


class SamplingServerConfig(Section):
    """What one MCP server may ask a host's models for, by the name that the host gives it."""

    approval: Literal["always", "ask", "never"] | None = Field(
        default=None, description="Goes before that of `[sampling]`, unless that is `never`."
    )
    models: tuple[str, ...] = Field(
        default=(),
        description="What may answer: models of this file or `provider/model`. Hints choose among "
        "them, else it is the first. Default: the default model.",
    )
    max_tokens: int | None = Field(
        default=None, ge=1, description="Most tokens of an answer, however many are asked for."
    )
    requests_per_minute: int = Field(
        default=60, ge=1, description="Most requests in any 60 seconds."
    )
    tokens_per_minute: int | None = Field(
        default=None, ge=1, description="Most tokens in any 60 seconds, read and written together."
    )
    at_once: int = Field(
        default=8,
        ge=1,
        description="Most requests under way, those that wait for approval included. Further ones "
        "are queued.",
    )
    max_queued: int = Field(
        default=100,
        ge=0,
        description="Most requests that wait for one under way to end, together with at most "
        "`max_prompt_bytes`. Sessions take turns. `0`: refuse instead.",
    )
    queue_timeout_s: Seconds = Field(
        default=60.0, description="How long a request waits for its turn before it is refused."
    )
    max_prompt_bytes: int = Field(
        default=20_000_000, ge=1, description="Largest request that is read."
    )
    max_tool_rounds: int = Field(
        default=25,
        ge=1,
        description="After so many rounds of tool calls the model has to answer without tools.",
    )
    tools: bool = Field(default=True, description="Whether requests may bring tools.")
    context: Literal["none", "thisServer", "allServers"] = Field(
        default="none",
        description="What a request may have attached: nothing, the server's own resources, or "
        "those of all servers that `share` theirs.",
    )
    share: bool = Field(
        default=False,
        description="Whether its resources may go into prompts of other servers, which see the "
        "answers.",
    )
    drop_unsupported: bool = Field(
        default=False,
        description="Whether an option that a model does not have is left out, instead of an "
        "error.",
    )
    timeout_s: Seconds | None = Field(default=None, description="For the whole answer.")
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="What budgets and reports may go by, beside `mcp_server`, which is its name.",
    )
    budget: KeyBudgetConfig | None = Field(
        default=None,
        description="`limit_usd`, `period` and `timezone`, as in `[budgets.NAME]`, for this server "
        "alone.",
    )


class ContextServerConfig(Section):
    """An MCP server whose resources `includeContext` attaches."""

    url: str = Field(pattern=r"^https?://", description="Its address.")
    http_headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Headers of every call, such as its credentials.",
    )
    keys: tuple[str, ...] = Field(
        default=(),
        description="Names of the keys whose requests may have its resources; for them it is "
        "`thisServer`. Default: all callers.",
    )

    @field_serializer("http_headers")
    def _without_values(self, headers: dict[str, str]) -> dict[str, str]:
        # A dump is written to logs.
        return dict.fromkeys(headers, "**********")


class ContextConfig(Section):
    """What `includeContext` attaches at the endpoints for sampling and in the Python API."""

    servers: dict[str, ContextServerConfig] = Field(
        default_factory=dict,
        description="MCP servers by name. Without any, a request with `includeContext` is refused.",
        examples=[{"docs": {"url": "https://docs.example.com/mcp"}}],
    )
    max_resources: int = Field(default=20, ge=1, description="Most resources of each server.")
    max_characters: int = Field(
        default=100_000,
        ge=1,
        description="Most characters of all servers together; each gets the same share.",
    )
    timeout_s: Seconds = Field(
        default=5.0, description="How long the resources of a server may take; then it is an error."
    )

    @field_validator("servers")
    @classmethod
    def _named(cls, servers: dict[str, ContextServerConfig]) -> dict[str, ContextServerConfig]:
        _check_names(name for name in servers if name != ANY)
        if ANY in servers:
            raise ValueError('"*" is no server: give it a name')
        return servers


class SamplingConfig(Section):
    """Who approves sampling requests: those of MCP servers, and those at the sampling endpoints."""

    approval: Literal["always", "policy", "ask", "never"] = Field(
        default="policy",
        description="`always`: nobody is asked. `policy`: MCP servers that have a rule here are "
        "answered, and callers of the gateway whose key allows it. `ask`: somebody decides each "
        "time, at the gateway through the admin API. `never`: all are refused.",
    )
    approval_timeout_s: Seconds = Field(
        default=300.0,
        description="How long a decision may take; without one the request is denied.",
    )
    max_waiting: int = Field(
        default=100, ge=1, description="Most requests that wait for a decision; more are refused."
    )
    review_answers: bool = Field(
        default=True,
        description="Whether the person who decides also sees an answer before the MCP server "
        "does.",
    )
    servers: dict[str, SamplingServerConfig] = Field(
        default_factory=dict,
        description='The rules of MCP servers; `"*"` is for those that have none.',
        examples=[{"docs": {"max_tokens": 1000}}],
    )

    context: ContextConfig = Field(
        default_factory=ContextConfig,
        description="MCP servers whose resources `includeContext` attaches.",
        examples=[{"servers": {"docs": {"url": "https://docs.example.com/mcp"}}}],
    )

    @field_validator("servers")
    @classmethod
    def _named(cls, servers: dict[str, SamplingServerConfig]) -> dict[str, SamplingServerConfig]:
        _check_names(servers)
        if ANY in servers and servers[ANY].budget is not None:
            raise ValueError('the rule "*" cannot have a budget: give one to each server')
        return servers
