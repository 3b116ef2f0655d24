"""The official conformance suite: its legs, how one is run, and what is recorded of it.

The suite comes from the lock file in `npm`. `scores.json` has what it said, for the documentation;
a test compares it with each run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from tests.support import node
from tests.support.mcp.processes import START_SECONDS, http_server
from tests.support.services import wait_until
from tests.support.unmeasured import unmeasured_environment

HERE = Path(__file__).parent
SCORES = HERE / "scores.json"
LEG_SECONDS = 400
SCENARIO_SECONDS = 240
"""All clients of a leg are started at once, and a machine may be busy."""
_STAMP = re.compile(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$")
_GENERIC = "wire-schema-valid"
"""Said of every scenario in which anything was answered."""

Side: TypeAlias = Literal["server", "client"]
NOT_OFFERED = "not offered"
Score: TypeAlias = Mapping[str, int | str | None]
"""For each scenario the checks that passed, 0 where the suite had nothing to test.

None stands for passed where the number depends on how often a client asks, and NOT_OFFERED for a
scenario of `Leg.lacks`, whose checks do not pass.
"""
_NO_QUESTIONS = (
    "the server asks a legacy client in the middle of a call, which needs a session; `/mcp` keeps "
    "none, and no tool of it asks. The other server legs run it"
)
_GATEWAY_LACKS = {
    "tools-call-sampling": _NO_QUESTIONS,
    "tools-call-elicitation": _NO_QUESTIONS,
    "elicitation-sep1034-defaults": _NO_QUESTIONS,
    "elicitation-sep1330-enums": _NO_QUESTIONS,
}


@dataclass(frozen=True)
class Leg:
    """One run of the suite."""

    name: str
    side: Side
    version: str | None
    """None runs the extensions, too, each scenario at the newest revision that it is for."""
    about: str
    program: str
    """What is tested; a server is started as `PROGRAM PORT FOLDER`."""
    lacks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scenarios that the program cannot pass, each with the reason."""


LEGACY, MODERN = "2025-11-25", "2026-07-28"
_EXTENSIONS = "all scenarios with those of extensions"
LEGS = (
    Leg(
        "gateway-legacy",
        "server",
        LEGACY,
        f"`penstock serve`, revision {LEGACY}",
        "gateway.py",
        _GATEWAY_LACKS,
    ),
    Leg("gateway-modern", "server", MODERN, f"`penstock serve`, revision {MODERN}", "gateway.py"),
    Leg(
        "gateway-extensions",
        "server",
        None,
        f"`penstock serve`, {_EXTENSIONS}",
        "gateway.py",
        _GATEWAY_LACKS,
    ),
    Leg("server-legacy", "server", LEGACY, f"server, revision {LEGACY}", "server.py"),
    Leg("server-modern", "server", MODERN, f"server, revision {MODERN}", "server.py"),
    Leg("server-extensions", "server", None, f"server, {_EXTENSIONS}", "server.py"),
    Leg("client-legacy", "client", LEGACY, f"client, revision {LEGACY}", "client.py"),
    Leg("client-modern", "client", MODERN, f"client, revision {MODERN}", "client.py"),
)


class SuiteFailedError(AssertionError):
    """Checks failed; the message names each."""


def version() -> str:
    """The version of the suite that the lock file pins."""
    package: dict[str, Any] = json.loads((HERE / "npm" / "package.json").read_text())
    return package["dependencies"]["@modelcontextprotocol/conformance"]


def recorded() -> dict[str, Any]:
    """What the last recorded run has said."""
    return json.loads(SCORES.read_text(encoding="utf-8"))


def record(leg: Leg, score: Score) -> None:
    """Write it down, beside what the other legs have said."""
    kept = recorded() if SCORES.exists() else {}
    legs = {**kept.get("legs", {}), leg.name: dict(sorted(score.items()))}
    ordered = {each.name: legs[each.name] for each in LEGS if each.name in legs}
    text = json.dumps({"version": version(), "legs": ordered}, indent=1)
    SCORES.write_text(text + "\n", encoding="utf-8")


def run(leg: Leg, folder: Path) -> Score:
    """Run it; raises SuiteFailedError when a check fails or warns, twice.

    Some checks are about time by the suite's own clock, such as an event within a second, which a
    machine that runs other tests beside may miss once.
    """
    try:
        return _run_once(leg, folder)
    except SuiteFailedError as error:
        sys.stdout.write(f"{leg.about}: once more, for {error}\n")
        again = folder.with_name(f"{folder.name}-again")
        return _run_once(leg, again)


def _run_once(leg: Leg, folder: Path) -> Score:
    script = node.required_packages(HERE / "npm") / "@modelcontextprotocol" / "conformance"
    command = [str(node.NODE), str(script / "dist" / "index.js"), leg.side]
    command += ["--suite", "all", "--timeout", str(SCENARIO_SECONDS * 1000), "-o", str(folder)]
    if leg.version is not None:
        command += ["--spec-version", leg.version]
    state = folder.with_name(f"{folder.name}-state")
    state.mkdir()
    other = _server(leg, state) if leg.side == "server" else _client(leg, state)
    with other as options:
        said = _run([*command, *options])
    return _read(leg, folder, said)


@contextmanager
def _server(leg: Leg, folder: Path) -> Generator[list[str]]:
    def command(port: int) -> list[str]:
        program = [sys.executable, str(HERE / leg.program), str(port), str(folder)]
        return ["env", f"PYTHONPATH={_python_path()}", *program]

    with http_server(command) as server:
        yield ["--url", server.url]


@contextmanager
def _client(leg: Leg, folder: Path) -> Generator[list[str]]:
    # Short, for the name of a socket may not have more than a hundred letters.
    with tempfile.TemporaryDirectory(prefix="penstock-") as short:
        path = Path(short) / "client"
        command = [sys.executable, str(HERE / leg.program), str(path)]
        with (folder / "client.txt").open("w") as log:
            process = _start(command, stdout=log)
        try:
            assert wait_until(path.exists, START_SECONDS), "the client did not start"
            yield ["--command", f"{sys.executable} -S -E {HERE / 'launch.py'} {path}"]
        finally:
            _end(process)


def _run(command: list[str]) -> str:
    """What it says."""
    process = _start(command, stdout=subprocess.PIPE)
    try:
        said, _ = process.communicate(timeout=LEG_SECONDS - 20)
    finally:
        _end(process)
    return said


def _start(command: list[str], stdout: IO[str] | int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**unmeasured_environment(), "PYTHONPATH": _python_path()},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """With all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _python_path() -> str:
    return f"{node.ROOT}{os.pathsep}{node.ROOT / 'src'}"


def _read(leg: Leg, folder: Path, said: str) -> Score:
    score: dict[str, int | str | None] = {}
    problems: list[str] = []
    for file in sorted(folder.rglob("checks.json")):
        name = _STAMP.sub("", file.parent.relative_to(folder).as_posix())
        name = name.removeprefix(f"{leg.side}-")
        checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        failed = [
            f"{name}: {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        ]
        if failed and name in leg.lacks:
            score[name] = NOT_OFFERED
            continue
        problems += failed
        passed = [check["id"] for check in checks if check["status"] == "SUCCESS"]
        tested = any(each != _GENERIC for each in passed)
        score[name] = (None if leg.side == "client" else len(passed)) if tested else 0
    if problems:
        raise SuiteFailedError("\n".join(problems))
    if not score or "failed" not in said:
        raise SuiteFailedError(f"the suite did not run to its end:\n{said[-2000:]}")
    return score
