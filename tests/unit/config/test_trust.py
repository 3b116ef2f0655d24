"""A file that is found in the working folder: what it may do, and how it becomes trusted."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

import penstock
from penstock.config import trust, untrusted
from penstock.config.load import FILE_NAME, find, find_untrusted, load, locate, parse
from penstock.config.settings import Config
from penstock.config.template import template
from penstock.config.trust import ConfigFile, UntrustedFile
from penstock.config.values import Section
from penstock.contract.errors import ConfigurationError

SECRET = "sk-of-the-user"
OPENAI = "[providers.openai]"
NEEDS_NOTHING = """\
[server]
host = "127.0.0.1"
workers = 2
[providers.openai]
auth_token = "${OPENAI_API_KEY:-}"
[providers.groq]
url = "https://api.groq.com/openai/v1"
auth_token = "${GROQ_API_KEY:-}"
[providers.local]
kind = "openai-chat"
url = "http://127.0.0.1:8000/v1"
auth_token = "anything"
headers = { x-team = "search" }
[models.default]
targets = ["openai/gpt-6-luna", "local/qwen3", "embedded/smollm2"]
prices."local/qwen3" = { input = 0.0, output = 0.0 }
[limits]
max_stop_sequences = 4
[pool]
retries = 1
[routing]
explore = 0.1
keep_prompts = false
[storage]
url = "sqlite:///penstock.db"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that nothing trusts."""
    work = tmp_path / "work"
    work.mkdir(mode=0o755)
    monkeypatch.chdir(work)
    monkeypatch.delenv("PENSTOCK_TRUST_FOLDER")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return work


def write(folder: Path, text: str) -> Path:
    file = folder / FILE_NAME
    file.write_text(text)
    file.chmod(0o644)
    return file


def refused() -> UntrustedFile:
    with pytest.raises(ConfigurationError, match="is not trusted") as caught:
        load()
    untrusted_file = find_untrusted()
    assert untrusted_file is not None
    assert str(caught.value) == str(untrusted_file)
    return untrusted_file


def settings(section: type[Section], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of each setting, with `*` for names of the user's choice."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        inner = kind if isinstance(kind, type) else next(iter(get_args(kind)[1:]), None)
        named = not isinstance(kind, type)
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from settings(inner, (*path, name, "*") if named else (*path, name))
        else:
            yield (*path, name)


def test_each_setting_is_classified() -> None:
    unknown = [
        each
        for each in settings(Config, ())
        if (untrusted.rule_of(each) is not None)
        == (each in untrusted.HARMLESS or each[0] in untrusted.HARMLESS_TABLES)
        and each != ("pool", "ca_file")
    ]
    assert unknown == []


def test_each_rule_is_of_a_setting() -> None:
    known = set(settings(Config, ()))
    prefixes = {each[:length] for each in known for length in range(1, len(each) + 1)}
    assert prefixes.issuperset(untrusted.RULES)
    assert known.issuperset(untrusted.HARMLESS)


def test_a_file_that_needs_nothing_works_without_a_question(folder: Path) -> None:
    file = write(folder, NEEDS_NOTHING)
    config = load()
    token = config.providers["openai"].auth_token
    assert token is not None
    assert token.get_secret_value() == SECRET
    assert locate() == ConfigFile(file, found=True)
    assert not (folder.parent / "penstock-home").exists()


def test_the_file_of_init_needs_nothing(folder: Path) -> None:
    write(folder, template())
    assert load().models == Config.embedded().models


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (OPENAI + '\nurl = "http://127.0.0.1:9/${OPENAI_API_KEY}"\n', 2, "OPENAI_API_KEY"),
        (OPENAI + '\nheaders = { x = "${AWS_SECRET_ACCESS_KEY}" }\n', 2, "AWS_SECRET"),
        (OPENAI + '\nauth_token = "${AWS_SECRET_ACCESS_KEY}"\n', 2, "AWS_SECRET_ACCESS_KEY"),
        (OPENAI + '\nauth_token = "${ANTHROPIC_API_KEY}"\n', 2, "ANTHROPIC_API_KEY"),
        (OPENAI + '\nauth_token = "x${OPENAI_API_KEY}"\n', 2, "OPENAI_API_KEY"),
        (OPENAI + '\nauth_token = "${OPENAI_API_KEY:-sk-other}"\n', 2, "OPENAI_API_KEY"),
        (OPENAI + '\nurl = "http://[::1]:9"\nauth_token = "${OPENAI_API_KEY}"\n', 3, "OPENAI_API"),
        ('[models.m]\ntargets = ["openai/${OPENAI_API_KEY}"]\n', 2, "OPENAI_API_KEY"),
        ('[server]\nport = "${PORT:-1}"\n', 2, "PORT"),
        ('[telemetry]\nservice_name = "${OPENAI_API_KEY}"\n', 2, "OPENAI_API_KEY"),
        (OPENAI + '\nurl = "https://evil.example/v1"\n', 2, "to an address"),
        (OPENAI + '\nurl = "http://127.0.0.1@evil.example/v1"\n', 2, "to an address"),
        (OPENAI + '\nurl = "http://localhost.evil.example/v1"\n', 2, "to an address"),
        ('[providers.bedrock]\nurl = "http://127.0.0.1:9"\n', 2, "to an address"),
        ('[providers.bedrock]\nprofile = "admin"\n', 2, "AWS profiles"),
        (OPENAI + '\nauth_token = "sk-of-somebody"\n', 2, "to an account"),
        (OPENAI + '\nheaders = { authorization = "x" }\n', 2, "sends headers"),
        ('[providers.embedded]\nmodel_path = "x.gguf"\n', 2, "loads this model file"),
        ('[models.m]\ntargets = ["embedded/./x.gguf"]\n', 2, "loads this model file"),
        ('[models.m.prices."openai/m"]\ninput = 0\noutput = 0\n', 2, "budgets"),
        ("[prices]\ndefault = { input = 0, output = 0 }\n", 2, "budgets"),
        ("[budgets.total]\nlimit_usd = 1e9\n", 2, "budgets"),
        ('[storage]\nurl = "sqlite:////tmp/other.db"\n', 2, "another ledger"),
        ('[storage]\nowner = "me"\n', 2, "budgets"),
        ('[server]\nhost = "0.0.0.0"\n', 2, "other machines"),
        ('[server]\nadmin_key = "0123456789abcdef"\n', 2, "/admin"),
        ('[server]\ntls_certificate = "a.pem"\ntls_key = "b.pem"\n', 2, "read this file"),
        ('[server]\ncors_origins = ["*"]\n', 2, "web pages"),
        ('[server]\nmcp_servers = ["*"]\n', 2, "MCP servers"),
        ('[pool]\nca_file = "ca.pem"\n', 2, "TLS"),
        ('[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\n', 2, "traces"),
        ('[telemetry]\notlp_headers = { x = "y" }\n', 2, "collector"),
        ('[sampling]\napproval = "always"\n', 2, "MCP servers"),
        (f'[keys.k]\nhash = "sha256:{"0" * 64}"\n', 2, "keys of the gateway"),
        ("[routing]\nkeep_prompts = true\n", 2, "on disk"),
        ("[routing]\nkeep_days = 1\n", 2, "learned"),
        ('[routing]\nindex_url = "postgresql://x"\n', 2, "database"),
    ],
)  # fmt: skip
def test_what_needs_trust_is_refused_with_its_line_and_the_command(
    folder: Path, text: str, line: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    file = write(folder, text)
    error = refused()
    assert f"line {line}, " in error.needs[0]
    assert reason in error.needs[0]
    assert str(error).endswith(f"Read the file, then run: penstock trust {file}")
    assert SECRET not in str(error)
    # With trust, it is read, or refused for another reason.
    trust.add(error.path, error.digest)
    with contextlib.suppress(ConfigurationError):
        load()
    assert trust.is_trusted(ConfigFile(file, found=True), trust.read(ConfigFile(file, found=True)))


@pytest.mark.parametrize(
    "use",
    [load, penstock.open, lambda: penstock.ask("Hi"), lambda: penstock.string_generator("Hi")],
)
def test_the_python_api_has_the_same_rule(folder: Path, use: Callable[[], object]) -> None:
    file = write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    with pytest.raises(ConfigurationError, match="penstock trust"):
        use()
    assert penstock.open(file).config.budgets


def test_a_named_file_is_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    assert load(file).budgets
    monkeypatch.setenv("PENSTOCK_CONFIG", FILE_NAME)
    assert load().budgets


def test_a_change_needs_trust_again(folder: Path) -> None:
    write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    error = refused()
    trust.add(error.path, error.digest)
    assert load().budgets["total"].limit_usd == 1.0
    write(folder, "[budgets.total]\nlimit_usd = 2.0\n")
    refused()


def test_a_copy_in_another_folder_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    error = refused()
    trust.add(error.path, error.digest)
    for name, place in (("copy", Path.write_bytes), ("link", None)):
        other = folder / name
        other.mkdir()
        if place is None:
            (other / FILE_NAME).symlink_to(file)
        else:
            place(other / FILE_NAME, file.read_bytes())
        monkeypatch.chdir(other)
        refused()
    # The same folder by another path is the same.
    (folder / "alias").symlink_to(folder)
    monkeypatch.chdir(folder / "alias")
    assert load().budgets


def test_the_file_of_home_is_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder.parent / "penstock-home"
    home.mkdir()
    write(home, "[budgets.total]\nlimit_usd = 1.0\n")
    assert load().budgets
    monkeypatch.chdir(home)
    assert load().budgets
    # A relative PENSTOCK_HOME is a part of the working folder, and so is its list.
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("PENSTOCK_HOME", "penstock-home")
    error = refused()
    assert find() == home / FILE_NAME
    with pytest.raises(ConfigurationError, match="make it absolute"):
        trust.add(error.path, error.digest)


@pytest.mark.parametrize(
    ("value", "trusted"),
    [
        ("1", True),
        ("true", True),
        ("0", False),
        ("", False),
        ("{folder}", True),
        ("/nowhere:{parent}", True),
        ("{folder}/sub", False),
        ("{folder}x", False),
    ],
)
def test_the_variable_trusts_folders(
    folder: Path, value: str, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    monkeypatch.setenv("PENSTOCK_TRUST_FOLDER", value.format(folder=folder, parent=folder.parent))
    if trusted:
        assert load().budgets
    else:
        refused()


def test_a_relative_folder_in_the_variable_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    monkeypatch.setenv("PENSTOCK_TRUST_FOLDER", "work")
    with pytest.raises(ConfigurationError, match="'work' is not an absolute path"):
        load()


@pytest.mark.parametrize(("mode", "of"), [(0o666, "file"), (0o777, "folder")])
def test_what_others_can_write_is_not_used_by_default(
    folder: Path, mode: int, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(folder, template())
    (file if of == "file" else folder).chmod(mode)
    assert "can be written by all users" in refused().needs[0]
    monkeypatch.setenv("PENSTOCK_TRUST_FOLDER", "1")
    error = refused()
    # A folder that is named, and contents that the user has read, are another matter.
    monkeypatch.setenv("PENSTOCK_TRUST_FOLDER", str(folder))
    assert load().models == Config.embedded().models
    monkeypatch.delenv("PENSTOCK_TRUST_FOLDER")
    trust.add(error.path, error.digest)
    assert load().models == Config.embedded().models


def test_a_sticky_folder_is_as_good_as_its_file(folder: Path) -> None:
    write(folder, template())
    folder.chmod(0o1777)
    assert load().models == Config.embedded().models


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_another_user_is_not_used_by_default(folder: Path) -> None:
    file = write(folder, template())
    os.chown(file, 12345, 0)
    assert "belongs to another user (uid 12345)" in refused().needs[0]
    os.chown(file, 0, 12345)
    assert load().models == Config.embedded().models
    file.chmod(0o664)
    assert "another group (gid 12345)" in refused().needs[0]


def test_the_list_is_private_and_refused_when_it_is_not(folder: Path) -> None:
    write(folder, "[budgets.total]\nlimit_usd = 1.0\n")
    error = refused()
    trust.add(error.path, error.digest)
    store = trust.store_file()
    assert store is not None
    assert store.stat().st_mode & 0o777 == 0o600
    assert [each.path for each in trust.entries()] == [str(error.path)]
    store.chmod(0o666)
    with pytest.raises(ConfigurationError, match=re.escape(f"chmod 600 {store}")):
        load()
    store.chmod(0o600)
    store.write_text("{")
    with pytest.raises(ConfigurationError, match="is damaged"):
        load()
    store.write_text("[]")
    refused()


def test_a_long_file_is_refused_and_a_long_list_of_needs_is_cut(folder: Path) -> None:
    rows = "".join(
        f'[providers.p{number}]\nkind = "openai"\nurl = "https://e"\n' for number in range(500)
    )
    write(folder, rows)
    error = refused()
    assert error.needs[-1] == "and 492 more"
    assert len(str(error)) < 2000
    write(folder, "#" * (trust.MAX_BYTES + 1))
    with pytest.raises(ConfigurationError, match="larger than 8 MiB"):
        load()


def test_text_of_the_file_cannot_disguise_the_message(folder: Path) -> None:
    write(folder, f'[providers."a\\u001b[2J{"x" * 500}"]\nurl = "https://e"\n')
    error = refused()
    assert "\x1b" not in str(error)
    assert len(error.needs[0]) < 200


def test_deep_tables_are_an_error(folder: Path) -> None:
    write(folder, ".".join("a" * 5000) + " = 1\n")
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        load()
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        parse("a = " + "[" * 5000)
