"""Engines whose gateway asks for keys."""

from __future__ import annotations

from typing import Any

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.testing import FakeProvider

ADMIN = "admin-key-of-the-tests-0123456789"


def bearer(text: str) -> dict[str, str]:
    """The header that shows this key."""
    return {"authorization": f"Bearer {text}"}


def keyed_engine(
    fake: FakeProvider | None = None, /, **keys: dict[str, Any]
) -> tuple[Engine, dict[str, str]]:
    """An engine with these keys in its configuration, and the texts of the keys.

    Its models are `default` and `assistant`, both on the fake provider, and `secret-project`.
    """
    provider = fake or FakeProvider()
    texts = {name: new_text() for name in keys}
    config = Config.model_validate(
        {
            "server": {"admin_key": ADMIN},
            "providers": {provider.name: {"kind": "fake"}},
            "pool": {"retries": 0},
            "models": {
                "default": {
                    "targets": [f"{provider.name}/echo"],
                    "prices": {f"{provider.name}/echo": {"input": 1_000.0, "output": 1_000.0}},
                },
                "assistant": {"targets": [f"{provider.name}/echo-2"]},
                "secret-project": {"targets": [f"{provider.name}/hidden"]},
            },
            "keys": {
                name: {"hash": hash_of(texts[name]), **settings} for name, settings in keys.items()
            },
        }
    )
    engine = Engine(config, model_files=False, keep_books=True)
    engine.use(provider)
    return engine, texts
