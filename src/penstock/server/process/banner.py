"""What `penstock serve` says: where it listens, what answers, and how to try it.

Colours for people, plain lines for pipes and logs. Commands stand on lines of their own, unbroken,
so that they can be copied.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from penstock._version import __version__
from penstock.config.settings import Config
from penstock.providers.embedded.install import REMEDY, missing
from penstock.runtime.child_processes import find_program
from penstock.server.process.systemd import notify

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 6
"""How many names of a kind are shown before the rest is only counted."""


class Screen:
    """Prints to standard output."""

    def __init__(
        self, config: Config, url: str, source: str, *, keys: bool = False, workers: int = 1
    ) -> None:
        """Where it listens, and where its configuration comes from; `keys`: callers need one."""
        self._workers = workers
        self._keys = keys
        self._url = url
        self._config = config
        self._source = source
        self._model = config.default_model or "provider/model"

    def started(self) -> None:
        """The gateway answers."""
        notify("READY=1")
        self._line()
        self._line(f"Penstock {__version__}", self._url, style="bold cyan")
        self._line()
        facts = list(self._facts())
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            self._line(f"  {name:{width}}", value, style="dim")
        for problem in self._problems():
            self._line()
            self._line(problem, style="yellow")
        self._line()
        self._line("Try it:")
        for command in self._commands():
            self._line(f"  {command}", style="green")
        self._line()
        which = "a key of yours as api_key" if self._keys else "any api_key"
        self._line(f"OpenAI clients: base_url={self._url}/v1, with {which}.")
        self._line(f"Anthropic clients: base_url={self._url}, the same. Ctrl-C stops.")
        self._line()

    def stopping(self, running: int | None, grace_s: float, *, again: bool) -> None:
        """A signal came; None: others know how many requests run."""
        notify("STOPPING=1")
        if again:
            self._line("Forced exit: running requests are cut.")
        elif running is None:
            self._line(
                f"Stopping: waiting up to {grace_s:g} s for running requests; "
                "Ctrl-C again forces exit."
            )
        elif running:
            what = "1 request" if running == 1 else f"{running} requests"
            self._line(
                f"Stopping: waiting up to {grace_s:g} s for {what}; Ctrl-C again forces exit."
            )

    def draining(self, drain_s: float) -> None:
        """A signal came, and the port stays open for a while."""
        notify("STOPPING=1")
        self._line(
            f"Draining: /ready answers 503 for {drain_s:g} s, then the gateway stops; "
            "Ctrl-C stops at once."
        )

    def stopped(self) -> None:
        """The last words."""
        self._line("Stopped.")

    def _facts(self) -> Iterator[tuple[str, str]]:
        config = self._config
        yield "configuration", self._source
        if self._workers > 1:
            yield "workers", str(self._workers)
        yield _plural("provider", len(config.providers)), _some(config.providers)
        models = [f"{name} ({', '.join(model.targets)})" for name, model in config.models.items()]
        yield _plural("model", len(models)), _some(models) if models else "any provider/model"

    def _problems(self) -> Iterator[str]:
        if self._uses_embedded() and missing():
            yield f"The embedded model is not installed; run: {REMEDY}"

    def _uses_embedded(self) -> bool:
        default = self._config.models.get(self._config.default_model or "")
        targets = default.targets if default is not None else ()
        names = {target.partition("/")[0] for target in targets}
        kinds = {
            (self._config.providers[name].kind if name in self._config.providers else None) or name
            for name in names
        }
        return "embedded" in kinds

    def _commands(self) -> Iterator[str]:
        yield (
            f"curl {self._url}/v1/chat/completions -H 'content-type: application/json' "
            + ('-H "authorization: Bearer $PENSTOCK_KEY" ' if self._keys else "")
            + f'-d \'{{"model": "{self._model}", '
            '"messages": [{"role": "user", "content": "Name three colours"}]}\''
        )
        yield f"{_python()} -c \"import penstock; print(penstock.ask('Name three colours'))\""

    @cached_property
    def _console(self) -> Console | None:
        if not sys.stdout.isatty():
            return None
        from rich.console import Console

        return Console(highlight=False, soft_wrap=True)

    def _line(self, text: str = "", value: str = "", *, style: str = "") -> None:
        if self._console is None:
            print(f"{text}  {value}" if value else text, flush=True)  # noqa: T201
            return
        from rich.text import Text

        self._console.print(Text.assemble((text, style), f"  {value}" if value else ""))


def _python() -> str:
    """How people call the Python that has Penstock: by its short name where that is the same."""
    own = Path(sys.executable)
    found = find_program("python")
    if found is not None and Path(found) == own:
        return "python"
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)


def _plural(name: str, count: int) -> str:
    return name if count == 1 else f"{name}s"


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _SHOWN
    return ", ".join(every[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
