"""The settings themselves: what they default to, and that they keep secrets."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from penstock.config.settings import Config, ModelConfig, ProviderConfig, Section, home


def sections(root: type[Section] = Section) -> list[type[Section]]:
    return [found for child in root.__subclasses__() for found in (child, *sections(child))]


@pytest.mark.parametrize("section", sections())
def test_every_setting_is_described_for_the_reference(section: type[Section]) -> None:
    assert section.__doc__
    if section is not Config:
        for name, field in section.model_fields.items():
            assert field.description, name
            assert field.description.endswith("."), name


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().server.port = 1


def test_the_default_model_is_the_one_called_default_else_the_first() -> None:
    one, two = ModelConfig(targets=("a/b",)), ModelConfig(targets=("c/d",))
    assert Config(models={"x": one, "default": two}).default_model == "default"
    assert Config(models={"x": one, "y": two}).default_model == "x"
    assert Config().default_model is None


def test_only_given_options_of_a_kind_are_passed_on() -> None:
    assert ProviderConfig().options == {}
    assert ProviderConfig(threads=2, model_path="m.gguf").options == {
        "threads": 2,
        "model_path": "m.gguf",
    }


def test_secrets_are_not_shown() -> None:
    config = Config(
        providers={
            "openai": ProviderConfig(
                auth_token=SecretStr("sk-secret"), headers={"x-api-key": "sk-secret"}
            )
        }
    )
    assert "sk-secret" not in f"{config!r} {config} {config.providers!r}"


def test_an_index_in_a_database_takes_its_address_and_keeps_it_secret() -> None:
    url = "postgresql://me:Qx7-secret@db.example/routing"
    config = Config.model_validate({"routing": {"index": "pgvector", "index_url": f" {url} "}})
    assert config.routing.index_url is not None
    assert config.routing.index_url.get_secret_value() == url
    shown = f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    assert "Qx7-secret" not in shown


@pytest.mark.parametrize(
    ("routing", "told"),
    [
        ({"index": "pgvector"}, 'index = "pgvector" takes index_url'),
        ({"index": "pgvector", "index_url": " "}, 'index = "pgvector" takes index_url'),
        ({"index_url": "postgresql://me:Qx7@h/d"}, 'index_url requires index = "pgvector"'),
        ({"index": "pgvector", "index_url": "mysql://me:Qx7@h/d"}, "begin with postgresql://"),
        ({"index": "ruvector", "index_url": "http://me:Qx7@h:8420"}, "connects to no server"),
        ({"index": "ruvector", "index_url": "postgres://me:Qx7@h/d"}, "remove index_url"),
        (
            {"index": "pgvector", "index_url": "postgres://me:Qx7@h/d", "isolate_keys": True},
            "set isolate_keys = false",
        ),
    ],
)
def test_an_index_that_cannot_be_made_is_refused(routing: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"routing": routing})
    (problem,) = caught.value.errors(include_input=False)
    assert told in problem["msg"]
    assert "Qx7" not in problem["msg"]


def test_home_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_HOME", "~/elsewhere")
    assert home() == tmp_path / "elsewhere"
    monkeypatch.setenv("PENSTOCK_HOME", "")
    assert home() == tmp_path / ".penstock"
    monkeypatch.delenv("PENSTOCK_HOME")
    assert home() == tmp_path / ".penstock"
