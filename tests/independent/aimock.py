"""`@copilotkit/aimock`: a server of scripted answers, in Node.js, by other people.

One process serves a whole test session. Each test has a name of its own, which it sends with every
request: its fixtures answer nobody else, and the journal is read by that name.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.independent.plain_http import call, is_up
from tests.support import node
from tests.support.services import HOST, running, scratch_folder

PACKAGES = Path(__file__).parent / "npm"
_PROGRAM = Path("@copilotkit", "aimock", "dist", "aimock-cli.js")
_OWN_PATHS = ("/__aimock", "/metrics", "/health")
_ANSWERED = re.compile(
    r'^aimock_requests_total\{method="\w+",path="(?P<path>[^"]*)",status="(?P<status>\w+)"\} '
    r"(?P<count>\d+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Aimock:
    """A server that is up, and its control API."""

    port: int
    key: str
    """It answers nobody who has another key."""

    @property
    def url(self) -> str:
        """Where it is, without any API's path."""
        return f"http://{HOST}:{self.port}"

    def add(self, fixtures: Sequence[Mapping[str, Any]]) -> None:
        """Answer so, instead of what was added before."""
        self._control("DELETE", "/fixtures")
        self._control("POST", "/fixtures", {"fixtures": fixtures})

    def journal(self, test: str) -> list[dict[str, Any]]:
        """The requests of this test, oldest first, as it understood them."""
        return self._control("GET", f"/journal?testId={test}")

    def received(self) -> int:
        """How many calls of anybody it has answered to the end, those of this class left out."""
        metrics = call(self, "/metrics")
        assert metrics.status == 200, f"aimock refused its metrics: {metrics.body!r}"
        return sum(
            int(found["count"])
            for found in _ANSWERED.finditer(metrics.body.decode())
            if found["status"] != "destroyed" and not found["path"].startswith(_OWN_PATHS)
        )

    def _control(self, method: str, path: str, body: object = None) -> Any:
        answer = call(self, f"/__aimock{path}", body, method)
        assert answer.status == 200, f"aimock refused {method} {path}: {answer.body!r}"
        return answer.json


@contextlib.contextmanager
def aimock_service(key: str) -> Generator[Aimock]:
    """Install it if need be, and run it on a free port of loopback."""
    program = node.required_packages(PACKAGES) / _PROGRAM

    with scratch_folder("aimock") as folder:
        config = folder / "aimock.json"
        config.write_text(
            json.dumps({"auth": {"apiKeys": [key]}, "llm": {"logLevel": "warn"}, "metrics": True})
        )

        def command(port: int) -> list[str]:
            options = ["--config", str(config), "--host", HOST, "--port", str(port)]
            return [str(node.NODE), str(program), *options]

        with running(command, lambda port: is_up(port, HOST), folder=folder) as port:
            yield Aimock(port, key)
