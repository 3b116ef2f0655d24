"""Reading the configuration: found in order, filled from the environment, wrong with its line."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.load import find, load, parse
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError

SECRET = "sk-very-secret"  # a key that must not be shown anywhere


def complaint(text: str, name: str = "penstock.toml") -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, name)
    return str(caught.value)


def test_a_whole_file_is_read() -> None:
    config = parse(
        """
        [server]
        port = 9000
        [providers.local]
        kind = "openai-chat"
        url = "http://127.0.0.1:8000/v1"
        auth_token = "sk-1"
        [models.assistant]
        targets = ["local/qwen3", "openrouter/meta/llama"]
        [pool]
        connect_timeout_s = 1
        [limits]
        max_temperature = 1.5
        """
    )
    assert config.server.port == 9000
    token = config.providers["local"].auth_token
    assert token is not None
    assert token.get_secret_value() == "sk-1"
    assert config.models["assistant"].targets == ("local/qwen3", "openrouter/meta/llama")
    assert config.pool.connect_timeout_s == 1.0
    assert config.limits.max_temperature == 1.5
    assert config.default_model == "assistant"


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "[server]\n", "[providers]\n[models]\n"])
def test_a_file_that_names_no_model_means_the_embedded_one(text: str) -> None:
    assert parse(text) == Config.embedded()


def test_settings_of_the_embedded_provider_keep_its_model() -> None:
    config = parse("[providers.embedded]\nthreads = 2\n")
    assert config.models == Config.embedded().models
    assert config.providers["embedded"].threads == 2


def test_other_settings_survive_beside_the_embedded_default() -> None:
    config = parse("[server]\nport = 1234\n")
    assert config.server.port == 1234
    assert config.models == Config.embedded().models


def test_with_another_provider_no_model_is_invented() -> None:
    config = parse("[providers.openai-chat]\n")
    assert config.models == {}
    assert list(config.providers) == ["openai-chat"]


def test_prices_of_ones_own_are_read() -> None:
    config = parse(
        """
        [providers.local]
        kind = "openai-chat"
        url = "https://llm.example.com/v1"
        [models.assistant]
        targets = ["local/qwen3", "openai/gpt-6-luna"]
        [models.assistant.prices."local/qwen3"]
        input = 0.1
        output = 1
        cached_input = 0.0
        [models.other]
        targets = ["local/qwen3"]
        prices."local/qwen3" = { input = 0.1, output = 1, cached_input = 0 }
        [prices]
        default = { input = 3, output = 15.0 }
        """
    )
    price = config.models["assistant"].prices["local/qwen3"]
    assert (price.input, price.output, price.cached_input, price.cache_write) == (0.1, 1, 0, None)
    assert config.models["other"].prices["local/qwen3"] == price
    assert config.prices.default is not None
    assert config.prices.default.output == 15
    assert parse("").prices.default is None


PRICED = '[models.m]\ntargets = ["groq/a", "groq/b"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PRICED + '[models.m.prices."groq/a"]\ninput = -1\noutput = 1\n',
            "line 4, models.m.prices.groq/a.input: must be at least 0 (it is -1)",
        ),
        (
            PRICED + '[models.m.prices."groq/a"]\ninput = inf\noutput = 1\n',
            "line 4, models.m.prices.groq/a.input: must be a finite number (it is inf)",
        ),
        (
            PRICED + '[models.m.prices."groq/a"]\ninput = 1\n',
            "line 3, models.m.prices.groq/a.output: is missing",
        ),
        (
            PRICED + '[models.m.prices."groq/a"]\ninput = 1\noutput = 1\ncached = 1\n',
            "line 6, models.m.prices.groq/a.cached: there is no such setting",
        ),
        (
            PRICED + '[models.m.prices."groq/aa"]\ninput = 1\noutput = 1\n',
            "line 3, models.m.prices.groq/aa: 'groq/aa' is none of this model's targets; "
            "write 'groq/a'",
        ),
        (
            PRICED
            + 'prices."groq/a" = { input = 1, output = 2 }\n'
            + '[models.n]\ntargets = ["groq/a"]\n'
            + 'prices."groq/a" = { input = 2, output = 2 }\n',
            "line 6, models.n.prices.groq/a: 'groq/a' has another price in models.m; "
            "give it one price, in one place",
        ),
        ("[prices]\ndefault = 3\n", "line 2, prices.default: must be a table"),
        ("[prices]\nother = 3\n", "line 2, prices.other: there is no such setting"),
    ],
)
def test_prices_that_could_not_be_meant_are_refused(text: str, message: str) -> None:
    assert message in complaint(text)


@pytest.mark.parametrize(
    ("narrowed", "message"),
    [
        ('provider = "grok"', "line 5, budgets.b.provider: there is no provider 'grok'"),
        (
            'model = "m"',
            "line 5, budgets.b.model: 'm' is a model of this file, and budgets count what it "
            "stands for: write one of its targets, such as 'groq/a'",
        ),
    ],
)
def test_budgets_that_would_never_apply_are_refused(narrowed: str, message: str) -> None:
    budget = "[budgets.b]\nlimit_usd = 1\n"
    assert message in complaint(f"{PRICED}{budget}{narrowed}\n")
    for good in ('provider = "groq"', 'model = "a"', 'model = "groq/b"', 'model = "asked-for"'):
        assert parse(f"{PRICED}{budget}{good}\n").budgets


def test_a_database_that_is_not_known_is_no_web_address() -> None:
    said = complaint('[storage]\nurl = "postgresql://here/db"\n')
    assert "line 2, storage.url: a database is written sqlite:/// and a path" in said


# What is wrong, and where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nport = \n", "penstock.toml is not TOML: Invalid value (at line 2, column 8)"),
        (
            "[server\n",
            "penstock.toml is not TOML: Expected ']' at the end of a table declaration (at line 1",
        ),
        (
            "a = 1\na = 2\n",
            "penstock.toml is not TOML: Cannot overwrite a value (at line 2, column 6)",
        ),
        ('a = "\n', "penstock.toml is not TOML: Illegal character '\\n' (at line 1, column 6)"),
        ("a = " + "9" * 5000, "penstock.toml is not TOML: Exceeds the limit"),
        ("a = " + "[" * 5000, "penstock.toml: it is nested too deeply"),
        (".".join("a" * 3000) + " = 1", "penstock.toml: it is nested too deeply"),
    ],
)
def test_text_that_is_no_toml_is_refused_with_its_line(text: str, message: str) -> None:
    assert complaint(text).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[server]\n\nport = "http"\n',
            "line 3, server.port: must be a whole number (it is 'http')",
        ),
        (
            "[server]\nport = 70000\n",
            "line 2, server.port: must be at most 65535 (it is 70000)",
        ),
        (
            '[models.a]\ntargets = ["groq/a"]\nrouting = "learnd"\n',
            "line 3, models.a.routing: must be 'ordered', 'learned', 'cheapest' or "
            "'fastest' (it is 'learnd')",
        ),
        (
            f'[server]\nport = "{"9x" * 90}"\n',
            f"line 2, server.port: must be a whole number (it is '{'9x' * 29}9...)",
        ),
        (f"[server]\nport = 0x{'f' * 4_000}\n", "line 2, server.port: must be"),
        (
            '[models.a]\ntargets = ["groq/a"]\nrouting = true\n',
            "line 3, models.a.routing: must be 'ordered', 'learned', 'cheapest' or "
            "'fastest' (it is true)",
        ),
        ("server.port = -1\n", "line 1, server.port: must be at least 0 (it is -1)"),
        ("server = { port = -1 }\n", "line 1, server.port: must be at least 0 (it is -1)"),
        ("server = 3\n", "line 1, server: must be a table"),
        (
            "[pool]\nrequest_timeout_s = 0\n",
            "line 2, pool.request_timeout_s: must be more than 0 (it is 0)",
        ),
        (
            "[pool]\nrequest_timeout_s = inf\n",
            "line 2, pool.request_timeout_s: must be a finite number (it is inf)",
        ),
        (
            "[models.a]\ntargets = [\n  'x/y',\n  'nonsense',\n]\n",
            "line 2, models.a.targets[1]: a target is written provider/model",
        ),
        ("[models.a]\ntargets = []\n", "line 2, models.a.targets: must have at least 1 item"),
        ("[models.a]\n", "line 1, models.a.targets: is missing"),
        (
            "[providers.x]\nurl = 'ftp://x'\n",
            "line 2, providers.x.url: an address begins with http:// or https://",
        ),
        (
            "[providers.'a b']\n",
            "line 1, providers.a b: a name may hold no slash and no space",
        ),
        (
            "[providers.x]\nheaders = { a = 1 }\n",
            "line 2, providers.x.headers.a: must be a text in quotes",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line_and_path(text: str, message: str) -> None:
    assert complaint(text, "my.toml").startswith(f"my.toml, {message}")


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("[sever]\n", "line 1, sever", "server"),
        ("[server]\nprot = 1\n", "line 2, server.prot", "port"),
        ("server.prot = 1\n", "line 1, server.prot", "port"),
        ("[server]\n'prot' = 1\n", "line 2, server.prot", "port"),
        ('[providers.x]\n\n"my key" = 1\n', "line 3, providers.x.my key", None),
        ("[providers.'my.local']\nkidn = 1\n", "line 2, providers.my.local.kidn", "kind"),
        ("providers = { x = { kidn = 1 } }\n", "line 1, providers.x.kidn", "kind"),
        ("[providers]\nx.kidn = 1\n", "line 2, providers.x.kidn", "kind"),
        ("[telemetry.zzz]\ny = 1\n", "line 1, telemetry.zzz", None),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_its_line(
    text: str, place: str, remedy: str | None
) -> None:
    said = complaint(text)
    assert said.startswith(f"penstock.toml, {place}: there is no such setting; ")
    if remedy:
        assert said.endswith(f"; did you mean {remedy}?")
    else:
        assert said.endswith("; `penstock init` explains them all")


def test_of_a_name_like_no_other_the_others_are_told() -> None:
    said = complaint("[models.m]\ntargets = ['embedded/smollm2']\nstrategy = 'learned'\n")
    assert (
        "models.m.strategy: there is no such setting; there are adapt, max_tokens, prices" in said
    )


def test_a_list_in_the_place_of_a_table_is_refused_with_its_line() -> None:
    assert complaint("[[server]]\n").startswith("penstock.toml, line 1, server: ")


def test_every_problem_is_reported_at_once() -> None:
    said = complaint("[server]\nport = -1\nprot = 1\n[limits]\nmax_temperature = 'hot'\n")
    assert [line.partition(":")[0] for line in said.splitlines()] == [
        "penstock.toml has 3 problems",
        "line 2, server.port",
        "line 3, server.prot",
        "line 5, limits.max_temperature",
    ]


def test_problems_of_all_kinds_are_reported_at_once() -> None:
    said = complaint(
        """
        [server]
        port = "x"
        [providers.local]
        kind = "openai-chatt"
        [providers.other]
        kind = "vllm"
        url = "${NOT_SET_ANYWHERE}"
        retries = 3
        [models.a]
        targets = ["nope/x"]
        [models.b]
        targets = ["other/x"]
        routing = "random"
        [models.b.prices."other/y"]
        input = 1
        output = 1
        [budgets.team]
        limit_usd = 3
        provider = "nope"
        [keys.ci]
        hash = "sha256:1"
        [keys.cd]
        hash = "sha256:%s"
        models = ["b", "c"]
        """
        % ("0" * 64)
    )
    head, *rest = said.splitlines()
    assert head == "penstock.toml has 9 problems"
    assert [line.split(":")[0] for line in rest] == [
        "line 3, server.port",
        "line 5, providers.local.kind",
        "line 8, providers.other.url",
        "line 9, providers.other.retries",
        "line 11, models.a.targets[0]",
        "line 14, models.b.routing",
        "line 20, budgets.team.provider",
        "line 22, keys.ci.hash",
        "line 25, keys.cd.models[1]",
    ]


@pytest.mark.parametrize(
    "text",
    [
        # The names of wrong tables are known all the same.
        "[providers.a]\nurl = 3\n[models.m]\ntargets = ['a/x']\n",
        "[models.m]\ntargets = 3\n[keys.k]\nhash = 'sha256:%s'\nmodels = ['m']\n" % ("0" * 64),
        "[models.m]\ntargets = ['x']\n[routing]\nembedder = 'm'\n",
        "providers = 3\n[models.m]\ntargets = ['a/x']\n",
        "[models.m]\ntargets = ['a/${NOT_SET_ANYWHERE}']\n[providers.a]\nkind = 'vllm'\n",
    ],
)
def test_a_wrong_value_makes_no_further_problems(text: str) -> None:
    assert "\n" not in complaint(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\n[server]\n", "Cannot declare [server] twice (at line 2, column 8); put all"),
        ("a.b = 1\n[a.b]\n", "; it is set already; keep one of the two"),
        ("a = hello\n", "; write texts in quotes, decimals as 0.5, and true or false in"),
        ("a = True\n", "; write texts in quotes, decimals as 0.5, and true or false in"),
        ('a = "x\n', "; a text in quotes ends in its line: add the closing quote"),
        ("a: 1\n", "; a setting is written name = value"),
        ("a = 1 b = 2\n", "; write one setting a line, and texts in quotes"),
        ("[a\n", "; a table is written [name]"),
        ("a = {b = 1\n}\n", "; close it with } in the same line"),
        ("a = {b = 1, b = 2}\n", "; keep one of the two"),
    ],
)
def test_wrong_syntax_is_explained(text: str, said: str) -> None:
    assert said in complaint(text)


@pytest.mark.parametrize(
    ("table", "setting"),
    [
        ("server", "tls_certificate"),
        ("server", "tls_key"),
        ("pool", "ca_file"),
        ("providers.embedded", "model_path"),
    ],
)
def test_a_windows_path_whose_escapes_are_valid_is_explained(table: str, setting: str) -> None:
    said = complaint(f'[{table}]\n{setting} = "C:\\temp\\new.pem"\n')
    assert said == (
        f"penstock.toml, line 2, {table}.{setting}: in double quotes \\t is a control character: "
        "write 'C:\\temp\\new.pem' in single quotes"
    )


def test_so_is_the_path_of_a_database() -> None:
    said = complaint('[storage]\nurl = "sqlite:///C:\\new\\b.db"\n')
    assert said.endswith("write 'sqlite:///C:\\new\\b.db' in single quotes")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[routing]\nembedder = ''\n", "routing.embedder: must have at least 1 character"),
        ("[server]\nforwarded_fields = ['']\n", "[0]: must have at least 1 character"),
        (f"[storage]\nowner = '{'x' * 201}'\n", "storage.owner: must have at most 200 characters"),
        ("[server]\ncors_origins = ['https://a/b']\n", "an origin is written https://host or"),
        ("[server]\nmcp_servers = ['x']\n", "write the address of a server, public, or *"),
        ("[telemetry]\notlp_endpoint = 'x'\n", "an address begins with http:// or https://"),
        ("[pool]\nhedge_quantile = 1\n", "must be less than 1 (it is 1)"),
        ("[server]\ntls_key = 'x'\n", "line 1, server: tls_key requires tls_certificate"),
    ],
)
def test_limits_are_said_in_the_words_of_the_file(text: str, said: str) -> None:
    assert said in complaint(text)


def test_a_windows_path_in_double_quotes_is_explained() -> None:
    said = complaint('[storage]\nurl = "sqlite:///C:\\Users\\x\\ledger.db"\n')
    assert "line 2" in said
    assert said.endswith(
        "in double quotes a backslash begins an escape: "
        "write 'sqlite:///C:\\Users\\x\\ledger.db' in single quotes"
    )


def test_a_text_in_the_place_of_a_list_is_said_in_the_words_of_the_file() -> None:
    said = complaint('[models.m]\ntargets = "openai/gpt-6-luna"\n')
    assert said == "penstock.toml, line 2, models.m.targets: must be a list"


# The environment


def test_variables_are_filled_in_wherever_a_text_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "qwen")
    monkeypatch.setenv("EMPTY", "")
    config = parse(
        """
        server.port = "${PORT:-8401}"
        [providers.local]
        kind = "openai-chat"
        url = "http://${HOST_:-127.0.0.1}:8000/${EMPTY}v1"
        headers = { x = "${A:-}b", y = "$NAME ${NAME} {NAME}" }
        [models.a]
        targets = ["local/${NAME}-${SIZE:-4b}"]
        """
    )
    assert config.server.port == 8401
    assert config.providers["local"].url == "http://127.0.0.1:8000/v1"
    assert config.providers["local"].headers == {"x": "b", "y": "$NAME qwen {NAME}"}
    assert config.models["a"].targets == ("local/qwen-4b",)


def test_a_value_from_the_environment_is_not_filled_in_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTER", "${INNER}")
    assert parse("server.host = '${OUTER}'").server.host == "${INNER}"


def test_all_missing_variables_are_named_with_line_and_remedy() -> None:
    said = complaint(
        "[providers.a]\nauth_token = '${NO_SUCH_A}'\n[models.m]\ntargets = ['a/${NO_SUCH_B}']\n"
    )
    assert said == (
        "penstock.toml has 2 problems\n"
        "line 2, providers.a.auth_token: the environment variable NO_SUCH_A is not "
        "set; set it, or give a default as ${NO_SUCH_A:-...}\n"
        "line 4, models.m.targets[0]: the environment variable NO_SUCH_B is not "
        "set; set it, or give a default as ${NO_SUCH_B:-...}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "[server]\nport = '${KEY}'\n",
        "[server]\nhost = ['${KEY}']\n",
        "[pool]\nrequest_timeout_s = '${KEY}'\n",
        "[providers.x]\nkind = { a = '${KEY}' }\nauth_token = ['${KEY}']\n",
        "[providers.x]\nauth_token = { a = '${KEY}' }\n",
        "[providers.x]\nurl = '${KEY}'\nheaders = '${KEY}'\n",
        "[providers.x]\nthreads = '${KEY}'\n",
        "[models.x]\ntargets = ['${KEY}']\nrouting = '${KEY}'\n",
        "[providers.x]\nauth_token = 'sk-very-secret'\nnonsense = 'sk-very-secret'\n",
        "[providers.x]\nauth_token = 'sk-very-secret\n",
    ],
)
def test_no_error_shows_a_secret(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in f"{error} {error!r}"
        error = error.__cause__


def test_no_configuration_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    config = parse(
        "[providers.vllm]\nauth_token = '${KEY}'\nheaders = { authorization = '${KEY}' }"
    )
    assert SECRET not in f"{config} {config!r} {config.providers['vllm']!r}"


# Which file


def write(folder: Path, port: int, name: str = "penstock.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"[server]\nport = {port}\n")
    return file


def test_the_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    assert find() is None
    assert load() == Config.embedded()
    write(home, 1)
    assert load().server.port == 1
    write(here, 2)
    assert load().server.port == 2
    named = write(tmp_path / "named", 3, "other.toml")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(named))
    assert find() == named
    assert load().server.port == 3
    assert load(write(tmp_path / "given", 4)).server.port == 4
    assert load(str(here / "penstock.toml")).server.port == 2


def test_a_tilde_means_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, 5)
    assert load("~/penstock.toml").server.port == 5
    monkeypatch.setenv("PENSTOCK_CONFIG", "~/penstock.toml")
    assert load().server.port == 5


def test_a_folder_of_that_name_is_not_taken_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "penstock.toml").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find() is None


def test_a_file_that_is_not_there_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "nowhere.toml"
    with pytest.raises(ConfigurationError) as caught:
        load(missing)
    assert str(caught.value) == (
        f"cannot read the configuration {missing}: No such file or directory; "
        "`penstock init` writes a new one"
    )
    monkeypatch.setenv("PENSTOCK_CONFIG", str(missing))
    with pytest.raises(ConfigurationError, match="No such file"):
        load()


def test_a_folder_a_locked_file_and_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load(tmp_path)
    file = tmp_path / "penstock.toml"
    file.write_bytes(b"[server]\nhost = '\xff'\n")
    with pytest.raises(ConfigurationError, match="it is not UTF-8 text"):
        load(file)
    with pytest.raises(ConfigurationError, match="cannot read the configuration"):
        load("penstock\0.toml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_locked_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, 1)
    file.chmod(0)
    with pytest.raises(ConfigurationError, match="Permission denied"):
        load(file)


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, -1)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}, line 2, server.port: ")


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 7\r\n")
    assert load(file).server.port == 7


# Anything at all


pieces = st.sampled_from(
    ["[server]", "[providers.x]", "[models.default]", "[[pool]]", "[", "]", "port", "targets", "=",
     " ", "\n", "1", '"', "'", '"""', "${", "}", ":-", "${HOME}", "a/b", ".", ",", "{", "true", "#",
     "1979-05-27", "0x", "inf", "nan", "\\u00e9"]
)  # fmt: skip


@given(st.text() | st.lists(pieces, max_size=20).map("".join))
def test_any_text_gives_a_configuration_or_a_configuration_error(text: str) -> None:
    try:
        config = parse(text)
    except ConfigurationError as error:
        refusal = str(error)
    else:
        assert config.models or config.providers
        return
    assert refusal.startswith("penstock.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[providers.opanai-chat]\n", "line 1, providers.opanai-chat: there is no provider"),
        (
            '[providers.odd]\nkind = "opanai-chat"\n',
            "line 2, providers.odd.kind: there is no provider 'opanai-chat'; "
            "did you mean 'openai-chat'?",
        ),
        (
            '[providers.slow]\nkind = "vllm"\n[models.m]\ntargets = ["slow/m", "slwo/m"]\n',
            "line 4, models.m.targets[1]: there is no provider 'slwo'; did you mean 'slow'?",
        ),
        (
            '[models.m]\ntargets = ["fake/echo"]\n',
            "line 2, models.m.targets[0]: provider 'fake' needs a table of its own: "
            "[providers.fake]",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("target", ["nope{}/model", "nothing{}"])
def test_of_very_many_problems_the_first_are_listed(target: str) -> None:
    targets = ",\n".join(f'"{target.format(number)}"' for number in range(2000))
    with pytest.raises(ConfigurationError) as refused:
        parse(f"[providers.openai]\n[models.default]\ntargets = [\n{targets}\n]\n")
    message = str(refused.value)
    first, second, *_ = message.split("\n")
    assert first == "penstock.toml has 2000 problems"
    assert second.startswith("line 3, models.default.targets[0]: ")
    assert message.endswith("\nand 1980 more")
    assert message.count("line 3, ") == 20
