"""The settings of the gateway: where it listens, and what it takes from its clients."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from penstock.config.values import FilePath, Seconds, Section

SHORTEST_ADMIN_KEY = 16


def _drain_s() -> float:
    text = os.environ.get("PENSTOCK_DRAIN_S", "").strip()
    try:
        return float(text) if text else 0.0
    except ValueError:
        raise ValueError(f"PENSTOCK_DRAIN_S is {text!r}; it must be a number of seconds") from None


class ServerConfig(Section):
    """Where `penstock serve` listens."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(
        default=8400, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    log: Literal["console", "json", "none"] = Field(
        default="console",
        description="How each request is logged to standard error: for people, as JSON lines, or "
        "not at all. What was said is not logged, except what a provider quotes in an error: see "
        "`keep_error_text`.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Processes that share the port, the ledger and the limits of keys.",
    )
    grace_s: Seconds = Field(
        default=10.0,
        description="How long running requests may go on when the gateway stops.",
    )
    drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default_factory=_drain_s,
        description="How long `/ready` answers 503 after SIGTERM before the port closes, so that a "
        "load balancer sends no new requests. Default: 0, or the variable `PENSTOCK_DRAIN_S`, "
        "which is 5 in the container image.",
        examples=[5.0],
    )
    tls_certificate: FilePath | None = Field(
        default=None,
        description="PEM file of the certificate, and of those that lead to its authority; with it "
        "the gateway speaks HTTPS. It is read again when it changes.",
        examples=["/etc/penstock/tls.crt"],
    )
    tls_key: FilePath | None = Field(
        default=None,
        description="PEM file of the certificate's key, when that is not in the same file.",
        examples=["/etc/penstock/tls.key"],
    )
    cors_origins: tuple[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")], ...] = Field(
        default=(),
        description="Origins whose web pages may call the gateway from a browser, such as "
        "`https://app.example.com`; `*`: all. Default: none.",
    )
    mcp_servers: (
        tuple[Annotated[str, Field(pattern=r"^(\*|public|https?://[^/\s?#@]+(/[^\s?#]*)?)$")], ...]
        | None
    ) = Field(
        default=None,
        description="MCP servers that callers may have the gateway connect to: addresses, `public` "
        "for every https address of the internet, `*` for whatever this machine reaches. Default: "
        "`public` where keys are asked for, otherwise `*`.",
        examples=[["public", "http://10.0.0.5:8000/mcp"]],
    )
    forwarded_fields: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(
        default=(),
        description="Fields of a request's body that any caller may have passed on to a provider: "
        "also with a key for certain models, and under a hard budget. Without it, such callers may "
        "send only what is known to change neither the model nor the route nor the price.",
        examples=[["repetition_context_size"]],
    )
    idempotency_ttl_s: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        default=86_400.0,
        description="How long the answer to a request with an `Idempotency-Key` is stored for "
        "repeated requests, in a file next to the ledger. 0: the header is ignored and nothing is "
        "stored.",
    )
    mcp_resume_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=0.0,
        description="How long a legacy MCP client that lost its connection to `/mcp` may come back "
        "for the rest of an answer, with `Last-Event-ID`. The call goes on meanwhile and is paid; "
        "its events are kept in a file next to the ledger. 0: a lost connection cancels the call.",
        examples=[60.0],
    )
    keep_error_text: bool = Field(
        default=True,
        description="Whether the record of a request keeps what a provider said about a failure, "
        "for `penstock requests show`, the admin API and the log: at most 500 characters, keys "
        "masked. A provider may quote the prompt in it.",
    )
    audit_days: Annotated[float, Field(ge=0, le=36_500)] = Field(
        default=365.0,
        description="How many days changes of administrators are kept in the store: at most "
        "100,000 of them. 0: they are only logged.",
    )
    admin_key: SecretStr | None = Field(
        default=None,
        description="The key for `/admin`, which opens no other endpoint but `/metrics` and "
        "`/ready`. Without it the admin API is disabled.",
        examples=["${PENSTOCK_ADMIN_KEY}"],
    )

    @model_validator(mode="after")
    def _pair(self) -> ServerConfig:
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("tls_key requires tls_certificate")
        return self

    @field_validator("admin_key")
    @classmethod
    def _long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        text = key.get_secret_value().strip() if key is not None else ""
        # An environment variable that is empty means none: it must not let everybody in.
        if not text:
            return None
        if len(text) < SHORTEST_ADMIN_KEY:
            raise ValueError(
                f"it has {len(text)} characters: give {SHORTEST_ADMIN_KEY} or more, such as a key "
                "that `penstock keys hash` makes"
            )
        return SecretStr(text)


class LimitsConfig(Section):
    """What a request may ask for."""

    max_temperature: float = Field(default=2.0, ge=0, description="Highest temperature.")
    max_stop_sequences: int = Field(default=10, ge=0, description="Most stop sequences.")
    max_request_bytes: int = Field(
        default=20_000_000,
        gt=0,
        description="Largest request body, or message of a WebSocket, that the gateway reads.",
    )
    max_head_bytes: int = Field(
        default=65_536,
        ge=1024,
        description="Largest head of a request, its address and headers, that the gateway reads.",
    )
    head_timeout_s: Seconds = Field(
        default=15.0, description="From the first byte of a request to the end of its head."
    )
    body_timeout_s: Seconds = Field(
        default=30.0,
        description="From the head of a request to the end of its body; a large one gets a second "
        "more for each 8 kB.",
    )
    write_timeout_s: Seconds = Field(
        default=60.0,
        description="How long a client may read less than 8 kB a second of what is written to it.",
    )
    max_socket_requests: int = Field(
        default=128, gt=0, description="Most requests at once on one WebSocket of the gateway."
    )

    # What one request may hold: counts, depth and work.
    max_messages: int = Field(default=10_000, gt=0, description="Most messages.")
    max_parts: int = Field(
        default=20_000,
        gt=0,
        description="Most content parts of all messages together, those inside results of tools "
        "included.",
    )
    max_tools: int = Field(
        default=1_024,
        gt=0,
        description="Most tools, those of MCP servers that the gateway connects to included.",
    )
    max_schema_values: int = Field(
        default=50_000,
        gt=0,
        description="Most JSON values (objects, lists and what they hold) in the schemas of the "
        "tools and of the answer together.",
    )
    max_json_values: int = Field(
        default=250_000,
        gt=0,
        description="Most JSON values in a request body, or in a message of a WebSocket.",
    )
    max_json_depth: int = Field(
        default=100,
        gt=0,
        le=200,
        description="Deepest nesting of schemas, arguments of calls, structured results and "
        "metadata.",
    )
    max_metadata: int = Field(default=64, ge=0, description="Most entries of the metadata.")
    max_extra_fields: int = Field(
        default=100,
        ge=0,
        description="Most fields at the top of a body that Penstock does not know and passes on.",
    )
    max_hints: int = Field(default=100, ge=0, description="Most hints of the model preferences.")
    max_texts: int = Field(
        default=100_000, gt=0, description="Most texts of one embedding request."
    )
    max_idempotency_bytes: int = Field(
        default=1_000_000,
        gt=0,
        description="Largest answer that is stored for an `Idempotency-Key`. A request that "
        "repeats one with a larger answer gets 409.",
    )
    max_idempotency_answers: int = Field(
        default=10_000,
        gt=0,
        description="Most stored answers; above it the oldest ones are deleted.",
    )
    max_idempotency_answers_per_key: int = Field(
        default=1_000, gt=0, description="The same for the requests of one key."
    )
    max_idempotency_total_bytes: int = Field(
        default=256_000_000, gt=0, description="Most bytes of all stored answers together."
    )
    max_mcp_servers: int = Field(default=16, ge=0, description="Most MCP servers.")
    max_mcp_connections: int = Field(
        default=128,
        gt=0,
        description="Most open connections of a worker to MCP servers. A further one closes the "
        "connection that is idle for longest, or waits for one.",
    )
    max_mcp_connections_per_key: int = Field(
        default=32, gt=0, description="The same for the servers that one key has named."
    )
