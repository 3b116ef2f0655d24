"""Which MCP servers may sample, with which models, and how much: rules by the host's own names.

A server says itself what it is called, and could say anything. So rules go by the name under which
the host has connected it; `"*"` is the rule of all that have none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from penstock.contract.adaptation import AdaptMode
from penstock.contract.approval import ApprovalMode
from penstock.contract.errors import ConfigurationError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import IncludeContext, ToolChoice
from penstock.contract.ports import Target

ANY = "*"
"""The rule of servers that have none of their own."""
SERVER_TAG = "mcp_server"
"""The tag that names the server to budgets and reports; no metadata of a server changes it."""
_POSITIVE = (
    "max_tokens",
    "requests_per_minute",
    "tokens_per_minute",
    "at_once",
    "queue_timeout_s",
    "max_prompt_bytes",
    "max_tool_rounds",
    "timeout_s",
)


class ServerRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one server may; raises ConfigurationError for a limit that lets nothing through."""

    approval: Literal["always", "ask", "never"] | None = None
    """Goes before the policy's own, unless that is `never`."""
    models: tuple[str, ...] = ()
    """Models that may answer; hints choose among them, else it is the first. None: the default."""
    max_tokens: int | None = None
    """An answer has no more, however many are asked for."""
    requests_per_minute: int = 60
    tokens_per_minute: int | None = None
    """Read and written together."""
    at_once: int = 8
    """Requests under way, those that wait for approval included; further ones are queued."""
    max_queued: int = 100
    """Requests that wait for one of those to end, with `max_prompt_bytes` together; 0: none."""
    queue_timeout_s: float = 60.0
    """How long a request waits for its turn before it is refused."""
    max_prompt_bytes: int = 20_000_000
    max_tool_rounds: int = 25
    """After so many rounds of tool calls in a history, the model has to answer without tools."""
    tools: bool = True
    """Whether requests may bring tools."""
    context: IncludeContext = "none"
    """How much a request may have attached: nothing, the server's own resources, or those of all
    servers that share theirs."""
    share: bool = False
    """Whether its resources may go into prompts of other servers, who see the answers."""
    drop_unsupported: bool = False
    """Whether an option that a model does not have is left out, instead of an error."""
    timeout_s: float | None = None
    """For the whole answer."""
    tags: Mapping[str, str] = {}
    """What budgets and reports may go by, beside the server's name."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value: float | None = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name}={value!r}: give a positive number")
        if self.max_queued < 0:
            raise ConfigurationError(
                f"max_queued={self.max_queued!r}: give 0, to queue no requests, or more"
            )


NO_RULE = ServerRule()


class SamplingPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules of one host."""

    approval: ApprovalMode = "policy"
    """`always` and `ask` hold for every server. `policy`: a server that has a rule is answered, and
    no other. `never`: nobody is."""
    servers: Mapping[str, ServerRule] = {}
    review_answers: bool = True
    """Whether somebody who is asked also sees the answer before the server does."""
    timeout_s: float = 300.0
    """How long a decision may take; without one the request is denied."""

    def rule(self, server: str) -> ServerRule:
        """What holds for this server; without any rule, the limits that hold for everybody."""
        return self._own(server) or NO_RULE

    def mode(self, server: str) -> Literal["always", "ask", "never"]:
        """Who decides about this server's requests."""
        own = self._own(server)
        if self.approval == "never":
            return "never"
        if own is not None and own.approval is not None:
            return own.approval
        if self.approval == "policy":
            return "never" if own is None else "always"
        return self.approval

    def _own(self, server: str) -> ServerRule | None:
        return self.servers.get(server) or self.servers.get(ANY)


def shaped(
    request: SamplingRequest,
    rule: ServerRule,
    targets: Callable[[str], Sequence[Target]],
    default: str | None = None,
    adapt: Callable[[str | None], AdaptMode] = lambda _: "adapt",
) -> SamplingRequest:
    """The request within its rule; `targets` are those of a model, and `default` is the host's.

    `adapt` says what becomes of advisory options that the model lacks.
    """
    model = _model(request, rule, targets) or default
    limits: list[int] = [request.max_tokens]
    if rule.max_tokens is not None:
        limits.append(rule.max_tokens)
    choice = request.tool_choice
    rounds = sum(1 for message in request.messages if message.tool_uses)
    if request.tools and rounds >= rule.max_tool_rounds:
        choice = ToolChoice("none")
    return msgspec.structs.replace(
        request,
        max_tokens=min(limits),
        model=model,
        tool_choice=choice,
        timeout=rule.timeout_s,
        ignore_invalid_options=rule.drop_unsupported,
        adapt=adapt(model),
    )


def _model(
    request: SamplingRequest, rule: ServerRule, targets: Callable[[str], Sequence[Target]]
) -> str | None:
    """The first allowed model that the first hint fits which fits any; else the first allowed."""
    if not rule.models:
        return None
    preferences = request.model_preferences
    for hint in () if preferences is None else preferences.hints:
        for model in rule.models:
            names = (model, *map(str, targets(model)))
            if any(hint.lower() in name.lower() for name in names):
                return model
    return rule.models[0]
