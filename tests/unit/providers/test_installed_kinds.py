"""Providers of installed packages: the example package runs, and a bad package is named."""

import asyncio
import importlib
import json
import os
import sys
import urllib.request
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import penstock
from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError, ContentRejected, ProviderUnavailable
from penstock.contract.exchange import Reply
from penstock.providers.http.transport import HttpTransport
from penstock.providers.kinds import installed_kinds
from penstock.providers.registry import BUILT_IN, KINDS, ProviderSettings, build
from tests.unit.cli.harness import environment, run_penstock, started_penstock
from tests.unit.providers.installed import demo_server, install_example, write_package

ROW = """\
from penstock.plugins import ProviderKind
KIND = ProviderKind("{name}", "A test", dialect="openai_chat", url="http://127.0.0.1:9/v1")
"""
Install: TypeAlias = Callable[..., Path]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def demo(installed: Path) -> Generator[str]:
    with demo_server(installed) as url:
        yield url


@pytest.fixture
def project(tmp_path: Path, demo: str) -> Path:
    """A folder with a configuration that is named, and is trusted therefore."""
    (tmp_path / "acme.toml").write_text(
        f'[providers.acme]\nurl = "{demo}"\nauth_token = "k"\n'
        '[models.default]\ntargets = ["acme/parrot"]\n'
    )
    return tmp_path


def with_packages(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(folder), environment()["PYTHONPATH"]])}


def test_the_command_line_uses_the_example_package(project: Path, installed: Path) -> None:
    run = partial(run_penstock, cwd=project, env=with_packages(installed))
    asked = run("ask", "--config", "acme.toml", "two words")
    assert (asked.code, asked.out, asked.err) == (0, "two words\n", "")
    document = json.loads(run("ask", "-c", "acme.toml", "--json", "two words").out)
    assert document["usage"] == {"input_tokens": 2, "output_tokens": 2}
    assert (document["provider"], document["stop_reason"]) == ("acme", "endTurn")
    listed = json.loads(run("providers", "--all", "--json").out)["providers"]
    assert [row["kind"] for row in listed if row["name"] == "acme"] == ["acme"]
    wrong = run("ask", "-c", "acme.toml", "-m", "acme/cat", "x")
    assert wrong.code == 2
    assert "there is no engine cat" in wrong.error_line
    checked = json.loads(run("doctor", "-c", "acme.toml", "--json").out)
    says = {each["check"]: each["says"] for each in checked["findings"]}
    assert says["package of acme"] == "penstock-acme 1.0.0 (Acme Talk)"
    assert says["provider acme"].startswith("up at http://127.0.0.1:")


def test_the_gateway_uses_the_example_package(project: Path, installed: Path) -> None:
    command = ("serve", "-c", "acme.toml", "--port", "0")
    with started_penstock(*command, cwd=project, env=with_packages(installed)) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        url = next(word for line in lines for word in line.decode().split() if "http://" in word)
        body = {"model": "default", "messages": [{"role": "user", "content": "one two three"}]}

        def post(**fields: Any) -> str:
            data = json.dumps({**body, **fields}).encode()
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"{url}/v1/chat/completions", data, headers)
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.read().decode()

        whole = json.loads(post(max_tokens=2))
        assert whole["choices"][0]["message"]["content"] == "one two"
        assert whole["choices"][0]["finish_reason"] == "length"
        streamed = post(stream=True)
        events = [json.loads(line[6:]) for line in streamed.splitlines() if line[6:7] == "{"]
        pieces = [each["choices"][0]["delta"].get("content") for each in events if each["choices"]]
        assert [piece for piece in pieces if piece] == ["one", " two", " three"]
        assert streamed.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("done", ("endTurn", None)),
        ("limit", ("maxTokens", None)),
        ("model_length", ("maxTokens", None)),
        ("of_tomorrow", ("of_tomorrow", "of_tomorrow")),
        ("error", ProviderUnavailable),
        ("abort", ProviderUnavailable),
        ("content_filter", ContentRejected),
    ],
)
def test_the_example_reads_reasons_by_the_table_of_penstock(
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
    expected: tuple[str, str | None] | type[Exception],
) -> None:
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    decode: Any = importlib.import_module("penstock_acme.decode")
    last = json.dumps({"say": "Half", "why": why}).encode()

    def streamed() -> Reply:
        stream = decode.AcmeStream()
        *_, finished = [*stream.feed([last]), *stream.finish()]
        return finished.reply

    for answer in (lambda: decode.decode(last), streamed):
        if isinstance(expected, type):
            with pytest.raises(expected):
                answer()
        else:
            reply = answer()
            assert reply.text == "Half"
            assert (reply.stop_reason, reply.stop_detail) == expected


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Install]:
    """Puts a package of one module on the import path of this process."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    before = set(sys.modules)

    def write(name: str, code: str, *kinds: str) -> Path:
        write_package(folder, name, code, *kinds)
        installed_kinds.cache_clear()
        return folder

    yield write
    installed_kinds.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("testpack"):
            del sys.modules[name]


def provider(kind: str) -> object:
    return build(ProviderSettings(kind, kind), HttpTransport())


def test_a_row_may_use_a_dialect_of_penstock(install: Install) -> None:
    install("testpack-row", ROW.format(name="row1"), "row1 = testpack_row:KIND")
    assert "'openai-chat'" in repr(provider("row1"))
    assert "row1" in KINDS


def test_a_kind_may_be_a_provider_in_this_process(install: Install) -> None:
    code = (
        "from penstock.plugins import ProviderKind\n"
        "from penstock.testing import FakeProvider\n"
        'KIND = ProviderKind("near", "A test", local=FakeProvider, model="echo")\n'
    )
    install("testpack-near", code, "near = testpack_near:KIND")
    generator = penstock.sync.string_generator("said", provider="near")
    assert generator.generate()[0] == "said"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module"),
        ("raise SystemExit('stop')", "SystemExit: stop"),
        ("KIND = 3", "testpack_bad:KIND is a int, not a ProviderKind"),
        ("OTHER = 3", "AttributeError"),
        (ROW.format(name="other"), "its ProviderKind has the name 'other'"),
        (ROW.format(name="bad").replace("openai_chat", "nonsense"), "no dialect 'nonsense'"),
        (ROW.format(name="bad").replace("dialect=", "local=print, dialect="), "either a dialect"),
    ],
)
def test_a_package_that_cannot_be_used_is_named_when_its_kind_is_used(
    install: Install, tmp_path: Path, code: str, reason: str
) -> None:
    install("testpack-bad", code, "bad = testpack_bad:KIND")
    with pytest.raises(ConfigurationError, match=r"testpack-bad 2\.0 cannot be used") as caught:
        provider("bad")
    assert reason in str(caught.value)
    file = tmp_path / "a.toml"
    file.write_text('[providers.one]\nkind = "fake"\n[models.m]\ntargets = ["one/echo"]\n')
    assert load(file).models
    for text, line in (
        ('[providers.two]\nkind = "bad"\n', 2),
        ("[providers.bad]\n", 1),
        ('[models.m]\ntargets = ["bad/x"]\n', 2),
    ):
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=f"line {line}.*testpack-bad 2.0"):
            load(file)


CARELESS = """\
import json
from penstock import Text, Usage
from penstock.plugins import *

def reply(body):
    answer = json.loads(body)
    return Reply((Text(answer["say"]),), "m", answer["why"], Usage(1, 1))

class Lines(StreamReader):
    end_mark, content = "why", "answer"
    def _read(self, frames, events):
        for frame in frames:
            self._ended = True
            events.append(Finished(reply(frame)))
    def _partial(self):
        return ""

KIND = ProviderKind("careless", "A test", url="http://127.0.0.1:9", dialect=Dialect(
    name="careless", framing="ndjson",
    encode=lambda model, request, profile, stream: WireCall("/" + model, write_json({})),
    decode=lambda body, headers: reply(body), stream_decoder=lambda headers: Lines(),
    error=error_of_response,
    models=ModelListDialect(lambda url, options: WireCall("/", method="GET"), lambda body: []),
    authorize=bearer, catalogue=Catalogue(Capabilities()),
))
"""


async def answer_with_the_name_of_the_model(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    why = head.split()[1].decode().strip("/")
    body = json.dumps({"say": "Half", "why": why}).encode() + b"\n"
    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n")
    writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_package_that_passes_reasons_on_is_read_by_the_table(
    install: Install, stream: bool
) -> None:
    code = CARELESS.replace("import Text,", "import Capabilities, Text,")
    install("testpack-careless", code, "careless = testpack_careless:KIND")
    async with await asyncio.start_server(answer_with_the_name_of_the_model, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        own = {"kind": "careless", "url": f"http://127.0.0.1:{port}", "auth_token": "k"}
        config = Config.model_validate({"providers": {"own": own}, "pool": {"retries": 0}})
        async with penstock.open(config) as engine:

            async def ask(why: str) -> penstock.Result:
                model = f"own/{why}"
                if not stream:
                    return await engine.create_message("Hi", max_tokens=9, model=model)
                started = await engine.create_message_stream("Hi", max_tokens=9, model=model)
                return await started.result()

            for why in ("error", "abort", "insufficient-system-resource"):
                with pytest.raises(ProviderUnavailable):
                    await ask(why)
            with pytest.raises(ContentRejected):
                await ask("content_filter")
            unknown = await ask("of_tomorrow")
            assert unknown.stop_reason == unknown.metadata.stop_detail == "of_tomorrow"
            assert (await ask("length")).stop_reason == "maxTokens"


def test_a_package_is_not_imported_before_its_kind_is_used(install: Install) -> None:
    install("testpack-lazy", "raise RuntimeError", "lazy = testpack_lazy:KIND")
    assert "lazy" in KINDS
    assert KINDS["fake"].name == "fake"
    assert "testpack_lazy" not in sys.modules


def test_a_package_cannot_take_the_name_of_a_kind_of_penstock(install: Install) -> None:
    install("testpack-thief", ROW.format(name="openai"), "openai = testpack_thief:KIND")
    assert KINDS["openai"] is BUILT_IN["openai"]
    assert list(KINDS).count("openai") == 1
    assert "testpack_thief" not in sys.modules


def test_two_packages_with_the_same_kind_are_both_named(install: Install) -> None:
    install("testpack-one", ROW.format(name="both"), "both = testpack_one:KIND")
    install("testpack-two", ROW.format(name="both"), "both = testpack_two:KIND")
    with pytest.raises(ConfigurationError, match=r"testpack-one 2.0.*testpack-two 2.0|two.*one"):
        provider("both")


def test_packages_in_the_working_folder_are_not_found(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install("testpack-here", ROW.format(name="here"), "here = testpack_here:KIND")
    assert "here" in KINDS
    monkeypatch.chdir(folder)
    installed_kinds.cache_clear()
    assert "here" not in KINDS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[providers.row2]\n", 1),
        ('[providers.x]\nkind = "row2"\n', 2),
        ('[models.m]\ntargets = ["fake/a", "row2/x"]\n[providers.fake]\n', 2),
        ('[routing]\nembedder = "row2/x"\n', 2),
    ],
)
def test_a_file_that_is_not_trusted_cannot_choose_a_kind_of_a_package(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    install("testpack-row2", ROW.format(name="row2"), "row2 = testpack_row2:KIND")
    work = tmp_path / "work"
    work.mkdir()
    (work / "penstock.toml").write_text(text)
    monkeypatch.chdir(work)
    monkeypatch.delenv("PENSTOCK_TRUST_FOLDER", raising=False)
    with pytest.raises(ConfigurationError, match=f"line {line}.*it uses a provider of an inst"):
        load(None)
    assert "testpack_row2" not in sys.modules
