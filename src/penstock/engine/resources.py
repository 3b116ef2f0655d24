"""What an engine has open: its connections, its providers, its tool servers."""

from __future__ import annotations

from penstock.config.settings import Config, ProviderConfig
from penstock.contract.ports import Provider
from penstock.engine.build.providers import provider_settings, transport_settings
from penstock.mcp.connections import ToolServers
from penstock.providers.http.transport import HttpTransport
from penstock.providers.registry import ProviderSettings, build


class Belongings:
    """Made when first needed, and closed together, unless they are somebody else's."""

    def __init__(
        self,
        config: Config,
        *,
        transport: HttpTransport | None = None,
        tool_servers: ToolServers | None = None,
    ) -> None:
        """A `transport` and `tool_servers` that are given are closed by whoever made them."""
        self._config = config
        self._owns_transport = transport is None
        self._owns_tool_servers = tool_servers is None
        self.transport = transport or HttpTransport(transport_settings(config))
        self.tool_servers = tool_servers or ToolServers(*_connections(config))
        self._providers: dict[str, Provider] = {}
        self._left: set[str] = set()
        """The providers that an heir has."""

    def provider(self, name: str) -> Provider:
        """The provider of this name, built when first asked for."""
        if name not in self._providers:
            self._providers[name] = build(_settings(self._config, name), self.transport)
        return self._providers[name]

    def use(self, provider: Provider) -> None:
        """Put this object in the place of the configured provider of its name."""
        self._providers[provider.name] = provider

    def shares(self, name: str, other: Config) -> bool:
        """Whether this provider is reached in the same way under another configuration."""
        mine = self._config
        return (
            transport_settings(mine) == transport_settings(other)
            and mine.providers.keys() & {name} == other.providers.keys() & {name}
            and _settings(mine, name) == _settings(other, name)
        )

    def has_account(self, name: str, other: Config) -> bool:
        """Whether this provider has the same address and key under another configuration."""
        return _settings(self._config, name) == _settings(other, name)

    def leave_to(self, heir: Belongings) -> None:
        """Let somebody else have, and close, whatever its configuration reaches in the same way.

        What is left stays in use here until it is closed there.
        """
        if self.transport is heir.transport:
            heir._owns_transport, self._owns_transport = self._owns_transport, False
        if self.tool_servers is heir.tool_servers:
            heir._owns_tool_servers, self._owns_tool_servers = self._owns_tool_servers, False
            self.tool_servers.change(*_connections(heir._config))
        for name, provider in self._providers.items():
            if name not in self._left and self.shares(name, heir._config):
                heir._providers[name] = provider
                self._left.add(name)

    async def aclose(self) -> None:
        """Close what nobody else has."""
        if self._owns_tool_servers:
            await self.tool_servers.aclose()
        for name, provider in self._providers.items():
            if name not in self._left:
                await provider.aclose()
        self._providers.clear()
        if self._owns_transport:
            await self.transport.aclose()


def _connections(config: Config) -> tuple[int, int]:
    limits = config.limits
    return limits.max_mcp_connections, limits.max_mcp_connections_per_key


def _settings(config: Config, name: str) -> ProviderSettings:
    return provider_settings(name, config.providers.get(name, ProviderConfig()))
