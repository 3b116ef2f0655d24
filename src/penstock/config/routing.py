"""How models with `routing = "learned"` learn."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from penstock.config.values import Section


class RoutingConfig(Section):
    """How models with `routing = "learned"` learn which target serves a prompt best."""

    embedder: str = Field(
        default="wordllama",
        min_length=1,
        description="What tells similar prompts: the bundled table of word vectors, or the "
        "`provider/model` of one that embeds, or a model of `[models]` that does, which is one "
        "more call for each request.",
        examples=["wordllama", "openai/text-embedding-3-small"],
    )
    explore: float = Field(
        default=0.02,
        ge=0,
        le=0.5,
        description="The share of requests that any target may get, so that its quality stays "
        "known; a quarter of it once the learned order is followed, which tries targets by itself. "
        "0: none, and a target that is left alone is never found to have become better.",
    )
    trust: Literal["evidence", "always"] = Field(
        default="evidence",
        description="When the learned order is followed: once outcomes show that it earns more "
        "than the configured one, or from the first request on.",
    )
    isolate_keys: bool = Field(
        default=False,
        description="Whether each key's requests are routed by its own outcomes only. Otherwise "
        "all keys teach the same memory.",
    )
    keep_prompts: bool = Field(
        default=False,
        description="Whether prompts are written down with their outcomes, for exports. Otherwise "
        "only numbers are kept from which no text can be read.",
    )
    memory: int = Field(
        default=4_096,
        ge=64,
        le=1_000_000,
        description="Prompts that a model is remembered by. The one with the least evidence left "
        "gives it to the one most like it, and its place to a new one.",
    )
    index: Literal["auto", "exact", "usearch", "ruvector", "pgvector"] = Field(
        default="auto",
        description="How the most similar prompts are found: `exact` compares all of them, "
        "`usearch` and `ruvector` follow a graph in this process; where the package is missing, "
        "`exact` is used, with a warning. `auto` compares sketches of all, and in full "
        "those that look best; for a memory of more than 20,000 prompts it takes `usearch`, where "
        "it is installed. With `pgvector` the graph is in a database that gateways share.",
    )
    index_url: SecretStr | None = Field(
        default=None,
        description="`pgvector` only: the PostgreSQL database for it, which has the extension "
        "`vector`, version 0.8 or newer, or lets this user create it. Gateways that share it must "
        "share their outcomes too.",
        examples=["postgresql://penstock:${PENSTOCK_INDEX_PASSWORD}@localhost/penstock"],
    )
    keep_outcomes: int = Field(
        default=200_000,
        ge=1_000,
        description="Outcomes that are kept of each model in the database; the oldest go first.",
    )
    keep_days: int | None = Field(
        default=None,
        ge=1,
        description="Outcomes older than this are deleted. Default: kept until there are too many.",
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        description="For tests: the same seed and the same outcomes make the same decisions.",
    )

    @field_validator("index_url")
    @classmethod
    def _of_postgres(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        text = url.get_secret_value().strip() if url is not None else ""
        if not text:
            return None
        if info.data.get("index") == "ruvector":
            raise ValueError(
                'index = "ruvector" runs in this process and connects to no server: remove '
                'index_url, or set index = "pgvector" for an index that gateways share'
            )
        if not text.startswith(("postgresql://", "postgres://")):
            raise ValueError("it must begin with postgresql://")
        return SecretStr(text)

    @model_validator(mode="after")
    def _index_that_can_be_made(self) -> RoutingConfig:
        if self.index != "pgvector":
            if self.index_url is not None:
                raise ValueError('index_url requires index = "pgvector"')
            return self
        if self.index_url is None:
            raise ValueError('index = "pgvector" takes index_url: give postgresql://...')
        if self.isolate_keys:
            raise ValueError(
                'index = "pgvector" has one memory for all keys, and isolate_keys gives each its '
                'own: set isolate_keys = false, or index = "auto"'
            )
        return self
