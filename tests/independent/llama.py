"""llama.cpp's HTTP server: a real model behind four APIs; it cannot be scripted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tests.independent.plain_http import is_up
from tests.support.services import HOST, running, scratch_folder

_PROGRAM = Path(__file__).parent / "llama_server.py"


@dataclass(frozen=True, slots=True)
class Llama:
    """A server that is up."""

    url: str
    """Where it is, without any API's path."""
    key: str
    """It answers nobody who has another key."""


@contextlib.contextmanager
def llama_service(key: str) -> Generator[Llama]:
    """Run it on a free port of loopback."""
    with (
        scratch_folder("llama") as folder,
        running(
            lambda port: [sys.executable, str(_PROGRAM), str(port), key],
            # It listens before the model is loaded, and then says so with another status.
            lambda port: is_up(port, HOST),
            folder=folder,
        ) as port,
    ):
        yield Llama(f"http://{HOST}:{port}", key)
