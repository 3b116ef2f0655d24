"""Provider and transport settings from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.settings import (
    Config,
    ProviderConfig,
)
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import TransportSettings
from penstock.providers.registry import ProviderSettings

if TYPE_CHECKING:
    pass


def transport_settings(config: Config) -> TransportSettings:
    """How this configuration wants connections to be used."""
    pool = config.pool
    return TransportSettings(
        connect_timeout_s=pool.connect_timeout_s,
        response_timeout_s=pool.request_timeout_s,
        slowest_tokens_per_s=pool.slowest_tokens_per_s,
        body_timeout_s=pool.body_timeout_s,
        first_token_timeout_s=pool.first_token_timeout_s,
        idle_timeout_s=pool.stream_idle_timeout_s,
        keep_alive_timeout_s=pool.keep_alive_timeout_s,
        max_response_bytes=pool.max_response_bytes,
        max_stream_bytes=pool.max_stream_bytes,
        response_bytes_per_token=pool.response_bytes_per_token,
        ca_file=pool.ca_file,
    )


def provider_settings(name: str, configured: ProviderConfig) -> ProviderSettings:
    """One provider's table, as the registry takes it."""
    token = configured.auth_token.get_secret_value().strip() if configured.auth_token else ""
    return ProviderSettings(
        name,
        configured.kind or name,
        url=configured.url,
        auth_token=Secret(token) if token else None,
        headers=configured.headers,
        options=configured.options,
    )
