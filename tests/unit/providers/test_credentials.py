"""Keys come from the environment and are shown to nobody."""

import pytest

from penstock.providers.credentials import Secret, key_from_environment
from penstock.providers.registry import ProviderSettings


def test_a_secret_is_shown_by_nothing_but_its_reveal() -> None:
    secret = Secret("sk-1")
    settings = ProviderSettings("p", "k", auth_token=secret, headers={"x-api-key": "sk-1"})
    assert "sk-1" not in f"{secret} {secret!r} {secret!s} {[secret]} {settings} {settings!r}"
    assert secret.reveal() == "sk-1"


def test_the_first_variable_that_holds_something_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_KEY", " \n")
    monkeypatch.setenv("SECOND_KEY", " sk-2\n")
    monkeypatch.setenv("THIRD_KEY", "sk-3")
    found = key_from_environment(["ZEROTH_KEY", "FIRST_KEY", "SECOND_KEY", "THIRD_KEY"])
    assert found is not None
    assert found.reveal() == "sk-2"
    assert key_from_environment(["ZEROTH_KEY"]) is None
    assert key_from_environment([]) is None
