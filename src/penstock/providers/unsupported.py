"""What a provider says when it is asked for a service that it does not have."""

from __future__ import annotations

from penstock.contract.errors import UnsupportedOption


def lacking(service: str, provider: str, model: str) -> UnsupportedOption:
    """The error for a service, such as embeddings, that this provider has for no model."""
    return UnsupportedOption(
        f"{provider} offers no {service}; choose another provider",
        options=[service],
        provider=provider,
        model=model,
    )
