"""A note below the first answer of the bundled model: it is for trying out, and what to do next.

It is shown once for each PENSTOCK_HOME, at a terminal only. Meanwhile, servers on this machine
that have a better model are looked for, beside the request and without waiting for them.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import threading
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple, cast

from penstock.cli.ui import terminal
from penstock.config.settings import home
from penstock.contract.errors import PenstockError
from penstock.contract.exchange import Result, SamplingRequest
from penstock.engine.engine import Engine
from penstock.providers.embedded.weights import BUNDLED, DEFAULT

_PROBE_S = 0.5
_MOST_BYTES = 2**18
_MARK = "small-model-note"
_MODEL = re.compile(r"[\w./:@+-]{1,100}", re.ASCII)
_EXAMPLE = "groq/llama-3.3-70b-versatile"
_EMBEDS = re.compile("embed|bge-|rerank", re.IGNORECASE)


class LocalServer(NamedTuple):
    """A program that serves models, where it listens unless told otherwise."""

    title: str
    kind: str
    port: int
    path: str
    owner: str = ""
    """What it says of its models, where other programs listen at this port too."""


SERVERS = (
    LocalServer("Ollama", "ollama", 11434, "/api/tags"),
    LocalServer("llama.cpp", "llamacpp", 8080, "/v1/models", "llamacpp"),
    LocalServer("LM Studio", "lmstudio", 1234, "/v1/models"),
)


class Note:
    """Looks for a better model from its start on, and says at the end what it has found."""

    def __init__(self, servers: tuple[LocalServer, ...]) -> None:
        """Start to look; nothing waits for it."""
        self._found: dict[str, str] = {}
        for server in servers:
            # Daemons: a server that is silent must not keep the command from ending.
            threading.Thread(target=self._look, args=(server,), daemon=True).start()

    def text(self, config_file: Path | None) -> str:
        """The note, with one command, or one line of the configuration that is there."""
        # In the order of the servers, whichever has answered first.
        where = next((each.title for each in SERVERS if each.title in self._found), None)
        model = self._found[where] if where else _EXAMPLE
        if config_file is not None:
            step = f'in {config_file}: [models.default] targets = ["{model}"]'
        else:
            step = f"penstock init {_shown_home()} --model {shlex.quote(model)}"
        why = (
            f"{where} runs on this machine. To use its model by default"
            if where
            else "For real work, start Ollama, llama.cpp or LM Studio, or use a provider. For "
            "example, with GROQ_API_KEY set"
        )
        says = "This answer is from a very small model that is meant for trying out."
        return f"{says} {why}:\n  {step}"

    def _look(self, server: LocalServer) -> None:
        with contextlib.suppress(OSError, HTTPException, ValueError, RecursionError):
            if model := _first_model(server):
                self._found[server.title] = f"{server.kind}/{model}"


def note_for(engine: Engine, request: SamplingRequest, *, as_json: bool) -> Note | None:
    """The note for this request; None where it would be of no use, or was shown before."""
    if as_json or request.model is not None or not terminal.is_terminal(sys.stderr):
        return None
    try:
        targets = engine.targets()
        if (home() / _MARK).exists():
            return None
    except (PenstockError, OSError):
        return None
    providers = engine.config.providers
    for target in targets:
        configured = providers.get(target.provider)
        kind = (configured and configured.kind) or target.provider
        own = configured is not None and configured.model_path is not None
        if kind != "embedded" or own or target.model not in (BUNDLED, DEFAULT):
            return None
    return Note(SERVERS)


def show(note: Note, engine: Engine, result: Result) -> None:
    """Print the note, unless another process has done so."""
    if result.model != BUNDLED:
        return
    mark = home() / _MARK
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch(exist_ok=False)
    except OSError:
        return
    source = engine.config.source
    terminal.note(f"\n{note.text(Path(source) if source else None)}")


def _first_model(server: LocalServer) -> str | None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=_PROBE_S)
    with contextlib.closing(connection):
        connection.request("GET", server.path, headers={"accept": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            return None
        page: Any = json.loads(response.read(_MOST_BYTES))
    if not isinstance(page, dict):
        return None
    listed: Any = cast(dict[str, Any], page).get("models" if server.kind == "ollama" else "data")
    for each in cast(list[Any], listed) if isinstance(listed, list) else []:
        if isinstance(each, dict):
            model = _name(cast(dict[str, Any], each), server)
            if model and not _EMBEDS.search(model):
                return model
    return None


def _name(entry: dict[str, Any], server: LocalServer) -> str | None:
    if server.owner and entry.get("owned_by") != server.owner:
        return None
    name: Any = entry.get("name") if server.kind == "ollama" else entry.get("id")
    return name if isinstance(name, str) and _MODEL.fullmatch(name) else None


def _shown_home() -> str:
    folder = home()
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{shlex.quote(str(folder.relative_to(Path.home())))}"
    return shlex.quote(str(folder))
