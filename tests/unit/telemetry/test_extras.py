"""A subscriber whose package is missing says what to install."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("penstock.telemetry.otel", "opentelemetry.metrics", "otel"),
        ("penstock.telemetry.prometheus", "prometheus_client", "prometheus"),
    ],
)
def test_the_extra_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'penstock\[{extra}\]'"):
        importlib.import_module(module)
