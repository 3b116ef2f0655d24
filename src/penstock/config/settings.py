"""Every setting with its default and its meaning; the reference page is made from this module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Field,
    PrivateAttr,
    SecretStr,
    field_serializer,
)

from penstock.config.keys import KeyConfig
from penstock.config.routing import RoutingConfig
from penstock.config.sampling import SamplingConfig
from penstock.config.server import LimitsConfig, ServerConfig
from penstock.config.telemetry import TelemetryConfig
from penstock.config.values import (
    DatabaseURL,
    FilePath,
    KeyName,
    Name,
    Seconds,
    Section,
    TargetName,
    Usd,
    Zone,
)

DEFAULT_STORAGE = "sqlite:///penstock.db"


class ProviderConfig(Section):
    """One provider: an endpoint and its credentials. The table's name is the provider's name."""

    kind: str | None = Field(
        default=None, description="Which provider this is; the table's name when left out."
    )
    url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Base address; each kind has its own default.",
    )
    auth_token: SecretStr | None = Field(
        default=None,
        description="The key; when left out, and `url` too, the kind's own variable is read.",
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,  # a key may stand here too
        description="Further headers for every call.",
    )
    model_path: FilePath | None = Field(
        default=None,
        description="`embedded` only: a GGUF file of your own instead of the bundled model.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="`embedded` only: threads to compute with; default: all cores but one.",
    )
    context: int | None = Field(
        default=None,
        ge=256,
        description="`embedded` and `ollama` only: size of the context window in tokens.",
    )
    max_concurrent: int | None = Field(
        default=None,
        ge=1,
        description="Requests at once for each of its models; more wait in line.",
    )
    api_version: str | None = Field(
        default=None, description="`anthropic` and `gemini` only: the version of the API."
    )
    region: str | None = Field(
        default=None, description="`bedrock` only: the AWS region; default: AWS_REGION, us-east-1."
    )
    profile: str | None = Field(
        default=None, description="`bedrock` only: the AWS profile; default: AWS_PROFILE."
    )

    @field_serializer("headers")
    def _without_values(self, headers: dict[str, str]) -> dict[str, str]:
        # A key may stand here too, and a dump is written to logs.
        return dict.fromkeys(headers, "**********")

    @property
    def options(self) -> dict[str, str | int]:
        """The settings that only some kinds know, as far as they are given."""
        names = ("model_path", "threads", "context", "api_version", "region", "profile")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


class PriceConfig(Section):
    """A price of your own, in USD per million tokens, instead of the one that is known."""

    input: Usd = Field(description="What the model reads.")
    output: Usd = Field(description="What it writes, its thinking included.")
    cached_input: Usd | None = Field(
        default=None, description="What it reads from a cache; as `input` when left out."
    )
    cache_write: Usd | None = Field(
        default=None, description="What is written into a cache; as `input` when left out."
    )
    input_audio: Usd | None = Field(
        default=None, description="Tokens of sound; as `input` when left out."
    )
    audio_minute: Usd | None = Field(
        default=None, description="USD for each minute of sound, where that is what is charged."
    )


class ModelConfig(Section):
    """What callers ask for: a name, and the targets that serve it."""

    targets: tuple[TargetName, ...] = Field(
        min_length=1, description="`provider/model` in the order in which they are tried."
    )
    routing: Literal["ordered", "learned", "cheapest", "fastest"] = Field(
        default="ordered",
        description="How the targets are ranked that can serve a request, can be asked and match "
        "its hints equally well: as they are written; by what is learnt of their answers and the "
        "request's priorities; by expected cost; or by expected time. A request with priorities "
        "orders the targets of an `ordered` model by them, see `priorities`.",
    )
    priorities: Literal["on", "off"] = Field(
        default="on",
        description="Whether a request's `costPriority`, `speedPriority` and "
        "`intelligencePriority` decide the order of the targets where `routing` is `ordered` or "
        "`learned`. `off`: they are not used, and the route's reason says so.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="The limit of an answer where a call in Python gives none. Without it: 4096, "
        "or what the targets can do if that is less; no default where nothing is known of them.",
    )
    adapt: Literal["adapt", "refuse"] = Field(
        default="adapt",
        description="What becomes of an advisory option that a target lacks, such as a temperature "
        "or a reasoning level, in requests of endpoints and of MCP servers. `adapt`: the nearest "
        "value is sent, or none. `refuse`: the request is refused. The header `x-penstock-adapt` "
        "of a request goes first.",
    )
    sticky: bool = Field(
        default=False,
        description="Whether a session stays with the target that has served it, while that one "
        "can be asked. A request names its session in its metadata: `session_id`, `session` or "
        "`user`.",
    )
    prices: dict[str, PriceConfig] = Field(
        default_factory=dict,
        description="What a target costs, by its name in `targets`; it goes before all other "
        "prices.",
    )


class PricesConfig(Section):
    """What calls cost where neither Penstock nor a model's own table knows it."""

    default: PriceConfig | None = Field(
        default=None,
        description="USD per million tokens for targets without a known price, servers at local "
        "addresses included. Without it, a hard budget refuses the others.",
        examples=[{"input": 3.0, "output": 15.0}],
    )


class PoolConfig(Section):
    """How long to wait for a provider, how often to ask it, and when to leave it alone."""

    retries: int = Field(
        default=2,
        ge=0,
        le=20,
        description="How often the same target is asked again when its error allows it.",
    )
    longest_retry_wait_s: Seconds = Field(
        default=10.0,
        description="A target that asks for a longer pause is passed over.",
    )
    longest_pause_s: Seconds = Field(
        default=3600.0,
        description="Until the end of the pause that a target asks for (`Retry-After`), it is not "
        "asked while another target can answer; a longer pause ends after this time.",
    )
    breaker_failures: int = Field(
        default=5, ge=1, description="Failures in a row after which the circuit breaker opens."
    )
    breaker_cooldown_s: Seconds = Field(
        default=60.0, description="How long it stays open before one request tries the target."
    )
    breaker_half_open_successes: int = Field(
        default=3, ge=1, description="Successes in a row after which it is trusted again."
    )
    health_check_interval_s: Seconds = Field(
        default=30.0,
        description="How often providers that were asked are checked, with a call that costs no "
        "tokens.",
    )
    hedge_quantile: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="A target that is slower than this share of its last calls gets a "
        "second request, to the next one; the first answer counts. Default: never.",
    )
    mid_stream: Literal["continue", "restart_only", "error"] = Field(
        default="continue",
        description="What happens when a stream breaks after its first token. `continue`: the next "
        "target continues the text. `restart_only`: it answers again, and is used only if it "
        "repeats what was delivered. `error`: the caller gets the error.",
    )
    retry_empty_answers: bool = Field(
        default=True,
        description="Whether another target is asked once when an answer that ended normally is "
        "empty.",
    )
    connect_timeout_s: Seconds = Field(default=10.0, description="No connection.")
    request_timeout_s: Seconds = Field(default=60.0, description="No response headers.")
    slowest_tokens_per_s: float = Field(
        default=20.0,
        gt=0,
        allow_inf_nan=True,
        description="A whole answer, whose headers come at its end, gets so much more time than "
        "`request_timeout_s` for its `max_tokens`; ten minutes at most.",
    )
    body_timeout_s: Seconds = Field(
        default=300.0, description="Headers, but no end of an answer that is not a stream."
    )
    first_token_timeout_s: Seconds = Field(
        default=30.0,
        description="No first token. While another target is left, it is the longest silence from "
        "the request on, also for whole answers, and less for targets that usually answer soon; "
        "otherwise it begins with the headers. A model that thinks first gets up to four times as "
        "long.",
    )
    stream_idle_timeout_s: Seconds = Field(
        default=30.0, description="No further token in mid-stream."
    )
    keep_alive_timeout_s: Seconds = Field(
        default=120.0,
        description="Keep-alive comments, pings or parts of an event, but no token. They count as "
        "life for the two limits above, for so long.",
    )
    max_response_bytes: int = Field(
        default=64 * 1024 * 1024,
        gt=0,
        description="A larger answer that is not a stream is refused.",
    )
    max_stream_bytes: int = Field(
        default=256 * 1024 * 1024,
        gt=0,
        description="A longer stream is cut, and ends in an error.",
    )
    response_bytes_per_token: int = Field(
        default=4096,
        gt=0,
        description="Most bytes of an answer, streamed or not, for each token of its limit, beyond "
        "32 MiB for what tokens do not count. The two limits above hold as well.",
    )
    ca_file: FilePath | None = Field(
        default=None,
        description="PEM file of certificate authorities to trust instead of the system's.",
    )


class StorageConfig(Section):
    """Where what must not be lost is kept."""

    url: DatabaseURL | None = Field(
        default=None,
        description="The database of the ledger. A relative path is below PENSTOCK_HOME. The "
        "gateway and the command line keep one in any case; a program does when this or a budget "
        "is written. Default: `sqlite:///penstock.db`.",
        examples=["sqlite:///penstock.db"],
    )
    synchronous: Literal["normal", "full"] = Field(
        default="normal",
        description="What a power failure may take: `normal`, the last moments; `full`, nothing, "
        "for a wait at every request. A crash of the program takes nothing either way.",
    )
    owner: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="Who declares the budgets of this configuration, where several share the "
        "database: each takes away only its own. Default: the path of this file.",
        examples=["team-blue"],
    )

    @property
    def path(self) -> Path:
        """The file of the database."""
        name = (self.url or DEFAULT_STORAGE).removeprefix("sqlite:///")
        return home() / Path(name).expanduser()


class BudgetConfig(Section):
    """What may be spent, by whom, and how often that resets."""

    limit_usd: Usd = Field(description="US dollars a period.")
    period: Literal["hour", "day", "week", "month", "forever"] = Field(
        default="month", description="Calendar periods; weeks begin on Monday."
    )
    timezone: Zone = Field(default="UTC", description="Whose calendar, such as `Europe/Berlin`.")
    provider: str | None = Field(default=None, description="Only calls of this provider.")
    model: str | None = Field(
        default=None, description="Only calls of this upstream model, or `provider/model`."
    )
    key: str | None = Field(default=None, description="Only requests that come with this key.")
    tags: dict[str, str] = Field(
        default_factory=dict, description="Only requests whose metadata says all of this."
    )
    hard: bool = Field(
        default=True,
        description="Whether what does not fit is refused; otherwise there are warnings only.",
    )
    warn_at: tuple[Annotated[float, Field(gt=0, le=100)], ...] = Field(
        default=(0.8,), description="Shares of the limit at which there is a warning."
    )


class Config(Section):
    """The whole file."""

    server: ServerConfig = Field(default_factory=ServerConfig)
    providers: dict[Name, ProviderConfig] = Field(default_factory=dict)
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    pool: PoolConfig = Field(default_factory=PoolConfig)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    prices: PricesConfig = Field(default_factory=PricesConfig)
    storage: StorageConfig = Field(default_factory=StorageConfig)
    telemetry: TelemetryConfig = Field(default_factory=TelemetryConfig)
    budgets: dict[Name, BudgetConfig] = Field(default_factory=dict)
    keys: dict[KeyName, KeyConfig] = Field(default_factory=dict)
    routing: RoutingConfig = Field(default_factory=RoutingConfig)
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    _written: dict[tuple[str | int, ...], str] = PrivateAttr(
        default_factory=dict[tuple[str | int, ...], str]
    )

    @property
    def written(self) -> dict[tuple[str | int, ...], str]:
        """The texts that name variables of the environment, as they stand in the file."""
        return self._written

    _file: str | None = PrivateAttr(default=None)

    def read_from(self, file: Path) -> Config:
        """The same, which remembers its file."""
        found = self.model_copy()
        found._file = str(file.resolve())
        return found

    @property
    def source(self) -> str | None:
        """Who declares what is in it: its owner, else its file; None for one made in code."""
        return self.storage.owner or self._file

    @property
    def default_model(self) -> str | None:
        """`default` if there is such a model, else the first of the file."""
        return "default" if "default" in self.models else next(iter(self.models), None)

    @classmethod
    def embedded(cls) -> Config:
        """What holds without a file: the bundled model under the name `default`."""
        return cls(
            providers={"embedded": ProviderConfig()},
            models={"default": ModelConfig(targets=("embedded/smollm2",))},
        )


def home() -> Path:
    """PENSTOCK_HOME, where Penstock keeps its files; `~/.penstock` by default."""
    return Path(os.environ.get("PENSTOCK_HOME") or Path.home() / ".penstock").expanduser()
