"""A client's program in a process of its own, for as long as the test run lasts.

A client is imported once, and a stream that it leaves is closed by the client, not by its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import node
from tests.support.environment import required_python
from tests.support.tls import make_authority

HERE = Path(__file__).parent
LOCKS = HERE.parents[1] / "requirements"
PYTHONS = ("client-litellm.txt", "client-frameworks.txt")
FIRST_RUN_SECONDS = 580
"""For a test that may have to install the packages; below the backstop of a whole test process."""
ANSWER_SECONDS = 150
LAST_WORDS_SECONDS = 1
STOP_SECONDS = 5
# The process may talk to this machine only, like every test.
_GUARDED = """
import runpy, sys
from tests.support.network import install_network_guard
install_network_guard()
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""


class ProgramFailedError(RuntimeError):
    """The program ended without an answer; the message ends with what it said."""


@dataclass(eq=False)
class Program:
    """Answers one question at a time."""

    command: list[str]
    folder: Path
    _process: subprocess.Popen[str] | None = None

    async def ask(self, what: str, **question: object) -> dict[str, Any]:
        """Run one scenario of the client, and return what came of it."""
        asked = json.dumps({"do": what, **question})
        waiting = asyncio.create_task(asyncio.to_thread(self._ask, asked))
        await asyncio.wait([waiting], timeout=ANSWER_SECONDS)
        if not waiting.done() and (process := self._process) is not None:
            process.send_signal(signal.SIGUSR1)  # where it stands is the best of its last words
            await asyncio.wait([waiting], timeout=LAST_WORDS_SECONDS)
            process.kill()  # which is the end of the wait, too
        return await waiting

    def _ask(self, question: str) -> dict[str, Any]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with contextlib.suppress(BrokenPipeError):  # it has ended since its last answer
            process.stdin.write(question + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if not answer:
            self.stop()
            said = (self.folder / "stderr.txt").read_text(encoding="utf-8", errors="replace")
            raise ProgramFailedError(f"{self.command[-1]} did not answer {question}:\n{said}")
        return json.loads(answer)

    def _start(self) -> subprocess.Popen[str]:
        with (self.folder / "stderr.txt").open("w") as errors:
            return subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=environment(self.folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    def stop(self) -> None:
        """End it; the next question starts it anew."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.terminate()  # a client's own threads may have no end
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass(eq=False)
class Programs:
    """The programs of this test process, each started when a test first asks it."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="penstock-clients-")))
    _running: dict[str, Program] = field(default_factory=dict[str, Program])

    def __getitem__(self, name: str) -> Program:
        """The program that has this file name."""
        if name not in self._running:
            folder = self.folder / name.replace(".", "-")
            folder.mkdir()
            self._running[name] = Program(COMMANDS[name](folder), folder)
        return self._running[name]

    def close(self) -> None:
        """End them all, and leave nothing behind."""
        for program in self._running.values():
            program.stop()
        shutil.rmtree(self.folder)


def install_packages() -> None:
    """Everything that the programs need, on a first run."""
    node.required_packages(HERE / "npm")
    for lock in PYTHONS:
        required_python(LOCKS / lock)


def python_command(python: Path | str, program: Path) -> list[str]:
    """Run this file with this interpreter, on loopback only."""
    return [str(python), "-c", _GUARDED, str(program.parent), str(program)]


def python_of(lock: str) -> Path:
    """The interpreter that has the packages of this lock file."""
    assert lock in PYTHONS
    return required_python(LOCKS / lock)


def node_command(folder: Path, *programs: Path) -> list[str]:
    """Run the first of these files with Node, where its imports find the packages."""
    packages = node.required_packages(HERE / "npm")
    # An import is looked for in the folders above the file that has it, and nowhere else.
    (folder / "node_modules").symlink_to(packages)
    for program in programs:
        shutil.copy(program, folder)
    return [str(node.NODE), str(folder / programs[0].name)]


def _ours(name: str) -> Callable[[Path], list[str]]:
    return lambda _: python_command(sys.executable, HERE / "programs" / name)


def _apart(name: str, lock: str) -> Callable[[Path], list[str]]:
    return lambda _: python_command(python_of(lock), HERE / "programs" / name)


def _node(name: str) -> Callable[[Path], list[str]]:
    own, shared = HERE / "npm" / name, HERE / "npm" / "harness.mjs"
    return lambda folder: node_command(folder, own, shared)


COMMANDS: Mapping[str, Callable[[Path], list[str]]] = {
    "run_openai.py": _ours("run_openai.py"),
    "run_litellm.py": _apart("run_litellm.py", "client-litellm.txt"),
    "run_langchain.py": _apart("run_langchain.py", "client-frameworks.txt"),
    "run_pydantic_ai.py": _apart("run_pydantic_ai.py", "client-frameworks.txt"),
    "run_openai.mjs": _node("run_openai.mjs"),
    "run_anthropic.mjs": _node("run_anthropic.mjs"),
    "run_vercel.mjs": _node("run_vercel.mjs"),
}


def environment(folder: Path) -> dict[str, str]:
    """Nobody's settings, and nothing that makes a client call home or be measured."""
    root = HERE.parents[1]
    # One authority instead of all of them: a client that reads them reads them for every test.
    authority = make_authority(folder).file
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(root),
        "SSL_CERT_FILE": str(authority),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
    }
