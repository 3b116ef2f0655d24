"""A subscriber whose package is missing says what to install."""

import importlib
import sys

import pytest


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.telemetry.exporters.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'penstock\[otel\]'"):
        importlib.import_module("penstock.telemetry.exporters.otel")
