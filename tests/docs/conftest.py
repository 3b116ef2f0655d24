"""The documentation must work for a user who trusts no folder yet."""

import pytest


@pytest.fixture(autouse=True)
def no_trusted_folder(private_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pages show needs no variable that they do not name."""
    monkeypatch.delenv("PENSTOCK_TRUST_FOLDER")
