"""Whether a gateway sends traces and metrics to a collector, and with what."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.telemetry.exporters.conventions import OTLP_ENDPOINT

if TYPE_CHECKING:
    from penstock.telemetry.exporters.otlp import Otlp

logger = logging.getLogger("penstock.server")
_REMEDY = "needs OpenTelemetry: pip install 'penstock[otel]'"


def check(config: Config) -> type[Otlp] | None:
    """What sends; None: nobody asks for it.

    Raises ConfigurationError when the packages are missing. Where only the environment names a
    collector, which may be meant for others, that is a warning.
    """
    named = config.telemetry.otlp_endpoint is not None
    if not named and (_is_disabled() or not os.environ.get(OTLP_ENDPOINT)):
        return None
    try:
        # They take a while, and most gateways do without.
        from penstock.telemetry.exporters.otlp import Otlp
    except ModuleNotFoundError as error:
        if named:
            raise ConfigurationError(f"telemetry.otlp_endpoint {_REMEDY}") from error
        logger.warning("%s is set, and nothing is sent there: it %s", OTLP_ENDPOINT, _REMEDY)
        return None
    return Otlp


def exporter_of(config: Config) -> Otlp | None:
    """Who sends what the gateway does; raises as `check` does."""
    sender = check(config)
    if sender is None:
        return None
    wanted = config.telemetry
    return sender(
        wanted.otlp_endpoint,
        headers={name: value.get_secret_value() for name, value in wanted.otlp_headers.items()},
        service_name=wanted.service_name,
        sample_ratio=wanted.sample_ratio,
    )


def _is_disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
