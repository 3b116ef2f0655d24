"""The settings of what the gateway tells a collector."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from penstock.config.values import Section


class TelemetryConfig(Section):
    """Where `penstock serve` sends traces and metrics; needs `pip install 'penstock[otel]'`."""

    otlp_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Address of an OpenTelemetry collector that takes OTLP over HTTP, without "
        "`/v1/traces` and `/v1/metrics`. Default: OTEL_EXPORTER_OTLP_ENDPOINT; without either "
        "nothing is sent.",
        examples=["http://127.0.0.1:4318"],
    )
    otlp_headers: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Headers for the collector, such as its key. They go before those of "
        "OTEL_EXPORTER_OTLP_HEADERS.",
        examples=[{"authorization": "Bearer ${COLLECTOR_TOKEN}"}],
    )
    service_name: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="What the gateway calls itself there. Default: OTEL_SERVICE_NAME, or "
        "`penstock`.",
        examples=["penstock"],
    )
    sample_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Share of the traces that are sent, of those that begin here; others go by "
        "their caller's choice. Metrics count all requests. Default: OTEL_TRACES_SAMPLER, or all.",
        examples=[0.1],
    )
