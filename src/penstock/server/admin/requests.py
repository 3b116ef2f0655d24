"""What the admin API takes; whatever is not foreseen here is refused.

Times are Unix seconds, and limits are in US dollars, as people write them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.budget.calendar import Period
from penstock.budget.entries import EntryKind
from penstock.telemetry.records import Outcome

MOST_LISTED = 1000
_LATEST = 253_402_300_799
_MOST_A_MINUTE = 10**12
_CENTURY_S = 3_153_600_000
_MOST_USD = 1e9
_END = r"$(?!\n)"
"""The end of a text for Python, where `$` alone lets a line break follow, and for JSON Schema."""
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

Moment: TypeAlias = Annotated[float, Meta(ge=0, le=_LATEST, description="Unix seconds.")]
Named: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_LISTED, description="Most that are listed.")]
ZoneName: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description="A name of the IANA database, such as Europe/Berlin.",
        extra_json_schema={"format": "timezone"},
    ),
]
ModelName: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=rf"^\S+{_END}",
        description="A configured model, `provider/model` or `provider/*`.",
        extra_json_schema={"format": "model"},
    ),
]
TargetName: TypeAlias = Annotated[
    str,
    Meta(
        max_length=256,
        pattern=rf"^[^/\s]+/\S+{_END}",
        description="`provider/model`; the provider must be configured.",
        extra_json_schema={"format": "target"},
    ),
]
TargetPattern: TypeAlias = Annotated[
    str,
    Meta(
        max_length=256,
        pattern=rf"^[^/\s]+(/\S+)?{_END}",
        description="`provider/model`, a whole provider, or a pattern such as `openai/gpt-*`; it "
        "must cover a target or a provider that is known.",
        extra_json_schema={"format": "target"},
    ),
]
KeyName: TypeAlias = Annotated[str, Meta(pattern=rf"^{_NAME}{_END}")]
TagText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
Tags: TypeAlias = Annotated[dict[TagText, TagText], Meta(max_length=16)]
PerMinute: TypeAlias = Annotated[int, Meta(ge=1, le=_MOST_A_MINUTE)]
Lifetime: TypeAlias = Annotated[
    int, Meta(ge=1, le=_CENTURY_S, description="Seconds from now on after which it expires.")
]
Dollars: TypeAlias = Annotated[
    float, Meta(ge=0, le=_MOST_USD, description="US dollars; rounded to nine decimals.")
]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What callers send."""


class UsageQuery(Asked):
    """Of which time, and a row for each of what."""

    by: (
        Annotated[
            str,
            Meta(
                pattern=rf"^(provider|model|key|tag:[^\n]{{1,128}}){_END}",
                description="`provider`, `model`, `key`, or `tag:NAME` for each value of a tag.",
            ),
        ]
        | UnsetType
    ) = UNSET
    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET


class LedgerQuery(Asked):
    """Which lines of the ledger, newest first unless it is said otherwise."""

    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET
    kind: EntryKind | UnsetType = UNSET
    request_id: Named | UnsetType = UNSET
    key: Named | UnsetType = UNSET
    provider: Named | UnsetType = UNSET
    model: Named | UnsetType = UNSET
    cursor: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="`next` of the page before this one.")]
        | UnsetType
    ) = UNSET
    limit: Limit = 100
    oldest_first: bool = False


class AuditQuery(Asked):
    """Which changes; each condition that is given must hold."""

    since: Moment | UnsetType = UNSET
    until: Moment | UnsetType = UNSET
    action: Annotated[Named, Meta(description="Such as `set_budget`.")] | UnsetType = UNSET
    subject: Annotated[Named, Meta(description="What was changed.")] | UnsetType = UNSET
    cursor: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="`next` of the page before this one.")]
        | UnsetType
    ) = UNSET
    limit: Limit = 100


class RequestsQuery(Asked):
    """Which requests; each condition that is given must hold."""

    state: Literal["all", "running", "ended"] = "all"
    outcome: Outcome | UnsetType = UNSET
    key: Named | UnsetType = UNSET
    model: (
        Annotated[Named, Meta(description="What was asked for, or who answered or was tried.")]
        | UnsetType
    ) = UNSET
    provider: Annotated[Named, Meta(description="Who answered or was tried.")] | UnsetType = UNSET
    limit: Limit = 100


class RequestPath(Asked):
    """Which request."""

    request_id: Annotated[str, Meta(min_length=1, max_length=128)]


class RequestQuery(Asked):
    """Of which key, where several have chosen the same id."""

    key: (
        Annotated[Named, Meta(description="Default: of any key; the newest that is found.")]
        | UnsetType
    ) = UNSET


class CancelQuery(Asked):
    """Of which key, where several have chosen the same id."""

    key: Annotated[Named, Meta(description="Default: of all keys.")] | UnsetType = UNSET


class ProvidersQuery(Asked):
    """Whether each provider is asked now for its models, which costs no tokens."""

    check: bool = False


class ProviderPath(Asked):
    """Which provider."""

    name: Named


class DownOrder(Asked):
    """Which targets are to be left alone, and why."""

    target: TargetPattern
    reason: Annotated[str, Meta(min_length=1, max_length=200)] = "by an administrator"


class UpOrder(Asked):
    """Which targets are to be asked again."""

    target: TargetPattern


Priority: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class RouteOrder(Asked):
    """A request that is not made; only its route is told."""

    prompt: Annotated[str, Meta(min_length=1, max_length=100_000)] = "Hello"
    model: ModelName | UnsetType = UNSET
    key: Annotated[
        Named | UnsetType,
        Meta(description="Whose request it would be, where keys learn for themselves."),
    ] = UNSET
    hints: Annotated[list[Named], Meta(max_length=20)] = []
    cost: Priority | UnsetType = UNSET
    speed: Priority | UnsetType = UNSET
    intelligence: Priority | UnsetType = UNSET


class EstimateOrder(Asked):
    """A request that is not made: only its cost is told, and whether budgets have room for it."""

    prompt: Annotated[str, Meta(min_length=1, max_length=1_000_000)] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | UnsetType = UNSET
    model: ModelName | UnsetType = UNSET
    system_prompt: Annotated[str, Meta(max_length=1_000_000)] | UnsetType = UNSET
    request: (
        Annotated[
            dict[str, Any],
            Meta(
                description="In the place of these: a body of `POST /v1/chat/completions`.",
            ),
        ]
        | UnsetType
    ) = UNSET
    key: (
        Annotated[Named, Meta(description="Whose request it would be: its models, budgets, tags.")]
        | UnsetType
    ) = UNSET
    tags: Tags = {}


Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=10**12)]


class UsageCounts(Asked):
    """What the call has used; a part, such as cached tokens, is in the whole as well."""

    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_input_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    input_audio_tokens: Tokens | None = None
    output_image_tokens: Tokens | None = None
    audio_seconds: Annotated[float, Meta(ge=0, le=10**9)] | None = None
    estimated: bool = False


class UsageOrder(Asked):
    """A call that was made without this gateway."""

    target: TargetName
    usage: UsageCounts
    key: Annotated[Named, Meta(description="The key that it counts for.")] | UnsetType = UNSET
    tags: Tags = {}
    latency_s: (
        Annotated[float, Meta(ge=0, le=86_400, description="How long it took; for routing.")]
        | UnsetType
    ) = UNSET
    quality: (
        Annotated[
            float,
            Meta(ge=0, le=1, description="0 is useless, 1 is perfect; for models that learn."),
        ]
        | UnsetType
    ) = UNSET
    prompt: Annotated[
        str,
        Meta(max_length=1_000_000, description="What was asked: models learn by similar prompts."),
    ] = ""


class BudgetPath(Asked):
    """Which budget."""

    name: Named


class NewBudgetPath(Asked):
    """Which budget; `key:NAME` is that of a key."""

    name: Annotated[str, Meta(pattern=rf"^(key:)?{_NAME}{_END}")]


class BudgetOrder(Asked):
    """What may be spent; what is left out is not narrowed to."""

    limit_usd: Dollars
    period: Period = "month"
    timezone: ZoneName = "UTC"
    provider: Named | UnsetType = UNSET
    model: Named | UnsetType = UNSET
    key: Named | UnsetType = UNSET
    tags: Tags = {}
    hard: bool = True
    warn_at: Annotated[
        tuple[Annotated[float, Meta(gt=0, le=100)], ...],
        Meta(max_length=20, description="Shares of the limit at which there is a warning."),
    ] = (0.8,)


class KeyPath(Asked):
    """Which key."""

    name: Named


class KeyBudgetOrder(Asked):
    """What a key may spend of its own."""

    limit_usd: Dollars
    period: Period = "month"
    timezone: ZoneName = "UTC"


class KeyOrder(Asked):
    """A key that is to be made."""

    name: KeyName
    scope: Annotated[
        Literal["calls", "metrics"], Meta(description="`metrics`: it opens `/metrics` alone.")
    ] = "calls"
    models: Annotated[
        list[ModelName], Meta(max_length=100, description="What it may ask for; none: everything.")
    ] = []
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    expires_in_s: Lifetime | None = None
    tags: Tags = {}
    budget: KeyBudgetOrder | None = None


class KeyPatch(Asked):
    """What is to be changed of a key; null takes a limit away, what is left out stays."""

    models: (
        Annotated[
            list[ModelName],
            Meta(max_length=100, description="What it may ask for; []: everything."),
        ]
        | UnsetType
    ) = UNSET
    requests_per_minute: PerMinute | UnsetType | None = UNSET
    tokens_per_minute: PerMinute | UnsetType | None = UNSET
    expires_in_s: Lifetime | UnsetType | None = UNSET
    tags: Tags | UnsetType = UNSET
    budget: KeyBudgetOrder | UnsetType | None = UNSET


class RotateOrder(Asked):
    """How long the old text works beside the new one."""

    grace_s: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0


class ApprovalPath(Asked):
    """Which of those that wait."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]


class ApprovalOrder(Asked):
    """What is decided; an `edit` is a yes to what is sent along, in the place of what was asked."""

    decision: Literal["approve", "deny", "edit"]
    reason: Annotated[
        str, Meta(max_length=500, description="With `deny`: why; the caller reads it.")
    ] = ""
    params: (
        Annotated[
            dict[str, Any],
            Meta(description="With `edit`, of a request: those of MCP's params that change."),
        ]
        | UnsetType
    ) = UNSET
    text: (
        Annotated[
            str,
            Meta(max_length=1_000_000, description="With `edit`, of an answer: its new words."),
        ]
        | UnsetType
    ) = UNSET
